"""A browser looks at the page in a real API server of Airflow, below a base path.

Screenshots are left in the folder that `CDC_SCREENSHOTS` names, for people to look at.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.records import NoteKind, PlanOrigin, StreamState
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.state.store import SqlStateStore
from airflow_cdc_provider.state.throttling import throttle_wish
from tests.behaviours.state_behaviours import at
from tests.servers.browser import shot
from tests.web.serving import (
    BACK,
    BUSY,
    LOST,
    NASTY,
    QUIET,
    THERE,
    Served,
    framed,
    of,
    opened,
    themed,
)
from tests.web.shop import SHOP, SHOP_DAG, Page, streaming

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.timeout(300)
NOTHING = "\N{EN DASH}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_navigation_leads_to_the_list_and_the_list_to_a_pipeline(
    tab: Tab, served: Served, lively: SqlStateStore, theme: str
) -> None:
    themed(tab, served, theme)
    tab.goto(f"{served.url}/")
    tab.get_by_role("link", name="CDC").first.click()
    frame = tab.frame_locator("iframe[title='CDC']")
    row = frame.locator(f"tr[data-pipeline='{BUSY}']")
    assert "streaming" in row.inner_text()
    assert frame.locator("html").get_attribute("data-theme") == theme
    shot(tab, f"list-{theme}")
    row.get_by_role("link").click()
    frame.get_by_role("tab", name="Tables 6").wait_for()
    frame.locator(".u-wrap canvas").first.wait_for()
    assert f"pipeline={BUSY}" in tab.url
    shot(tab, f"pipeline-{theme}")
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    tab.locator(".u-wrap canvas").first.wait_for()
    shot(tab, f"pipeline-{theme}-alone")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.sample(1)
def test_on_a_narrow_screen_nothing_is_wider_than_the_screen(
    tab: Tab, served: Served, lively: SqlStateStore, theme: str
) -> None:
    themed(tab, served, theme)
    for width in (400, 800):
        tab.set_viewport_size({"width": width, "height": 800})
        for name, search in (("list", ""), ("pipeline", of(BUSY)), ("failed", of(QUIET))):
            tab.goto(f"{served.url}/cdc/page{search}")
            tab.locator("main[data-state='fresh']").wait_for()
            shot(tab, f"narrow-{width}-{name}-{theme}")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_topology_is_drawn_with_lag_and_conflicts_of_each_edge(
    tab: Tab, served: Served, store: SqlStateStore, theme: str
) -> None:
    streaming(store, THERE, lag_us=1_500_000)
    store.keep_note(THERE, NoteKind.CONFLICTS, {"count": 1234})
    generation = streaming(store, BACK, lag_us=90_000_000)
    store.move(BACK, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=StoredError("x"))
    themed(tab, served, theme)
    tab.goto(f"{served.url}/cdc/page")
    topology = tab.locator("[data-topology=shops]")
    there = topology.locator("tr[data-edge='berlin paris']")
    there.get_by_text("1.5 s").wait_for()
    assert there.inner_text().split("\t")[2:] == [str(THERE), "streaming", "1.5 s", "1.2K"]
    assert topology.locator("svg").get_by_text("1.5 s, 1,234 conflicts").count() == 1
    assert "failed" in topology.locator("tr[data-edge='paris berlin']").inner_text()
    on = topology.locator("tr[data-edge='berlin rome']").inner_text()
    assert "no edge back seen" in on
    assert on.split("\t")[3:] == ["never run", NOTHING, "?"]
    assert topology.locator("svg text.name").all_text_contents() == ["berlin", "paris", "rome"]
    assert topology.locator("svg path.line").count() == 3
    assert topology.locator("svg path.line.bad").count() == 1
    assert topology.locator("svg path.line.idle").count() == 1
    shot(tab, f"topology-{theme}")
    tab.get_by_label("Find a pipeline").fill("warehouse")
    assert topology.is_visible()
    tab.set_viewport_size({"width": 400, "height": 800})
    shot(tab, f"topology-narrow-{theme}")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    there.get_by_role("link").click()
    tab.locator("[data-fact='Conflicts'] .number").get_by_text("1.2K").wait_for()
    assert "berlin → paris of shops" in tab.locator(".ends").inner_text()
    tab.locator(".links").get_by_role("link", name=str(BACK)).click()
    tab.get_by_text("paris → berlin of shops").wait_for()


def test_an_edge_whose_state_cannot_be_read_is_drawn_as_that(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    lost = tab.locator("[data-topology=lost]")
    lost.get_by_text("cannot be looked at").first.wait_for()
    told = lost.locator("tr[data-edge='berlin oslo']").inner_text().split("\t")
    assert told[2:] == [str(LOST), "cannot be looked at", NOTHING, "?"]
    assert lost.locator("svg path.line.bad").count() == 1


def test_numbers_follow_the_state(tab: Tab, served: Served, store: SqlStateStore) -> None:
    generation = streaming(store, lag_us=2_000_000)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    lag = tab.locator("[data-fact='Lag'] .number")
    lag.get_by_text("2.0 s").wait_for()
    told = StreamState(at(9), lag_us=75_000_000, heartbeat_us=store.now_us())
    store.beat(SHOP, generation, told)
    lag.get_by_text("1 min 15 s").wait_for()


def test_the_reach_of_the_log_and_what_preflight_found_are_shown(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}#stream")
    kept = tab.locator("dl.position").filter(has_text="The source keeps")
    kept.wait_for()
    text = kept.inner_text()
    assert "log of the last 3 days" in text
    assert "12.9\u00a0GB in 12 files" in text
    shot(tab, "stream")
    tab.get_by_role("tab", name="Preflight 1").click()
    tab.locator("details.finding summary").click()
    tab.get_by_text("reset the pipeline", exact=True).wait_for()
    tab.get_by_text("airflow cdc reset").wait_for()
    tab.get_by_text("And 2 more").wait_for()
    shot(tab, "preflight")


def test_a_position_is_said_to_be_outside_the_log_only_if_it_is_known_to_be(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    kept = tab.locator("dl.position").filter(has_text="The source keeps")
    unknown = LogReach(files=2, kept_bytes=900, applied_bytes=None, kept_s=86_400)
    for reach, words in (
        (unknown, "is known with the next change"),
        (replace(unknown, is_outside=True), "position is not in them"),
    ):
        lively.keep_note(BUSY, NoteKind.LOG_REACH, asdict(reach))
        tab.goto(f"{served.url}/cdc/page{of(BUSY)}#stream")
        kept.get_by_text(words).wait_for()


def test_a_short_times_axis_names_seconds(tab: Tab, served: Served) -> None:
    tab.goto(f"{served.url}/cdc/page")
    ask = """async ([step, count]) => {
        const chart = await import(new URL("static/chart.js", document.baseURI));
        const at = new Date(2026, 0, 2, 3, 4, 0).getTime() / 1000;
        const moments = Array.from({length: count}, (_, number) => at + number * step);
        return chart.times(null, moments, 0, 70, step);
    }"""
    assert tab.evaluate(ask, [15, 3]) == ["03:04:00", "03:04:15", "03:04:30"]
    assert tab.evaluate(ask, [60, 3]) == ["03:04", "03:05", "03:06"]


def test_an_axis_is_as_wide_as_its_labels(tab: Tab, served: Served) -> None:
    tab.goto(f"{served.url}/cdc/page")
    widths = """async ([font, labels]) => {
        const { axisWidth } = await import(new URL("static/chart.js", document.baseURI));
        const pen = document.createElement("canvas").getContext("2d");
        pen.font = font;
        const needed = labels.map((each) => pen.measureText(each).width);
        return [axisWidth(null, labels), Math.max(...needed)];
    }"""
    font = "11px system-ui, sans-serif"
    wide, needed = tab.evaluate(widths, [font, ["0 s", "1 min 40 s", "16 min 40 s"]])
    assert wide > needed + 5
    assert tab.evaluate(widths, [font, ["0 s", "5.0 s"]])[0] == 58


@pytest.mark.parametrize(
    ("source", "said"),
    [("berlin", "berlin → paris of banks"), ("db1", "db1 → paris · berlin → paris of banks")],
)
def test_a_heading_names_the_same_ends_once(
    tab: Tab, served: Served, source: str, said: str
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    shown = """async (it) => {
        const { described } = await import(new URL("static/heading.js", document.baseURI));
        return described(it);
    }"""
    edge = {"topology": "banks", "src_node": "berlin", "dst_node": "paris"}
    assert tab.evaluate(shown, {"source": source, "sink": "paris", "edge": edge}) == said


def test_one_of_a_kind_has_a_noun_without_an_s(tab: Tab, served: Served) -> None:
    tab.goto(f"{served.url}/cdc/page")
    shown = """async (table) => {
        const { rowsOf } = await import(new URL("static/parts.js", document.baseURI));
        return rowsOf(table);
    }"""
    assert tab.evaluate(shown, {"rows": 0, "estimated_rows": 1}) == "0 of about 1 row"
    assert tab.evaluate(shown, {"rows": 2, "estimated_rows": 1}) == "2 of about 2 rows"


def test_pause_is_asked_once_and_noted_with_who_asked(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    streaming(store)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    tab.get_by_role("button", name="Pause").click()
    dialog = tab.get_by_role("dialog")
    shot(tab, "question")
    dialog.get_by_role("button", name="Do nothing").click()
    assert store.ensure(SHOP).wanted is Wanted.RUN
    tab.get_by_role("button", name="Pause").click()
    dialog.get_by_role("button", name="Pause").click()
    tab.get_by_role("button", name="Resume").wait_for()
    assert store.ensure(SHOP).wanted is Wanted.STOP
    assert "admin in Airflow" in store.events(SHOP)[0].text


def test_resume_begins_a_run_of_the_dag_where_nobody_is_at_work(
    tab: Tab, served: Served, store: SqlStateStore, page: Page
) -> None:
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    generation = streaming(store)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    store.release_lease(SHOP, generation)
    store.want(SHOP, Wanted.STOP)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    begun: list[str] = []
    try:
        for button in ("Resume", "Run now"):
            tab.get_by_role("button", name=button).click()
            dialog = tab.get_by_role("dialog")
            dialog.get_by_text(f"A run of the DAG {SHOP_DAG} begins.").or_(
                dialog.get_by_text(f"Begin a run of the DAG {SHOP_DAG} now?")
            ).wait_for()
            dialog.get_by_role("button", name=button).click()
            dialog.wait_for(state="detached")
            (run,) = page.airflow("GET", f"{runs}?state=queued").json()["dag_runs"]
            tab.get_by_text(f"run {run['dag_run_id']} of {SHOP_DAG} begins").wait_for()
            assert store.ensure(SHOP).wanted is Wanted.RUN
            begun.append(run["dag_run_id"])
            tab.get_by_role("button", name="Run now").wait_for(state="detached")
            page.airflow("DELETE", f"{runs}/{run['dag_run_id']}")
            tab.get_by_text("nothing runs it: its DAG has no schedule").wait_for()
            shot(tab, "nobody")
        assert tab.get_by_role("link", name=SHOP_DAG).get_attribute("href") == f"../dags/{SHOP_DAG}"
    finally:
        for run_id in begun:
            page.airflow("DELETE", f"{runs}/{run_id}")


def test_resume_begins_a_run_behind_one_that_is_about_to_end(
    tab: Tab, served: Served, store: SqlStateStore, page: Page
) -> None:
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    streaming(store)
    store.want(SHOP, Wanted.STOP)  # its owner has not heard of it yet
    ending = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    run_under_way(ending)
    begun = [ending]
    try:
        for says in (f"begins when {ending} has ended", "waits to begin"):
            store.want(SHOP, Wanted.STOP)
            tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
            tab.get_by_role("button", name="Resume").click()
            dialog = tab.get_by_role("dialog")
            dialog.get_by_text(f"A run of the DAG {SHOP_DAG} begins.").wait_for()
            dialog.get_by_role("button", name="Resume").click()
            tab.get_by_text(f"of {SHOP_DAG} {says}").wait_for()
            (run,) = page.airflow("GET", f"{runs}?state=queued").json()["dag_runs"]
            begun.append(run["dag_run_id"])
        assert begun[1] == begun[2] != ending
    finally:
        page.airflow("PATCH", f"{runs}/{ending}", {"state": "failed"})  # one that runs stays
        for run_id in set(begun):
            page.airflow("DELETE", f"{runs}/{run_id}")
        left = page.airflow("GET", runs).json()["dag_runs"]
        assert {run["dag_run_id"] for run in left}.isdisjoint(begun)


def run_under_way(run_id: str) -> None:
    """Have a run be under way, as the scheduler has it."""
    from airflow.models.dagrun import DagRun  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    with create_session() as session:
        session.query(DagRun).filter_by(run_id=run_id).one().state = "running"


def test_a_request_is_cancelled_and_one_that_waits_is_approved(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    frame = framed(tab, served, of(BUSY))
    frame.get_by_role("tab", name="Requests 3 open").click()
    shot(tab, "requests")
    for name, verb in (("nightly-1", "Cancel"), ("resync-big", "Approve")):
        frame.locator(f"[data-request='{name}']").get_by_role("button", name=verb).click()
        frame.get_by_role("dialog").get_by_role("button", name=verb).click()
        frame.get_by_role("dialog").wait_for(state="detached")
    asked = {each.request_id: each.status for each in lively.requests(BUSY)}
    assert asked["nightly-1"] is RequestStatus.CANCELLED
    assert asked["resync-big"] is RequestStatus.ASKED
    ended = frame.locator("[data-request='nightly-1']")
    ended.get_by_text("cancelled").wait_for()
    assert ended.locator(".bar").count() == 0


@pytest.mark.parametrize(
    ("verb", "status"),
    [("Approve", RequestStatus.ASKED), ("Reject", RequestStatus.CANCELLED)],
)
def test_a_request_that_waits_is_answered_at_the_top(
    tab: Tab, served: Served, lively: SqlStateStore, verb: str, status: RequestStatus
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    question = tab.locator("[data-approval='resync-big']")
    question.get_by_text("Let request resync-big read about 98,720 rows again?").wait_for()
    assert "1 to approve" in tab.locator("[data-fact='Open requests']").inner_text()
    question.get_by_role("button", name=verb).click()
    tab.get_by_role("dialog").get_by_role("button", name=verb).click()
    question.wait_for(state="detached")
    (asked,) = [each for each in lively.requests(BUSY) if each.request_id == "resync-big"]
    assert asked.status is status


def test_a_table_begins_again_and_one_that_is_not_copied_is_added(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    generation = lively.ensure(BUSY).generation
    lively.store_hand_off(BUSY, generation, StreamSplit(at(4), None, ()))
    origin = PlanOrigin("source", "sink", ("shop.*",), ())
    lively.keep_origin(BUSY, generation, origin, [TableId("shop", "returns")])
    frame = framed(tab, served, of(BUSY))
    for table, choice in (("shop.orders", "Begin again"), ("shop.returns", "Add")):
        frame.get_by_role("button", name=f"Change {table}", exact=True).click()
        dialog = frame.get_by_role("dialog")
        dialog.get_by_text(choice, exact=True).click()
        shot(tab, f"change-{choice.lower()}")
        dialog.get_by_role("button", name="Ask for it").click()
        dialog.wait_for(state="detached")
    asked = {(each.kind, str(each.scope)): each for each in lively.table_requests(BUSY)}
    reset = (RequestKind.RESET, "shop.orders")
    assert asked.keys() == {reset, (RequestKind.FOLLOW, "shop.returns")}
    lively.move_request(
        BUSY,
        generation,
        asked[reset].request_id,
        expected=RequestStatus.ASKED,
        to=RequestStatus.FAILED,
        error=StoredError.of(RefusedError("nobody can", "here", "none", "nothing")),
    )
    failed = frame.get_by_role("status").locator("p.bad").filter(has_text="nobody can")
    failed.get_by_role("button", name="Close").click()
    failed.wait_for(state="detached")
    lively.forget(BUSY, generation)


def test_a_resync_is_a_dry_run_first_and_only_then_asked_for(
    tab: Tab, served: Served, page: Page, lively: SqlStateStore
) -> None:
    """Its DAG's tasks are done by hand here; `tests/airflow/test_resync_dag.py` runs them."""
    dag = f"/api/v2/dags/{BUSY}__resync"
    assert page.airflow("PATCH", dag, {"is_paused": False}).status_code == 200
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    tab.get_by_role("button", name="Resync…").click()
    dialog = tab.get_by_role("dialog")
    assert dialog.get_by_role("button", name="Dry run").is_disabled()
    dialog.get_by_role("checkbox", name="shop.stock").check()
    assert dialog.get_by_role("button", name="Read again").is_disabled()
    dialog.get_by_role("button", name="Dry run").click()
    run_id = run_of(page, dag, dry_run=True)
    estimated(f"{BUSY}__resync", run_id)
    dialog.get_by_text("Rows at the source, about: 98,720").wait_for()
    dialog.get_by_text("shop.stock: about 98,720 rows").wait_for()
    assert dialog.get_by_role("button", name="Read again").get_attribute("class") == "primary"
    assert dialog.get_by_role("button", name="Dry run").get_attribute("class") == ""
    link = dialog.get_by_role("link", name="Open the dry run")
    assert link.get_attribute("href") == f"../dags/{BUSY}__resync/runs/{quote(run_id, safe='')}"
    shot(tab, "resync")
    dialog.get_by_text("Some rows of one table").click()
    dialog.get_by_text("To key (id), not included").wait_for()
    shot(tab, "resync-rows")
    dialog.get_by_label("From key").fill("7")
    assert dialog.get_by_role("button", name="Read again").is_disabled()  # not what was estimated
    dialog.get_by_label("From key").fill("")
    dialog.get_by_role("button", name="Dry run").click()
    estimated(f"{BUSY}__resync", run_of(page, dag, dry_run=True, but={run_id}))
    dialog.get_by_role("button", name="Read again").click()
    dialog.wait_for(state="detached")
    begun = run_of(page, dag, dry_run=False)
    notice = tab.get_by_role("status").filter(has_text=f"Run {begun} of {BUSY}__resync begins")
    shot(tab, "notice")
    link = notice.get_by_role("link", name="Open it")
    assert link.get_attribute("href") == f"../dags/{BUSY}__resync/runs/{quote(begun, safe='')}"
    notice.get_by_role("button", name="Close").click()
    notice.wait_for(state="detached")


def run_of(page: Page, dag: str, *, dry_run: bool, but: Collection[str] = ()) -> str:
    """Wait for a run that the page began, with what it was given."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for run in page.airflow("GET", f"{dag}/dagRuns").json()["dag_runs"]:
            if run["conf"]["dry_run"] is dry_run and run["dag_run_id"] not in but:
                assert run["conf"]["tables"] == ["shop.stock"]
                return str(run["dag_run_id"])
        time.sleep(0.2)
    raise AssertionError("no run was begun")


def estimated(dag_id: str, run_id: str) -> None:
    """Do what the run's tasks would: estimate, and end."""
    from airflow.models.dagrun import DagRun  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.models.xcom import XComModel  # noqa: PLC0415, TID251
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251
    from airflow.utils.state import DagRunState  # noqa: PLC0415, TID251

    value = {
        "rows": 98_720,
        "needs_approval": False,
        "text": "shop.stock: about 98,720 rows",
        "load": "one connection",
    }
    with create_session() as session:
        XComModel.set(
            key="return_value",
            value=value,
            dag_id=dag_id,
            task_id="estimate",
            run_id=run_id,
            session=session,
        )
        run = session.query(DagRun).filter_by(dag_id=dag_id, run_id=run_id).one()
        run.state = DagRunState.SUCCESS


def test_what_a_table_is_called_is_text(tab: Tab, served: Served, lively: SqlStateStore) -> None:
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    tables = tab.locator("tr[data-table] .name")
    tables.first.wait_for()
    assert str(TableId("shop", NASTY)) in tables.all_inner_texts()
    assert tab.locator("main img").count() == 0
    assert tab.title() != "1"


def test_who_may_only_look_finds_no_button_to_press(
    browser: Browser, served: Served, store: SqlStateStore
) -> None:
    streaming(store)
    for tab in opened(browser, served, "VIEWER"):
        tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
        tab.get_by_role("button", name="Pause").wait_for()
        # tabs and rows that open only show
        asking = "main button:enabled:not([role=tab]):not(.opener)"
        assert tab.locator(asking).count() == 0


def test_a_server_that_is_gone_is_told_and_what_is_shown_stays(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    streaming(store)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    tab.locator("main[data-state='fresh']").wait_for()
    tab.context.set_offline(True)
    tab.get_by_role("alert").get_by_text("does not answer").wait_for()
    assert tab.get_by_role("heading", name=str(SHOP)).is_visible()
    shot(tab, "outage")
    tab.context.set_offline(False)
    tab.get_by_role("alert").wait_for(state="hidden")


def test_a_task_links_to_the_page_of_its_pipeline(
    tab: Tab, served: Served, lively: SqlStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_cdc_provider.links.page import page_url  # noqa: PLC0415 - loads Airflow

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", served.url)
    for dag_id in (SHOP_DAG, f"{SHOP}__verify"):
        tab.goto(page_url(dag_id))
        frame = tab.frame_locator("iframe[title='CDC']")
        frame.get_by_role("heading", name=str(SHOP)).wait_for()


def test_the_throttle_says_why_nothing_is_read_and_is_changed(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    form = {
        "generation": lively.ensure(BUSY).generation,
        "limits": ThrottleLimits(max_threads_running=50).to_json(),
        "origin": "from the file",
        "closed_by": "Threads_running 61 is above 50",
        "since_us": 43_390_000_000,
        "throttled_s": 3.0,
    }
    lively.keep_note(BUSY, NoteKind.THROTTLED, form)
    frame = framed(tab, served, of(BUSY))
    frame.get_by_text("throttled: Threads_running 61 is above 50, since 12:03:10 UTC").wait_for()
    frame.get_by_role("button", name="Throttle…").click()
    threads = frame.get_by_label("running threads at the source, above which nothing is read")
    assert threads.input_value() == "50"
    threads.fill("")
    frame.get_by_label("rows a second").fill("5000")
    shot(tab, "throttle")
    frame.get_by_role("button", name="Change", exact=True).click()
    frame.locator("#notices").get_by_text("Throttle: 5,000 rows/s (").wait_for()
    wish = throttle_wish(lively, BUSY)
    assert wish is not None
    assert wish.changes == {"rows_per_second": 5000, "max_threads_running": None}
