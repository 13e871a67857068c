"""What a person finds at a glance, and where each link, tab and button of the page leads.

Screenshots are left in the folder that `CDC_SCREENSHOTS` names, for people to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.store import SqlStateStore
from tests.behaviours.state_behaviours import at, plan_of, report_of, splits_of
from tests.servers.browser import shot
from tests.web.serving import BROKEN, BUSY, HOURLY, QUIET, Served, framed, of, opened, themed
from tests.web.shop import (
    SHOP,
    SHOP_DAG,
    Page,
    answer_of,
    asking_run,
    end_run,
    job_log_of,
    streaming,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.timeout(300)
RESYNC = f"{SHOP}__resync"
NOTHING = "\N{EN DASH}"


@pytest.fixture
def hourly(lively: SqlStateStore, page: Page) -> Iterator[SqlStateStore]:
    """Beside the lively ones, a bounded pipeline between its runs."""
    generation = lively.take_over(HOURLY, "the test").generation
    lively.forget(HOURLY, generation)
    lively.want(HOURLY, Wanted.RUN)
    generation = streaming(lively, HOURLY, lag_us=0)
    lively.move(HOURLY, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    lively.release_lease(HOURLY, generation)
    dag = f"/api/v2/dags/{HOURLY}__sync"
    page.airflow("PATCH", dag, {"is_paused": False})
    run_id = page.airflow("POST", f"{dag}/dagRuns", {"logical_date": None}).json()["dag_run_id"]
    page.airflow("PATCH", f"{dag}/dagRuns/{run_id}", {"state": "success"})
    yield lively
    end_run(page, f"{HOURLY}__sync", run_id)


# --- the list ------------------------------------------------------------------------------------


ROWS = "tr[data-pipeline]"
MINE = {str(name) for name in (BROKEN, BUSY, HOURLY, QUIET, SHOP)}


def names(tab: Tab) -> list[str]:
    """Return the pipelines that are listed; those of other tests may be there, too."""
    found = tab.locator(ROWS).evaluate_all("(rows) => rows.map((row) => row.dataset.pipeline)")
    return [name for name in found if name in MINE]


@pytest.mark.parametrize("width", [1280, 800, 420])
def test_the_list_has_problems_first_then_names_and_keeps_its_columns(
    tab: Tab, served: Served, hourly: SqlStateStore, width: int
) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{served.url}/cdc/page")
    tab.locator(ROWS).first.wait_for()
    assert names(tab)[:3] == [str(QUIET), str(BROKEN), str(BUSY)]
    well = names(tab)[3:]
    assert well == sorted(well)
    row = tab.locator(f"tr[data-pipeline='{HOURLY}']")
    for text in ("caught up", "web_source → web_sink", "bounded", "of 1 h"):
        assert text in row.inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    heads = "Array.from(document.querySelectorAll('.pipelines th'), (th) => th.offsetWidth)"
    before = tab.evaluate(heads)
    shot(tab, f"control-list-{width}")
    hourly.tell(HOURLY, "x" * 200)
    hourly.move(
        HOURLY,
        hourly.ensure(HOURLY).generation,
        expected=Phase.STOPPED,
        to=Phase.FAILED,
        error=StoredError.of(RefusedError("it broke " * 40)),
    )
    tab.locator(f"tr[data-of='{HOURLY}']").get_by_text("it broke").wait_for()
    assert tab.evaluate(heads) == before


def test_the_list_is_filtered_by_state_and_by_text(
    tab: Tab, served: Served, hourly: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    tab.locator(ROWS).first.wait_for()
    every = names(tab)
    tab.get_by_label("State").select_option("caught up")
    assert names(tab) == [str(HOURLY)]
    tab.get_by_label("State").select_option("with problems")
    assert set(names(tab)) == {str(QUIET), str(BROKEN), str(BUSY)}
    tab.get_by_label("Find a pipeline").fill("warehouse")
    assert names(tab) == [str(BUSY)]
    tab.get_by_label("Find a pipeline").fill("no such")
    tab.get_by_text("No pipeline fits.").wait_for()
    tab.get_by_label("Find a pipeline").fill("")
    tab.get_by_label("State").select_option("all states")
    assert names(tab) == every


def test_a_file_that_is_wrong_says_its_line_on_the_list_and_on_its_page(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    why = tab.locator(f"tr[data-of='{BROKEN}']")
    why.get_by_text("split_row").wait_for()
    assert f"{BROKEN}.yaml:line 7" in why.inner_text()
    assert "broken file" in tab.locator(f"tr[data-pipeline='{BROKEN}']").inner_text()
    tab.get_by_role("link", name=str(BROKEN)).click()
    tab.get_by_role("heading", name=f"{BROKEN} broken file").wait_for()
    assert "split_row" in tab.locator(".problem").inner_text()
    assert tab.locator("#outage").is_hidden()
    assert tab.get_by_role("link", name=f"{BROKEN}__sync").is_visible()
    shot(tab, "control-broken")


# --- links ---------------------------------------------------------------------------------------


def test_links_lead_out_of_airflows_frame(
    tab: Tab, served: Served, store: SqlStateStore, page: Page
) -> None:
    generation = streaming(store)
    # its UI is where the test's own server is, so that the new tab finds something
    spark = f"{served.url}/api/v2/version"
    store.tell(SHOP, f"spark application app-1 under generation {generation}, ui {spark}")
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    run_id = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    task_running(run_id, "stream")
    try:
        run = f"dags/{SHOP_DAG}/runs/{quote(run_id, safe='')}"
        for name, path in (
            (SHOP_DAG, f"dags/{SHOP_DAG}"),
            (run_id, run),
            ("the task stream", f"{run}/tasks/stream"),
        ):
            frame = framed(tab, served, of(SHOP))
            shot(tab, "control-links")
            frame.get_by_role("link", name=name, exact=True).click()
            tab.wait_for_url(re.compile(f"{re.escape(served.url)}/{path}(\\?.*)?$"))
        frame = framed(tab, served, of(SHOP))
        with tab.expect_popup() as other:
            frame.get_by_role("link", name="Spark UI").click()
        other.value.wait_for_url(spark)
        job_log_of(store, generation, "read three splits\n")
        frame = framed(tab, served, of(SHOP))
        with tab.expect_popup() as other:
            frame.get_by_role("link", name="job log").click()
        other.value.get_by_text("read three splits").wait_for()
        assert frame.get_by_role("heading", name=str(SHOP)).is_visible()
    finally:
        end_run(page, SHOP_DAG, run_id)


def test_airflows_navigation_leads_back_to_the_list(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/dags")
    frame = tab.frame_locator("iframe[title='CDC']")
    for _ in range(2):
        tab.get_by_role("link", name="CDC").first.click()
        frame.get_by_role("link", name=str(BUSY), exact=True).click()
        frame.get_by_role("tab", name="Requests 3 open").click()
        tab.wait_for_url("**/cdc/page?**")
        tab.wait_for_timeout(500)  # as long as a hand takes from there to the navigation
    tab.go_back()
    frame.get_by_role("heading", name="CDC pipelines").wait_for()


def task_running(run_id: str, task_id: str) -> None:
    """Say of a task that it runs."""
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415, TID251 - its tables
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    with create_session() as session:
        (task,) = session.query(TaskInstance).filter_by(
            dag_id=SHOP_DAG, run_id=run_id, task_id=task_id
        )
        task.state = "running"


# --- approvals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_a_task_that_waits_for_a_person_is_answered_on_the_page(
    tab: Tab, served: Served, store: SqlStateStore, page: Page, option: str
) -> None:
    streaming(store)
    run_id = asking_run(page, RESYNC)
    try:
        frame = framed(tab, served, of(SHOP))
        question = frame.locator(".approval")
        question.get_by_text("Read rows of web_shop again?").wait_for()
        assert question.get_by_role("listitem").inner_text().startswith("shop.orders: about")
        assert "1 to approve" in frame.locator("[data-fact='Open requests']").inner_text()
        link = question.get_by_role("link", name="Open in Airflow").get_attribute("href")
        assert f"/runs/{quote(run_id, safe='')}/tasks/approve/required_actions" in str(link)
        shot(tab, "control-approval")
        question.get_by_role("button", name=option).click()
        frame.get_by_role("dialog").get_by_role("button", name=option).click()
        question.wait_for(state="detached")
        assert answer_of(RESYNC, run_id) == [option]
    finally:
        end_run(page, RESYNC, run_id)


def test_who_may_not_answer_sees_what_waits_and_the_way_to_airflow(
    browser: Browser, served: Served, store: SqlStateStore, page: Page
) -> None:
    streaming(store)
    run_id = asking_run(page, RESYNC)
    try:
        for tab in opened(browser, served, "VIEWER"):
            tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
            question = tab.locator(".approval")
            question.get_by_text("Airflow does not let you answer it.").wait_for()
            assert question.get_by_role("button", name="Approve").is_disabled()
            assert question.get_by_role("link", name="Open in Airflow").is_visible()
            tab.goto(f"{served.url}/cdc/page")
            row = tab.locator(f"tr[data-pipeline='{SHOP}']")
            row.get_by_text("1 to approve").wait_for()
    finally:
        end_run(page, RESYNC, run_id)


# --- one pipeline --------------------------------------------------------------------------------


def test_a_snapshot_has_a_bar_of_the_whole_with_its_speed_and_the_time_left(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    whole = tab.locator("section.whole")
    whole.get_by_role("img", name="12/30").wait_for()
    text = whole.inner_text()
    assert "rows/s" in text
    row = tab.locator("tr[data-table='shop.orders']")
    assert row.get_by_role("img", name=re.compile("being read")).is_visible()
    shot(tab, "control-snapshot")


def test_tabs_are_remembered_in_the_address(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    tab.get_by_role("tab", name="Tables 6").wait_for()
    for name in ("Events", "Stream", "Preflight 1", "Requests 3 open"):
        tab.get_by_role("tab", name=name).click()
        assert tab.url.endswith(f"#{name.split()[0].lower()}")
        tab.reload()
        tab.get_by_role("tab", name=name, selected=True).wait_for()
        assert tab.get_by_role("tabpanel").count() == 1
    tab.get_by_role("tab", name="Requests 3 open").press("ArrowRight")
    tab.get_by_role("tab", name="Stream", selected=True).wait_for()


def test_a_pipeline_that_never_ran_says_that_there_is_nothing_yet(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    tab.get_by_role("heading", name="never run").wait_for()
    empty = tab.locator("figure:visible").get_by_text("No data yet")
    empty.nth(1).wait_for()
    assert empty.count() == 2
    for name, text in (
        ("Requests", "No requests."),
        ("Stream", "There is no stream yet."),
        ("Preflight", "Preflight has not run yet."),
    ):
        tab.get_by_role("tab", name=name).click()
        tab.get_by_text(text).wait_for()
    assert tab.get_by_role("button", name="Run now").is_enabled()
    shot(tab, "control-new")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_two_hundred_tables_are_rows_that_scroll_and_are_found_by_name(
    tab: Tab, served: Served, store: SqlStateStore, theme: str
) -> None:
    many_tables(store)
    themed(tab, served, theme)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    rows = tab.locator("tr[data-table]")
    rows.first.wait_for()
    assert rows.count() == 100
    assert rows.first.get_attribute("data-table") == "shop.table_150"  # it is stopped
    assert rows.nth(1).get_attribute("data-table") == "shop.table_007"  # it differs
    assert "differs" in rows.nth(1).inner_text()
    assert "equal" in rows.nth(2).inner_text()
    heights = "(rows) => rows.slice(0, 5).map((each) => each.offsetHeight)"
    assert rows.evaluate_all(heights) == [28] * 5
    assert tab.evaluate("document.documentElement.scrollHeight") < 2000
    tab.get_by_text("And 100 more: find them by name.").wait_for()
    shot(tab, f"control-200-{theme}")
    tab.get_by_label("Find a table").fill("table_199")
    rows.first.get_by_text("table_199").wait_for()
    assert rows.count() == 1
    rows.first.get_by_role("button", name="shop.table_199", exact=True).click()
    tab.get_by_text("Copied to dr_shop.table_199, key id").wait_for()
    assert tab.get_by_role("img", name="at the stream").is_visible()
    shot(tab, f"control-opened-{theme}")
    rows.first.get_by_role("button", name="shop.table_199", exact=True).click()
    tab.locator("tr.more").wait_for(state="detached")


def test_a_tables_row_shows_its_changes_of_today_and_says_nothing_of_what_is_not_counted(
    tab: Tab, served: Served
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    shown = """async (tables) => {
        const { tablesPart } = await import(new URL("static/tables.js", document.baseURI));
        const part = tablesPart("", () => null);
        part.show({ table_list: tables, not_copied: [], lag_s: 2 });
        const rows = part.element.querySelectorAll("tr[data-table]");
        return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    }"""
    common = {"phase": "consistent", "sink": "s", "requests": [], "splits": 1, "rows": 1234}
    counted = {"inserts": 1200, "updates": 0, "deletes": 7, "changed_us": None}
    first = {**common, "source": "shop.a", **counted}
    second = {**common, "source": "shop.b"}
    one, other = tab.evaluate(shown, [first, second])
    assert one[:8] == ["shop.a", "consistent", "1,234", "1,200", "0", "7", NOTHING, "2.0 s"]
    assert other[:8] == [
        "shop.b",
        "consistent",
        "1,234",
        NOTHING,
        NOTHING,
        NOTHING,
        NOTHING,
        "2.0 s",
    ]


def test_lag_changes_and_rows_have_a_plot_each(
    tab: Tab, served: Served, lively: SqlStateStore
) -> None:
    tab.goto(f"{served.url}/cdc/page{of(BUSY)}")
    plots = tab.locator("figure:visible")
    plots.locator("canvas").nth(2).wait_for()
    captions = plots.locator("figcaption").all_inner_texts()
    assert [each.split(" last day")[0] for each in captions] == ["Lag", "Changes/s", "Rows/s read"]
    assert tab.locator(".u-legend").count() == 0
    plots.first.locator(".u-over").hover()
    plots.first.locator(".seen").get_by_text(re.compile(r"\d\d:\d\d:\d\d")).wait_for()


def many_tables(store: SqlStateStore) -> None:
    """Have two hundred tables that were read and compared; one stopped, one differs."""
    tables = [TableId("shop", f"table_{number:03}") for number in range(200)]
    generation = store.take_over(SHOP, "the test").generation
    store.start_plan(SHOP, generation, "p", [plan_of(table) for table in tables])
    for table in tables:
        (split,) = splits_of(1, table)
        store.add_splits(SHOP, generation, [split])
        store.finish_planning(SHOP, generation, table)
        report = report_of(split, rows=1234)
        store.mark_split(SHOP, generation, split, SplitStatus.FINISHED, report=report)
        store.mark_table(SHOP, generation, table, TablePhase.CONSISTENT)
    error = StoredError.of(RefusedError("the sink refused a row", remedy="remove it"))
    store.mark_table(SHOP, generation, tables[150], TablePhase.FAILED, error)
    for to in (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING):
        store.move(SHOP, generation, expected=store.ensure(SHOP).phase, to=to)
    now = store.now_us()
    store.beat(SHOP, generation, StreamState(at(4), lag_us=40_000, heartbeat_us=now))
    found = {
        str(table): {"at_us": now, "equal": number != 7, "rows": 1240 + number}
        for number, table in enumerate(tables)
    }
    store.keep_note(SHOP, NoteKind.VERIFIED, {"tables": found})


# --- dialogs -------------------------------------------------------------------------------------


def test_restart_is_asked_once_and_noted_for_who_is_at_work(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    streaming(store)
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    tab.get_by_role("button", name="Restart").click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_role("button", name="Restart").click()
    dialog.wait_for(state="detached")
    assert store.ensure(SHOP).wanted is Wanted.RESTART
    tab.get_by_role("heading", name="restarting").wait_for()


def test_tables_of_a_resync_are_found_by_name_and_stay_ticked(
    tab: Tab, served: Served, store: SqlStateStore
) -> None:
    many_tables(store)
    tab.set_viewport_size({"width": 420, "height": 800})
    tab.goto(f"{served.url}/cdc/page{of(SHOP)}")
    tab.get_by_role("button", name="Resync…").click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("0 of 200 tables").wait_for()
    for number in ("007", "123"):
        dialog.get_by_label("Find a table").fill(number)
        dialog.get_by_role("checkbox", name=f"shop.table_{number}").check()
    dialog.get_by_text("2 of 200 tables").wait_for()
    assert dialog.get_by_role("checkbox").count() == 2  # what is ticked is always seen
    dialog.get_by_text("Some rows of one table").click()
    dialog.get_by_text("Choose one table for this.").wait_for()
    dialog.get_by_role("checkbox", name="shop.table_007").uncheck()
    dialog.get_by_text("From key (id), included").wait_for()
    shot(tab, "control-resync-420")
    assert dialog.evaluate("(it) => it.scrollWidth <= it.clientWidth")
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="detached")
