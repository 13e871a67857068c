"""What the page is told of pipelines."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, text

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.state.throttling import throttle_wish
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.web.known import KnownDag
from airflow_cdc_provider.web.nobody import with_nobody
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import ORDERS, at, counted, plan_of, report_of, splits_of
from tests.web.shop import SHOP, SHOP_DAG, Page, pipeline_dags, streaming

ONE = f"/api/pipelines/{SHOP_DAG}/{SHOP}"
NASTY = '<img src=x onerror="alert(1)">'


def test_a_pipeline_that_has_not_run_is_listed_as_new(page: Page, store: SqlStateStore) -> None:
    row = page.row(str(SHOP))
    assert (row["dag_id"], row["phase"], row["tables"], row["problem"]) == (
        SHOP_DAG,
        "new",
        0,
        None,
    )


def test_a_pipeline_that_is_wanted_and_that_nothing_runs_says_so(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    assert page.row(str(SHOP))["problems"] == []
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    store.release_lease(SHOP, generation)
    (problem,) = page.row(str(SHOP))["problems"]
    assert problem["level"] == "error"
    assert problem["what"].startswith("it is wanted to run, and nothing runs it: its DAG has no")
    store.want(SHOP, Wanted.STOP)
    assert page.row(str(SHOP))["problems"] == []
    store.want(SHOP, Wanted.RUN)
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    run = page.airflow("POST", runs, {"logical_date": None, "conf": {}}).json()
    try:
        row = page.row(str(SHOP))
        assert (row["problems"], row["dag_has_run"], row["next_run_us"]) == ([], True, None)
    finally:
        page.airflow("DELETE", f"{runs}/{run['dag_run_id']}")


def test_a_pipeline_between_scheduled_runs_says_when_the_next_one_is(
    page: Page, store: SqlStateStore
) -> None:
    name = "web_hourly"
    row = list_row(name, None, store.now_us())
    stopped = {**row, "phase": "stopped", "problems": []}
    hourly = KnownDag("web_hourly__sync", begins_alone=True, next_run_us=5)
    assert with_nobody(stopped, hourly)["problems"] == []
    (problem,) = with_nobody(stopped, replace(hourly, is_paused=True))["problems"]
    assert problem["remedy"] == "switch the DAG web_hourly__sync on, or pause the pipeline"
    assert with_nobody({**stopped, "owner": "somebody"}, KnownDag("d"))["problems"] == []
    for phase in ("new", "failed"):
        assert with_nobody({**stopped, "phase": phase}, KnownDag("d"))["problems"] == []


def test_the_list_says_what_each_pipeline_does_and_what_is_wrong(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store, changes=7, lag_us=2_500_000)
    store.mark_table(
        SHOP, generation, ORDERS, TablePhase.FAILED, StoredError.of(RefusedError("no key"))
    )
    store.ask(replace(request_of(), pipeline=SHOP, status=RequestStatus.WAITING))
    row = page.row(str(SHOP))
    assert (row["phase"], row["lag_s"], row["stale"]) == ("streaming", 2.5, False)
    assert (row["tables"], row["consistent"], row["stopped"]) == (1, 0, 1)
    assert (row["open_requests"], row["waiting_requests"]) == (1, 1)
    assert (row["edge"], row["conflicts"]) == (None, None)
    (problem,) = row["problems"]
    assert (problem["table"], problem["what"]) == ("shop.orders", "no key")


def test_an_edge_is_told_with_its_conflicts_and_the_edge_back_that_may_be_read(
    page: Page, store: SqlStateStore, tmp_path: Path
) -> None:
    edge = """topology:
  name: far
  src_node: {}
  dst_node: {}
  conflicts: {{policy: priority, winner: rome}}
"""
    there, back = PipelineName("web_rome_oslo"), PipelineName("web_oslo_rome")
    pipeline_dags(tmp_path, [str(there)], more=edge.format("rome", "oslo"))
    row = page.row(str(there))
    told = {"topology": "far", "src_node": "rome", "dst_node": "oslo", "settles": "rome wins"}
    assert (row["edge"], row["conflicts"]) == (told, None)
    one = f"/api/pipelines/{there}__sync/{there}"
    assert page.get(one).json()["opposite"] == []
    store.keep_note(there, NoteKind.CONFLICTS, {"count": 7})
    streaming(store, there)
    assert page.row(str(there))["conflicts"] == 7
    pipeline_dags(tmp_path, [str(back)], more=edge.format("oslo", "rome"))
    (found,) = page.get(one).json()["opposite"]
    assert found == {"dag_id": f"{back}__sync", "pipeline": str(back)}
    assert page.get(one).json()["changes"] == ["pause", "resume", "remove"]
    for change in ("add", "reset"):
        asked = page.post(f"{one}/tables", {"change": change, "tables": ["shop.orders"]})
        assert "an edge" in asked.json()["error"]["what"]
    assert store.requests(there) == ()


def test_a_pipeline_between_its_runs_shows_the_lag_of_its_last_one_as_that(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store, lag_us=2_500_000)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    row = page.row(str(SHOP))
    assert (row["lag_s"], row["last_lag_s"]) == (None, 2.5)


def test_a_stream_that_is_silent_is_stale(page: Page, store: SqlStateStore) -> None:
    streaming(store, heartbeat_us=store.now_us() - 31_000_000)
    assert page.row(str(SHOP))["stale"] is True


def test_one_pipeline_shows_tables_ranges_requests_and_events(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store, source_end=at(99), inconsistent=(ORDERS,))
    splits = splits_of(3)
    store.add_splits(SHOP, generation, splits)
    report = report_of(splits[0], rows=10)
    store.mark_split(SHOP, generation, splits[0], SplitStatus.FINISHED, report=report)
    store.mark_split(SHOP, generation, splits[1], SplitStatus.READING)
    asked = store.ask(replace(request_of(), pipeline=SHOP))
    store.move_request(
        SHOP,
        generation,
        asked.request_id,
        expected=RequestStatus.ASKED,
        to=RequestStatus.READING,
    )
    store.tell(SHOP, "something happened", level="warning")
    form = page.get(ONE).json()
    (table,) = form["table_list"]
    assert (table["source"], table["strip"], table["rows"]) == ("shop.orders", "9r0", 10)
    assert (table["finished"], table["splits"]) == (1, 3)
    assert table["requests"] == [asked.request_id]
    assert [each["id"] for each in form["requests"]] == [asked.request_id]
    assert form["events"][0]["text"] == "something happened"
    assert form["stream"]["source_end"] == str(at(99))
    assert form["stream"]["at_end"] is False
    assert form["stream"]["inconsistent"] == ["shop.orders"]


def test_one_pipeline_shows_how_far_the_log_reaches_and_what_preflight_found(
    page: Page, store: SqlStateStore
) -> None:
    streaming(store)
    form = page.get(ONE).json()
    assert (form["log_reach"], form["preflight"]) == (None, None)
    reach = LogReach(files=3, kept_bytes=900, applied_bytes=700, kept_s=86_400)
    store.keep_note(SHOP, NoteKind.LOG_REACH, asdict(reach))
    found = Finding(PipelineCode.PIPELINE_ENDED, Level.WARN, "shop.a", "gone", fix="`reset` it")
    kept = {"counts": {"warn": 1}, "findings": [found.to_json()]}
    store.keep_note(SHOP, NoteKind.PREFLIGHT, kept)
    form = page.get(ONE).json()
    assert form["log_reach"].items() >= asdict(reach).items()
    assert form["log_reach"]["at_us"] > 0
    (shown,) = form["preflight"]["findings"]
    assert (shown["level"], shown["observed"]) == ("warn", "gone")
    assert "airflow cdc reset" in shown["in_airflow"]


def test_a_stream_at_the_logs_end_is_there_however_both_are_written(
    page: Page, store: SqlStateStore
) -> None:
    """The end has no GTIDs: a server is asked for its place alone."""
    streaming(store, position=at(4), source_end=replace(at(4), gtids=None))
    stream = page.get(ONE).json()["stream"]
    assert stream["position"] != stream["source_end"]
    assert stream["at_end"] is True


def test_samples_are_those_of_the_last_day(page: Page, store: SqlStateStore) -> None:
    streaming(store, changes=7, lag_us=3)
    (sample,) = page.get(f"{ONE}/samples").json()["samples"]
    assert sample[1:] == [10, 3, 7, 0]


@pytest.mark.parametrize(
    ("wish", "wanted"), [("stop", Wanted.STOP), ("run", Wanted.RUN), ("restart", Wanted.RESTART)]
)
def test_a_wish_is_noted(page: Page, store: SqlStateStore, wish: str, wanted: Wanted) -> None:
    streaming(store)
    assert page.post(f"{ONE}/wanted", {"wanted": wish}).json() == {"wanted": wanted.value}
    assert store.ensure(SHOP).wanted is wanted


def test_a_failure_stays_until_a_run_begins_that_tries_it_again(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    store.store_hand_off(SHOP, generation, StreamSplit(at(4), None, ()))
    store.move(
        SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=StoredError("it broke")
    )
    store.release_lease(SHOP, generation)
    assert page.row(str(SHOP))["problems"][0]["what"] == "it broke"
    store.want(SHOP, Wanted.STOP)
    told = page.post(f"{ONE}/wanted", {"wanted": "run"}).json()
    assert told["wanted"] == "run"
    assert "it broke" in told["what"]
    assert f"begin a run of the DAG {SHOP_DAG}" in told["remedy"]
    state = store.ensure(SHOP)
    assert (state.phase, state.wanted) == (Phase.FAILED, Wanted.RUN)
    assert page.row(str(SHOP))["problems"][0]["what"] == "it broke"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("add", RequestKind.FOLLOW),
        ("remove", RequestKind.REMOVE),
        ("reset", RequestKind.RESET),
        ("pause", RequestKind.PAUSE),
        ("resume", RequestKind.RESUME),
    ],
)
def test_what_is_to_become_of_tables_is_a_request(
    page: Page, store: SqlStateStore, change: str, kind: RequestKind
) -> None:
    generation = streaming(store)
    body = {"change": change, "tables": [str(ORDERS)]}
    if change != "remove":  # which leaves a table out of the snapshot, too
        refused = page.post(f"{ONE}/tables", body).json()["error"]
        assert "has no stream yet" in refused["what"]
    store.store_hand_off(SHOP, generation, StreamSplit(at(4), None, ()))
    asked = page.post(f"{ONE}/tables", body).json()
    (request,) = store.requests(SHOP)
    assert (request.request_id, request.kind) == (asked["id"], kind)
    assert (request.scope.tables, request.asked_by) == ((ORDERS,), "admin in Airflow")
    assert store.ensure(SHOP).wanted is (
        Wanted.RESTART if kind in {RequestKind.PAUSE, RequestKind.RESUME} else Wanted.RUN
    )
    assert page.post(f"{ONE}/tables", {**body, "tables": ["orders"]}).json()["error"]["remedy"]
    for wrong in ({**body, "change": "drop"}, {**body, "tables": []}, {"change": change}):
        assert page.post(f"{ONE}/tables", wrong).status_code == 422


def test_a_body_with_more_than_is_asked_for_is_refused(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    bodies: list[object] = [{"wanted": "drop"}, {"wanted": "run", "more": 1}, {}, []]
    for body in bodies:
        assert page.post(f"{ONE}/wanted", body).status_code == 422
    assert page.post(f"{ONE}/requests/r1/cancel", {"more": 1}).status_code == 422


def test_a_request_that_is_done_is_not_cancelled_and_that_is_said(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    store.ask(replace(request_of(), pipeline=SHOP))
    reading, done = RequestStatus.READING, RequestStatus.DONE
    store.move_request(SHOP, generation, "r1", expected=RequestStatus.ASKED, to=reading)
    assert page.post(f"{ONE}/requests/r1/cancel", {}).status_code == 200
    store.move_request(SHOP, generation, "r1", expected=reading, to=done)
    told = len(store.events(SHOP))
    answer = page.post(f"{ONE}/requests/r1/cancel", {})
    assert answer.status_code == 409
    assert answer.json()["error"]["what"] == "request r1 is done: there is nothing to cancel"
    assert len(store.events(SHOP)) == told


def test_one_between_two_tasks_of_a_run_is_not_stale(page: Page, store: SqlStateStore) -> None:
    generation = streaming(store)
    store.forget(SHOP, generation)
    generation = store.take_over(SHOP, "dag").generation
    store.move(SHOP, generation, expected=Phase.NEW, to=Phase.PLANNING)
    store.move(SHOP, generation, expected=Phase.PLANNING, to=Phase.SNAPSHOT)
    assert page.row(str(SHOP))["stale"] is False
    store.release_lease(SHOP, generation)
    row = page.row(str(SHOP))
    assert (row["stale"], row["summary"]) == (False, "snapshot (nobody is at work)")


def test_a_stopped_table_says_what_is_at_risk_and_the_way_back(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    error = StoredError.of(RefusedError("no right", remedy="grant it"))
    store.mark_table(SHOP, generation, ORDERS, TablePhase.FAILED, error)
    form = page.get(ONE).json()
    (problem,) = form["problems"]
    for told in (problem, form["table_list"][0]["error"]):
        assert "stand still" in told["risk"]
        assert told["remedy"] == "grant it; then `resume` with --table shop.orders"
        assert "airflow cdc resume FILE --table shop.orders" in told["in_airflow"]


def test_an_error_says_what_where_at_risk_and_what_to_do(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    answer = page.post(f"{ONE}/requests/none/cancel", {})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "CDC-CFG-001"
    assert "has no request 'none'" in error["what"]
    assert all(error[fact] for fact in ("where", "risk", "remedy"))


def test_a_store_that_is_not_there_is_not_made_and_its_row_says_whether_it_should_be(
    page: Page, store: SqlStateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing.db"
    monkeypatch.setenv("AIRFLOW_CONN_WEB_MISSING", f"sqlite:///{missing}")
    pipeline_dags(tmp_path, ["web_missing"], state="conn_id: web_missing", only_sync=True)
    pipeline_dags(tmp_path, ["web_nowhere"], state="conn_id: web_nowhere", only_sync=True)
    row = page.row("web_missing")
    assert (row["summary"], row["problem"], row["problems"]) == ("new", None, [])
    one = page.get("/api/pipelines/web_missing__sync/web_missing").json()
    assert (one["phase"], one["table_list"], one["stream"]) == ("new", [], None)
    assert "no connection 'web_nowhere'" in page.row("web_nowhere")["problem"]["what"]
    assert page.row(str(SHOP))["problem"] is None
    assert not missing.exists()
    answer = page.post("/api/pipelines/web_missing__sync/web_missing/wanted", {"wanted": "stop"})
    assert (answer.status_code, missing.exists()) == (400, False)
    runs = "/api/v2/dags/web_missing__sync/dagRuns"
    run = page.airflow("POST", runs, {"logical_date": None, "conf": {}}).json()["dag_run_id"]
    page.airflow("PATCH", f"{runs}/{run}", {"state": "failed"})
    assert "no state store yet" in page.row("web_missing")["problem"]["what"]


def test_a_store_that_does_not_answer_is_tried_once_for_all_its_pipelines(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deaf_server() as (port, heard):
        monkeypatch.setenv("AIRFLOW_CONN_WEB_DEAF", f"mysql://cdc:planted@127.0.0.1:{port}/s")
        names = [f"web_deaf_{number}" for number in range(5)]
        pipeline_dags(tmp_path, names, state="conn_id: web_deaf", only_sync=True)
        rows = [page.row(name) for name in names]
        assert {row["problem"]["code"] for row in rows} == {"CDC-STA-001"}
        assert "planted" not in str(rows)
        assert len(heard) == 1


@contextmanager
def deaf_server() -> Iterator[tuple[int, list[object]]]:
    """Give the port of a server that hangs up at once, and who called."""
    heard: list[object] = []

    class Deaf(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heard.append(self.client_address)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Deaf) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], heard
        server.shutdown()


def test_looking_does_not_migrate_a_store_of_another_release(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = f"sqlite:///{tmp_path}/old.db"
    open_store(dsn).close()
    engine = create_engine(dsn)
    with engine.begin() as connection:
        connection.execute(text("UPDATE cdc_alembic_version SET version_num = '0001'"))
    monkeypatch.setenv("AIRFLOW_CONN_WEB_OLD", dsn)
    pipeline_dags(tmp_path, ["web_old"], state="conn_id: web_old", only_sync=True)
    assert "another release" in page.row("web_old")["problem"]["what"]
    with engine.connect() as connection:
        version = connection.execute(text("SELECT version_num FROM cdc_alembic_version")).scalar()
    engine.dispose()
    assert version == "0001"


def test_one_of_airflows_own_settings_is_no_state_store(page: Page, tmp_path: Path) -> None:
    pipeline_dags(
        tmp_path, ["web_own"], state="dsn_env: AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", only_sync=True
    )
    assert "Airflow's own" in page.row("web_own")["problem"]["what"]


def test_what_is_shown_is_text_and_never_part_of_a_page(page: Page, store: SqlStateStore) -> None:
    generation = streaming(store)
    nasty = TableId("shop", NASTY)
    store.start_plan(SHOP, generation, "plan-2", [plan_of(nasty)])
    store.tell(SHOP, NASTY)
    answer = page.get(ONE)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["table_list"][0]["source"] == str(nasty)
    assert NASTY not in page.get("/page").text


def test_the_list_sends_the_same_few_statements_for_a_hundred_pipelines(
    page: Page, tmp_path: Path, store: SqlStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds are printed, and not judged."""
    dsn = f"sqlite:///{tmp_path}/many.db"
    monkeypatch.setenv("AIRFLOW_CONN_WEB_MANY", dsn)
    many = open_store(dsn)
    names = [f"web_many_{number:03}" for number in range(100)]
    pipeline_dags(tmp_path, names, state="conn_id: web_many", only_sync=True)
    plans = [_plan(number) for number in range(20)]
    for name in names:
        generation = many.take_over(PipelineName(name), "the test").generation
        many.start_plan(PipelineName(name), generation, "plan", plans)
    page.get("/api/pipelines")  # reads the DAGs and opens the store
    page.get(ONE)
    with _of_every_store() as sent:
        started = time.perf_counter()
        rows = page.get("/api/pipelines").json()["pipelines"]
        took_s = time.perf_counter() - started
    shown = [row for row in rows if row["pipeline"] in names]
    assert [row["tables"] for row in shown] == [20] * 100
    print(f"100 pipelines, 2,000 tables: {took_s * 1000:.0f} ms, {len(sent)} statements")
    assert not [each for each in sent if "serialized_dag.data" in each]  # read once
    # those of this store and of the other tests' stores
    assert len(sent) <= 9 * 4
    with counted(many) as statements:
        many.overviews([PipelineName(name) for name in names], many.now_us())
    assert len(statements) == 8
    many.close()


def _plan(number: int) -> TablePlan:
    return plan_of(TableId("shop", f"table_{number}"))


@contextmanager
def _of_every_store() -> Iterator[list[str]]:
    """Give the statements that all open state stores send."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "cdc_" in statement or "serialized_dag.data" in statement:
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_the_throttle_is_shown_with_its_reason_and_changed(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    assert page.get(ONE).json()["throttle"] is None
    form = {
        "generation": generation,
        "limits": ThrottleLimits(max_threads_running=50).to_json(),
        "origin": "from the file",
        "closed_by": "Threads_running 61 is above 50",
        "since_us": 43_390_000_000,
        "throttled_s": 3.0,
    }
    store.keep_note(SHOP, NoteKind.THROTTLED, form)
    shown = page.get(ONE).json()["throttle"]
    assert shown["text"] == "throttled: Threads_running 61 is above 50, since 12:03:10 UTC"
    store.keep_note(SHOP, NoteKind.THROTTLED, {**form, "generation": generation - 1})
    assert page.get(ONE).json()["throttle"] is None

    changes = {"rows_per_second": 5000, "max_threads_running": 40}
    answer = page.post(f"{ONE}/throttle", {"changes": changes}).json()
    assert answer["limits_text"] == "5,000 rows/s, up to 40 running threads"
    refused = page.post(f"{ONE}/throttle", {"changes": {"critical_threads_running": 40}})
    assert "40 ends the snapshot before" in refused.json()["error"]["what"]
    refused = page.post(f"{ONE}/throttle", {"changes": {"max_replica_lag_s": 10}})
    assert "the file names none" in refused.json()["error"]["what"]
    page.post(f"{ONE}/throttle", {"changes": {"rows_per_second": None}})
    wish = throttle_wish(store, SHOP)
    assert wish is not None
    assert wish.limits == ThrottleLimits(max_threads_running=40)
    assert page.get(ONE).json()["throttle"]["origin"].endswith("set by admin in Airflow")
    page.post(f"{ONE}/throttle", {"changes": {}})
    assert page.get(ONE).json()["throttle"] is None
    for wrong in ({}, {"changes": {"rows": 1}}, {"changes": {"rows_per_second": 0}}):
        assert page.post(f"{ONE}/throttle", wrong).status_code == 422
