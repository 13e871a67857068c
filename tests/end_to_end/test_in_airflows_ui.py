"""What a person does in Airflow: resync, approve, watch, backfill, pause; on real servers.

One Airflow with a stream that runs serves all tests of this file. Where rows are compared, both
servers print theirs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pymysql
import pytest
from pymysql.constants import ER

from tests.end_to_end.person import Person
from tests.end_to_end.shop_in_airflow import ShopInAirflow, shop_in_airflow
from tests.servers.browser import started
from tests.servers.packages import PackagesUnavailableError

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator

    from tests.servers.given import SqlServer
    from tests.servers.postgres import SqlDatabase

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shop(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    postgres_server: SqlDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ShopInAirflow]:
    folder = tmp_path_factory.mktemp("in_airflow")
    with shop_in_airflow(mysql_server, mysql_sink, postgres_server, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def calm(shop: ShopInAirflow) -> None:
    """However the test before has ended."""
    shop.calm()


@pytest.fixture
def person(shop: ShopInAirflow) -> Iterator[Person]:
    """An administrator who is logged in; an error of a script fails the test."""
    try:
        with started() as browser:
            context = browser.new_context(
                viewport={"width": 1280, "height": 1000}, locale="en-GB", timezone_id="UTC"
            )
            wrong: list[str] = []
            tab = context.new_page()
            tab.on("pageerror", lambda error: wrong.append(str(error)))
            somebody = Person(tab, shop.airflow)
            try:
                somebody.log_in()
                yield somebody
            finally:
                somebody.seen("8-last")
            assert wrong == []
    except PackagesUnavailableError as error:
        pytest.skip(f"no chromium: {error}")


@pytest.mark.sample(2, of="in Airflow itself")
def test_a_person_has_rows_read_again_and_pauses_and_never_leaves_the_browser(
    shop: ShopInAirflow, person: Person
) -> None:
    shop.copy.drift()
    shop.make_wrong({2, 3})
    assert not shop.copy.is_equal
    dry_run(shop, person)
    approved_resync(shop, person)
    backfill(shop, person)
    pause_and_resume(shop, person)
    assert shop.differences() == []


def dry_run(shop: ShopInAirflow, person: Person) -> None:
    """Fill the form as it opens: the first run only says what it would cost."""
    form = person.trigger(shop.dag_id("resync"))
    person.choose(form, shop.table("orders"), shop.table("customers"))
    person.seen("1-form")
    told = person.press(form, "Trigger", path="/dagRuns")
    assert told["conf"]["dry_run"] is True
    person.await_task("resync", "Skipped")
    person.task("estimate").get_by_role("link", name="estimate").click()
    person.tab.get_by_text("about 3,000 rows at the source").first.wait_for()
    person.seen("2-estimate")
    assert not shop.copy.is_equal
    person.tab.go_back()


def approved_resync(shop: ShopInAirflow, person: Person) -> None:
    """Have the same rows read again, above the limit: Airflow asks, and the person approves."""
    form = person.trigger_again()
    form.get_by_role("checkbox", name="Dry run").press("Space")
    limit = form.get_by_role("spinbutton")
    limit.fill("1000")
    limit.press("Tab")
    told = person.press(form, "Trigger", path="/dagRuns")
    assert (told["conf"]["dry_run"], told["conf"]["ask_above_rows"]) == (False, 1000)
    required = person.tab.get_by_role("button", name="Required Action")
    person.await_seen(required, "that Airflow asks")
    required.click()
    question = person.tab.get_by_role("dialog")
    question.get_by_text(f"Read rows of {shop.copy.shop.name} again?").wait_for()
    row = question.get_by_role("listitem").filter(has_text=shop.table("orders"))
    row.get_by_text("about 3,000 rows at the source").wait_for()
    person.seen("3-approval")
    # a person takes longer to read than the scheduler to hear that the process which asked ended
    run_id = told["dag_run_id"]
    shop.wait(lambda: shop.airflow.has_left_worker(run_id, "approve"), "the end of asking")
    person.approve(question)
    page = person.cdc_page(shop.copy.shop.name)
    person.tab_of(page, "Requests")
    asked = page.locator("article.request").filter(has_text="resync of")
    person.await_seen(asked.get_by_text("done", exact=True), "the end of the resync")
    assert "asked by admin" in asked.inner_text()
    assert shop.copy.is_equal
    watch(shop, person, page)


def watch(shop: ShopInAirflow, person: Person, page: FrameLocator) -> None:
    """See a change of the source go by, the table consistent and the lag gone."""
    shop.copy.shop.change(1)
    changes = page.locator("[data-fact='Changes/s']")
    changes.get_by_text(re.compile("^[1-9].* in all$")).wait_for()
    page.locator("[data-fact='Lag'] .number").get_by_text("0 s", exact=True).wait_for()
    person.tab_of(page, "Tables")
    orders = page.locator(f"[data-table='{shop.table('orders')}']")
    orders.get_by_text("consistent", exact=True).wait_for()
    orders.get_by_role("button", name=shop.table("orders"), exact=True).click()
    page.get_by_text("8/8 splits").wait_for()
    person.tab_of(page, "Stream")
    page.get_by_text("the same: nothing waits").wait_for()
    page.locator(".u-wrap canvas").first.wait_for()
    person.seen("4-page")


def backfill(shop: ShopInAirflow, person: Person) -> None:
    """Have two days read again by the dialog's other form."""
    form = person.trigger(shop.dag_id("backfill"))
    form.get_by_role("radio", name="Backfill").press("Space")
    person.pick_date(form, "From", shop.day(2))
    person.pick_date(form, "To", shop.day(3))
    form.get_by_text("2 runs will be triggered").wait_for()
    person.seen("5-backfill")
    told = person.press(form, "Run Backfill", path="/backfills")
    assert told["dag_run_conf"] in (None, {})
    shop.wait(lambda: shop.wrong_days() == [], "the backfill's rows")


def pause_and_resume(shop: ShopInAirflow, person: Person) -> None:
    """Pause by our page: nothing is connected any more; then let it go on."""
    page = person.cdc_page(shop.copy.shop.name)
    person.tab_of(page, "Requests")
    days = page.locator("article.request").filter(has_text=f"from {shop.day(2)} 00:00:00")
    person.await_seen(days.get_by_text("done", exact=True), "the end of the backfill")
    assert shop.connections() > 0
    person.answer(page, "Pause", lambda: person.seen("6-pause"))
    page.get_by_role("heading", name="paused").wait_for()
    shop.wait(lambda: shop.connections() == 0, "the end of all connections to the source")
    person.seen("7-paused")
    shop.copy.shop.change(2)
    person.answer(page, "Resume", lambda: None)
    page = person.cdc_page(shop.copy.shop.name)
    person.await_seen(page.get_by_role("heading", name="streaming"), "the stream")
    shop.wait(lambda: shop.copy.is_equal, "the change that was made meanwhile")


@pytest.mark.sample(2, of="in Airflow itself")
def test_tables_begin_again_come_and_go_while_the_stream_runs(
    shop: ShopInAirflow, person: Person
) -> None:
    shop.make_wrong({1})
    page = person.cdc_page(shop.copy.shop.name)
    page.get_by_role("button", name=f"Change {shop.table('c_days')}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Begin again", exact=True).click()
    dialog.get_by_role("button", name="Ask for it").click()
    shop.wait(lambda: shop.wrong_days() == [], "the rows of the table that begins again")
    shop.wait(shop.is_streaming, "the stream")
    path, text = shop.copy.path, shop.copy.path.read_text(encoding="utf-8")
    path.write_text(text.replace("tables: [", f'tables: ["{shop.table("coupons")}", ', 1))
    at_source, at_sink = shop.copy.shop.source_database, shop.copy.shop.sink_database
    for sql in ("CREATE TABLE coupons (id INT PRIMARY KEY)", "INSERT INTO coupons VALUES (1), (2)"):
        shop.copy.shop.source.execute(sql, database=at_source)
    shop.airflow.trigger(shop.dag_id("tables"), {"action": "add"})

    def found() -> list[tuple[object, ...]]:
        try:
            query = "SELECT id FROM coupons ORDER BY id"
            return list(shop.copy.shop.sink.execute(query, database=at_sink))
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise
            return []

    shop.wait(lambda: found() == [(1,), (2,)], "the rows of the table that was added")
    shop.wait(shop.is_streaming, "the stream")
    path.write_text(text)
    gone = {"action": "remove", "tables": [shop.table("coupons")], "drop_target": True}
    shop.airflow.trigger(shop.dag_id("tables"), gone)
    shop.wait(lambda: found() == [], "the end of the table that was removed")
    shop.wait(shop.is_streaming, "the stream")
    assert shop.differences() == []


@pytest.mark.sample(2, of="in Airflow itself")
def test_a_backfill_from_the_command_line_reads_its_days_backwards_and_two_at_once(
    shop: ShopInAirflow,
) -> None:
    shop.make_wrong({0, 4, 5, 6, 7})
    dag_id = shop.dag_id("backfill")
    shop.airflow.unpause(dag_id)
    days = f"--from-date={shop.day(4)}", f"--to-date={shop.day(6)}"
    how = "--run-backwards", "--max-active-runs", "2"
    shop.airflow.command("backfill", "create", "--dag-id", dag_id, *days, *how)
    shop.wait(lambda: shop.wrong_days() == [0, 7], "the backfill's rows")
    shop.wait(lambda: not shop.airflow.backfills_that_run(dag_id), "the backfill's end")
    path = f"/api/v2/dags/{dag_id}/dagRuns?run_type=backfill&run_after_gte={shop.day(5)}T00:00:00Z"
    runs = shop.airflow.get(path)["dag_runs"]
    assert [run["state"] for run in runs] == ["success"] * 3
    shop.make_wrong(())


@pytest.mark.sample(2, of="in Airflow itself")
def test_a_table_that_comes_at_the_source_is_copied_long_before_the_next_look(
    shop: ShopInAirflow,
) -> None:
    copy = shop.copy.shop
    began = time.monotonic()
    for sql in (
        "CREATE TABLE later_one (id INT PRIMARY KEY)",
        "INSERT INTO later_one VALUES (1), (2)",
    ):
        copy.source.execute(sql, database=copy.source_database)

    def has_come() -> bool:
        sql = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s"
        if not copy.sink.execute(f"{sql} AND table_name = 'later_one'", (copy.sink_database,)):
            return False
        rows = copy.sink.execute("SELECT COUNT(*) FROM later_one", database=copy.sink_database)
        return bool(rows[0][0] == 2)

    shop.wait(has_come, "the table that came")
    took_s = time.monotonic() - began
    print(f"a new table was copied after {took_s:.1f} s")
    assert took_s < 120  # the next look at the source itself is 300 s away
