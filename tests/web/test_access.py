"""Who may do what on the page: every route, every role, and from where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.state.store import SqlStateStore
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import at
from tests.web.shop import ROLES, SHOP, SHOP_DAG, Page, streaming

ONE = f"/api/pipelines/{SHOP_DAG}/{SHOP}"
READS = ("/page", "/static/app.js", "/api/pipelines", ONE, f"{ONE}/samples")
WRITES: dict[str, dict[str, Any]] = {
    f"{ONE}/wanted": {"wanted": "stop"},
    f"{ONE}/tables": {"change": "reset", "tables": ["shop.orders"]},
    f"{ONE}/throttle": {"changes": {"rows_per_second": 5000}},
    f"{ONE}/requests/r1/cancel": {},
    f"{ONE}/requests/w1/approve": {},
}


@pytest.fixture
def asked(store: SqlStateStore) -> SqlStateStore:
    """A pipeline that streams, with a request that reads and one that waits."""
    generation = streaming(store)
    store.store_hand_off(SHOP, generation, StreamSplit(at(4), None, ()))
    request = replace(request_of(), pipeline=SHOP)
    store.ask(replace(request, request_id="r1"))
    store.ask(replace(request, request_id="w1", status=RequestStatus.WAITING))
    return store


def every_route() -> Iterator[tuple[str, str]]:
    """Give method and path of each route of the app, filled with what is there."""
    from airflow_cdc_provider.web.app import create_app  # noqa: PLC0415 - loads the API server

    values = {
        "{dag_id}": SHOP_DAG,
        "{pipeline}": str(SHOP),
        "{request_id}": "r1",
        "{name:path}": "app.js",
    }
    for route in create_app().routes:
        path = getattr(route, "path", "")
        for mark, value in values.items():
            path = path.replace(mark, value)
        assert "{" not in path, path
        for method in getattr(route, "methods", None) or {"MOUNT"}:
            yield method, path


@pytest.mark.usefixtures("asked")
class TestAccess:
    """Each test asks every route."""

    def test_nobody_gets_401_on_every_route_there_is(self, page: Page) -> None:
        routes = sorted(every_route())
        assert len(routes) >= len(READS) + len(WRITES)
        for method, path in routes:
            answer = page.ask(method, path, role=None, json={})
            assert (path, answer.status_code) == (path, 401)

    def test_a_token_that_is_none_gets_403_on_every_route_there_is(self, page: Page) -> None:
        for method, path in every_route():
            answer = page.ask(method, path, role="GARBAGE", json={})
            assert (path, answer.status_code) == (path, 403)

    @pytest.mark.parametrize("role", ROLES)
    def test_whoever_reads_dags_looks(self, page: Page, role: str) -> None:
        for path in READS:
            answer = page.get(path, role=role)
            assert (path, answer.status_code) == (path, 200), answer.text

    def test_who_may_only_look_changes_nothing(self, page: Page, asked: SqlStateStore) -> None:
        for path, body in WRITES.items():
            answer = page.post(path, body, role="VIEWER")
            assert (path, answer.status_code) == (path, 403)
        assert asked.ensure(SHOP).wanted is Wanted.RUN
        assert [each.status for each in asked.requests(SHOP)] == [
            RequestStatus.ASKED,
            RequestStatus.WAITING,
        ]
        assert page.get(ONE, role="VIEWER").json()["may_write"] is False

    @pytest.mark.parametrize("role", ["USER", "OP", "ADMIN"])
    def test_who_may_run_dags_asks(self, page: Page, asked: SqlStateStore, role: str) -> None:
        assert page.get(ONE, role=role).json()["may_write"] is True
        for path, body in WRITES.items():
            answer = page.post(path, body, role=role)
            assert (path, answer.status_code) == (path, 200), answer.text
        assert asked.ensure(SHOP).wanted is Wanted.STOP
        assert [each.status for each in asked.requests(SHOP)] == [
            RequestStatus.CANCELLED,
            RequestStatus.ASKED,
            RequestStatus.ASKED,
        ]
        texts = [event.text for event in asked.events(SHOP)]
        words = (
            "asked to pause",
            "request r1 to be cancelled",
            "request w1 approved",
            "request reset-",
            "throttle: 5,000 rows/s",
        )
        for word in words:
            assert any(text.startswith(word) and role.lower() in text for text in texts), texts

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_what_another_site_makes_a_browser_send_is_refused(
        self, page: Page, asked: SqlStateStore, site: str
    ) -> None:
        for path, body in WRITES.items():
            answer = page.post(path, body, headers={"Sec-Fetch-Site": site})
            assert (path, answer.status_code) == (path, 403)
        assert asked.ensure(SHOP).wanted is Wanted.RUN

    @pytest.mark.parametrize(
        "content_type",
        ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""],
    )
    def test_what_a_form_can_send_is_refused(
        self, page: Page, asked: SqlStateStore, content_type: str
    ) -> None:
        for path, body in WRITES.items():
            answer = page.ask(
                "POST",
                path,
                content=json.dumps(body),
                headers={"Content-Type": content_type},
            )
            assert (path, answer.status_code) == (path, 415)
        assert asked.ensure(SHOP).wanted is Wanted.RUN

    def test_no_route_writes_on_get(self, page: Page) -> None:
        for path in WRITES:
            assert page.get(path).status_code == 405

    def test_the_cookie_of_airflows_own_page_is_enough(self, page: Page) -> None:
        page.client.cookies.set("_token", page.tokens["VIEWER"])
        try:
            assert page.client.get(f"/cdc{ONE}").status_code == 200
        finally:
            page.client.cookies.clear()


@pytest.mark.parametrize(
    "path", ["/page", "/static/app.js", "/static/nothing.js", "/api/pipelines", "/nowhere"]
)
@pytest.mark.parametrize("role", ["ADMIN", None])
def test_every_answer_says_what_a_browser_may_do_with_it(
    page: Page, path: str, role: str | None
) -> None:
    headers = page.get(path, role=role).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "cache-control" in headers


@pytest.mark.usefixtures("asked")
def test_who_may_not_read_a_dag_sees_nothing_of_its_pipeline(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's simple auth manager knows no rights of single DAGs, so it is taught one."""
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415 - loads the API server

    manager = get_auth_manager()
    allows = manager.is_authorized_dag

    def allows_others(*, details: Any = None, **more: Any) -> bool:
        return getattr(details, "id", None) != SHOP_DAG and allows(details=details, **more)

    def others(**_: Any) -> set[str]:
        return {"another__sync"}

    monkeypatch.setattr(manager, "is_authorized_dag", allows_others)
    monkeypatch.setattr(manager, "get_authorized_dag_ids", others)
    asked = [(method, path) for method, path in every_route() if SHOP_DAG in path]
    assert len(asked) == 3 + len(WRITES)
    for method, path in asked:
        assert (path, page.ask(method, path, json={}).status_code) == (path, 403)
    assert page.get("/api/pipelines").json() == {"pipelines": []}


def test_a_wish_is_a_line_in_airflows_audit_log(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    assert page.post(f"{ONE}/wanted", {"wanted": "stop"}, role="OP").status_code == 200
    page.client.cookies.clear()
    headers = {"Authorization": f"Bearer {page.tokens['ADMIN']}"}
    log = page.client.get("/api/v2/eventLogs?event=cdc_want&limit=1000", headers=headers).json()
    assert [(line["owner"], line["dag_id"]) for line in log["event_logs"]][-1] == ("op", SHOP_DAG)


def test_a_pipeline_is_reached_by_its_own_dag_only(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    assert page.get(f"/api/pipelines/another__sync/{SHOP}").status_code == 404
    assert page.get(f"/api/pipelines/{SHOP_DAG}/another").status_code == 404


def test_files_outside_of_the_page_are_not_served(page: Page) -> None:
    for name in ("../app.py", "..%2Fapp.py", "%2e%2e/app.py", "vendor/README.md", "index.html"):
        assert page.get(f"/static/{name}").status_code == 404
