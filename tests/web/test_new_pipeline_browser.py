"""A person fills the form of a new pipeline in a browser, and gets a file that `check` accepts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.cli.main import ExitCode, main
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from tests.servers.browser import shot
from tests.servers.given import SqlServer
from tests.web.new_pipelines import Choices, hung_server
from tests.web.serving import BUSY, Served, framed, opened, themed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Locator, Route
    from playwright.sync_api import Page as Tab

pytestmark = pytest.mark.timeout(300)


def form_of(page: Tab | FrameLocator) -> Locator:
    """Open the form."""
    page.locator("button:enabled", has_text="New pipeline…").click()
    dialog = page.get_by_role("dialog", name="New pipeline")
    dialog.wait_for()
    return dialog


def looked_at(dialog: Locator, choices: Choices, source: str = "new_source") -> None:
    """Name a source and have its tables listed."""
    dialog.get_by_label("Of the pipeline and its file").fill("browser_shop")
    dialog.get_by_label("Airflow connection").first.fill(source)
    dialog.get_by_label("Airflow connection").last.fill("new_sink")
    dialog.get_by_role("button", name="Look at its tables").click()
    dialog.get_by_label("Find a table").fill(choices.database)


def filled(dialog: Locator, choices: Choices) -> None:
    """Choose all tables of the database, and where they go."""
    looked_at(dialog, choices)
    dialog.get_by_label(f"{choices.database}.*").check()
    dialog.get_by_label(f"Tables of {choices.database} go").fill(choices.target)
    dialog.get_by_label("Mode").select_option("bounded")


def shown(dialog: Locator, name: str) -> Locator:
    return dialog.locator(f"[data-result='{name}']")


def test_the_form_is_filled_and_gives_a_file_that_check_accepts(
    tab: Tab,
    served: Served,
    choices: Choices,
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    frame = framed(tab, served)
    dialog = form_of(frame)
    show = dialog.get_by_role("button", name="Show the file")
    assert show.is_disabled()
    looked_at(dialog, choices)
    keyless = dialog.locator("label", has_text=f"{choices.database}.keyless")
    assert "left out: no primary key" in keyless.inner_text()
    assert keyless.get_by_role("checkbox").is_disabled()
    shot(tab, "new-tables")
    assert show.is_disabled()
    filled(dialog, choices)
    show.click()
    shown(dialog, "Check").get_by_text("Nothing speaks against it").wait_for()
    grants = shown(dialog, "Grants")
    grants.get_by_text(f"GRANT SELECT ON `{choices.database}`.*").wait_for()
    grants.get_by_text("DROP ON `airflow_cdc`.*").wait_for()
    assert "cdc_dags(" in shown(dialog, "The DAGs").inner_text()
    shot(tab, "new-result")
    text = shown(dialog, "The file").locator("pre").inner_text()
    shown(dialog, "The file").get_by_role("button", name="Copy").click()
    shown(dialog, "The file").get_by_text("Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == text
    path = tmp_path / "browser_shop.yaml"
    path.write_text(text, encoding="utf-8")
    model = load_pipeline(path).model
    assert model.source.tables == (f"{choices.database}.*",)
    assert model.source.exclude == (f"{choices.database}.keyless",)
    assert model.sink.route == {f"{choices.database}.*": f"{choices.target}.*"}
    assert model.stream.mode == "bounded"
    monkeypatch.setenv("AIRFLOW_CONN_NEW_SOURCE", mysql_server.dsn())
    monkeypatch.setenv("AIRFLOW_CONN_NEW_SINK", mysql_sink.dsn())
    assert main(["check", str(path)]) is ExitCode.FINE
    # another answer makes it another file: the one that is shown goes
    dialog.get_by_label("Mode").select_option("continuous")
    shown(dialog, "The file").wait_for(state="detached")


def test_single_tables_patterns_and_routes_are_written_as_they_were_chosen(
    tab: Tab, served: Served, choices: Choices, tmp_path: Path
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    looked_at(dialog, choices)
    dialog.get_by_label(f"{choices.database}.orders").check()
    dialog.get_by_label("And what fits these patterns").fill(
        f"{choices.database}.cust*, /{choices.database}|x,y z/.`orders`"
    )
    dialog.get_by_text("Routes of single tables").click()
    routes = dialog.get_by_label("One a line")
    routes.fill("nonsense")
    dialog.get_by_role("button", name="Show the file").click()
    dialog.get_by_text("“nonsense” is no route").wait_for()
    routes.fill(f"{choices.database}.`orders`={choices.target}.`renamed = so`")
    dialog.get_by_role("button", name="Show the file").click()
    path = tmp_path / "browser_shop.yaml"
    path.write_text(shown(dialog, "The file").locator("pre").inner_text(), encoding="utf-8")
    model = load_pipeline(path).model
    assert model.source.tables == (
        f"{choices.database}.orders",
        f"{choices.database}.cust*",
        f"/{choices.database}|x,y z/.orders",
    )
    assert model.sink.route == {f"{choices.database}.`orders`": f"{choices.target}.`renamed = so`"}


def test_another_look_at_the_same_source_forgets_nothing_that_was_chosen(
    tab: Tab, served: Served, choices: Choices, mysql_server: SqlServer
) -> None:
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    looked_at(dialog, choices)
    dialog.get_by_label(f"{choices.database}.orders").check()
    dialog.get_by_label(f"{choices.database}.customers").check()
    dialog.get_by_label("And what fits these patterns").fill(f"{choices.database}.add*")
    mysql_server.execute("DROP TABLE customers", database=choices.database)
    mysql_server.execute("CREATE TABLE added (id INT PRIMARY KEY)", database=choices.database)
    dialog.get_by_role("button", name="Look at its tables").click()
    dialog.get_by_label(f"{choices.database}.added").wait_for()
    assert dialog.get_by_label(f"{choices.database}.orders").is_checked()
    assert dialog.get_by_label("Find a table").input_value() == choices.database
    dialog.get_by_role("button", name="Show the file").click()
    text = shown(dialog, "The file").locator("pre").inner_text()
    assert f"{choices.database}.orders" in text
    assert f"{choices.database}.add*" in text
    assert f"{choices.database}.customers" not in text


def test_what_is_chosen_while_a_second_look_is_on_its_way_stays_chosen(
    tab: Tab, served: Served, choices: Choices
) -> None:
    looks: list[Route] = []

    def held_back(route: Route) -> None:
        looks.append(route)
        if len(looks) == 1:
            route.continue_()

    tab.route("**/api/new/tables", held_back)
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    looked_at(dialog, choices)
    ticked = dialog.get_by_label(f"{choices.database}.*")
    ticked.wait_for()
    dialog.get_by_role("button", name="Look at its tables").click()
    ticked.check()
    looks[1].continue_()
    dialog.get_by_text("Asking the source…").wait_for(state="detached")
    assert ticked.is_checked()
    assert dialog.get_by_role("button", name="Show the file").is_enabled()


def test_without_a_clipboard_the_file_is_copied_as_well(
    tab: Tab, served: Served, choices: Choices
) -> None:
    """By plain HTTP browsers lend no clipboard to a page."""
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    other = tab.context.new_page()
    other.goto(f"{served.url}/cdc/page")
    tab.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tab.bring_to_front()
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    filled(dialog, choices)
    dialog.get_by_role("button", name="Show the file").click()
    file = shown(dialog, "The file")
    text = file.locator("pre").inner_text()
    file.get_by_role("button", name="Copy").click()
    file.get_by_text("Copied").wait_for()
    other.bring_to_front()
    assert other.evaluate("navigator.clipboard.readText()").strip() == text.strip()


def test_a_dsn_in_the_place_of_a_connections_id_is_not_sent(tab: Tab, served: Served) -> None:
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(f"{request.url} {request.post_data or ''}"))
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    field = dialog.get_by_label("Airflow connection").first
    field.fill("mysql://u:Xq7vKz@host/")
    dialog.get_by_role("button", name="Look at its tables").click()
    assert field.evaluate("field => field.validity.patternMismatch")
    field.fill("no_such/connection")
    dialog.get_by_role("button", name="Look at its tables").click()
    dialog.get_by_text("there is no connection").wait_for()
    assert not any("Xq7vKz" in each for each in sent)


def test_what_speaks_against_it_is_shown_with_its_fix(
    tab: Tab, served: Served, choices: Choices, mysql_sink: SqlServer
) -> None:
    mysql_sink.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database=choices.target)
    mysql_sink.execute("INSERT INTO orders VALUES (7)", database=choices.target)
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    filled(dialog, choices)
    dialog.get_by_role("button", name="Show the file").click()
    check = shown(dialog, "Check")
    check.get_by_text("against it, with the way to mend it").wait_for()
    check.locator("summary", has_text=f"{choices.target}.orders").first.click()
    check.get_by_text("Fix").first.wait_for()
    shot(tab, "new-refused")


def test_a_server_that_is_away_is_told_in_the_form(
    tab: Tab, served: Served, choices: Choices
) -> None:
    choices.add("new_down", "mysql://u:p@127.0.0.1:1/", "cdc_mysql")
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    dialog.get_by_label("Of the pipeline and its file").fill(str(BUSY))
    dialog.get_by_text(f"There is a pipeline {BUSY} already.").wait_for()
    dialog.get_by_label("Airflow connection").first.fill("new_down")
    dialog.get_by_role("button", name="Look at its tables").click()
    dialog.get_by_text("What to do").wait_for()
    assert "127.0.0.1:1" in dialog.inner_text()
    shot(tab, "new-away")


def test_a_name_there_is_already_is_told_though_the_list_is_late(tab: Tab, served: Served) -> None:
    late: list[Route] = []

    def held_back(route: Route) -> None:
        if late:
            route.continue_()
        late.append(route)

    tab.route("**/api/pipelines", held_back)
    tab.goto(f"{served.url}/cdc/page")
    dialog = form_of(tab)
    dialog.get_by_label("Of the pipeline and its file").fill(str(BUSY))
    dialog.get_by_text(f"There is a pipeline {BUSY} already.").wait_for(timeout=5000)
    late[0].continue_()


def test_the_page_is_served_while_a_server_hangs(
    tab: Tab, served: Served, choices: Choices
) -> None:
    with hung_server() as port:
        choices.add("new_hung", f"mysql://u:p@127.0.0.1:{port}/", "cdc_mysql")
        tab.goto(f"{served.url}/cdc/page")
        dialog = form_of(tab)
        dialog.get_by_label("Airflow connection").first.fill("new_hung")
        dialog.get_by_role("button", name="Look at its tables").click()
        dialog.get_by_text("Asking the source").wait_for()
        other = tab.context.new_page()
        other.goto(f"{served.url}/cdc/page")
        other.locator("main[data-state='fresh']").wait_for()
        other.close()
    # its connections went with it
    dialog.get_by_text("What to do").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_narrow_screen_the_form_is_no_wider_than_the_screen(
    tab: Tab, served: Served, choices: Choices, theme: str
) -> None:
    themed(tab, served, theme)
    for width in (400, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto(f"{served.url}/cdc/page")
        dialog = form_of(tab)
        shot(tab, f"new-{width}-empty-{theme}")
        filled(dialog, choices)
        shot(tab, f"new-{width}-filled-{theme}")
        dialog.get_by_role("button", name="Show the file").click()
        shown(dialog, "Check").get_by_text("Nothing speaks against it").wait_for()
        shown(dialog, "Grants").get_by_text("DROP ON `airflow_cdc`.*").wait_for()
        shot(tab, f"new-{width}-result-{theme}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        wider = "dialog => dialog.scrollWidth - dialog.clientWidth"
        assert dialog.evaluate(wider) <= 0


@pytest.mark.parametrize("role", ["VIEWER", "USER"])
def test_who_may_not_add_connections_finds_the_button_off_with_the_reason(
    browser: Browser, served: Served, role: str
) -> None:
    for tab in opened(browser, served, role):
        tab.goto(f"{served.url}/cdc/page")
        button = tab.get_by_role("button", name="New pipeline…")
        tab.locator("main[data-state='fresh']").wait_for()
        assert button.is_disabled()
        assert "add connections" in (button.get_attribute("title") or "")
