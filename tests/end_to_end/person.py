"""Somebody in Airflow's own UI, who finds what is to be pressed by its role and its name.

The names are those of Airflow 3.3's English texts. What a click begins is waited for by what is to
be seen afterwards, and every wait has an end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.end_to_end.airflow_server import AirflowServer
from tests.servers.browser import SHOTS, shot
from tests.servers.patience import wait_while_working

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator, Locator, Page, Response

_SHORT_MS = 45_000
# as another window that is switched: the menu for it would close what is open
_SWITCH = """theme => {
  localStorage.setItem("theme", theme);
  dispatchEvent(new StorageEvent("storage", { key: "theme", newValue: theme }));
}"""


class Person:
    """An administrator with one tab."""

    def __init__(self, tab: Page, airflow: AirflowServer) -> None:
        self.tab = tab
        self._airflow = airflow
        tab.set_default_timeout(_SHORT_MS)

    def log_in(self) -> None:
        """Go to the login page and in."""
        self.tab.goto(f"{self._airflow.url}/")
        self.tab.get_by_label("Username").fill("admin")
        self.tab.get_by_label("Password").fill(self._airflow.password)
        self.tab.get_by_role("button", name="Sign in").click()
        self.tab.get_by_role("link", name="CDC").first.wait_for()

    def seen(self, name: str) -> None:
        """Keep what is to be seen, in light and in dark, if somebody wants to look at it."""
        if not SHOTS:
            return
        for theme in ("dark", "light"):
            self.tab.evaluate(_SWITCH, theme)
            shot(self.tab, f"{name}-{theme}")

    def trigger(self, dag_id: str) -> Locator:
        """Open the dialog in which a DAG is triggered."""
        self.tab.goto(f"{self._airflow.url}/dags/{dag_id}")
        self.tab.get_by_role("button", name="Trigger Dag").click()
        return self._dialog()

    def trigger_again(self) -> Locator:
        """Open it from a run's page, filled as that run's was."""
        self.tab.get_by_role("button", name="Trigger Dag").click()
        self.tab.get_by_role("menuitem", name="Trigger again with this config").click()
        return self._dialog()

    def _dialog(self) -> Locator:
        dialog = self.tab.get_by_role("dialog").first
        dialog.wait_for()
        return dialog

    def choose(self, dialog: Locator, *options: str) -> None:
        """Pick from the multi-select of a form."""
        for option in options:
            dialog.get_by_role("combobox", name="Select one or multiple values").click()
            self.tab.get_by_role("option", name=option, exact=True).click()

    def pick_date(self, dialog: Locator, label: str, day: str) -> None:
        """Fill a date, as 2026-11-23, and midnight into one of Airflow's pickers."""
        group = dialog.get_by_role("group").filter(has_text=label).first
        group.get_by_test_id("datetime-input").click()
        date = self.tab.get_by_role("textbox", name=label)
        date.fill(day.replace("-", "/"))
        time = self.tab.get_by_role("textbox", name="HH:mm")
        time.fill("00:00")
        time.press("Enter")
        self.tab.keyboard.press("Escape")
        date.wait_for(state="hidden")

    def press(self, dialog: Locator, button: str, *, path: str) -> dict[str, Any]:
        """Press what a dialog is for; returns what Airflow answered to its request."""

        def is_it(answer: Response) -> bool:
            return answer.request.method == "POST" and answer.url.endswith(path)

        with self.tab.expect_response(is_it) as answered:
            dialog.get_by_role("button", name=button, exact=True).click()
        assert answered.value.ok, answered.value.text()
        told: dict[str, Any] = answered.value.json()
        dialog.wait_for(state="hidden")
        return told

    def approve(self, question: Locator) -> None:
        """Say yes to what a run asks."""
        with self.tab.expect_response(lambda it: it.request.method == "PATCH") as answered:
            question.get_by_role("button", name="Approve").click()
        assert "hitlDetails" in answered.value.url
        assert answered.value.ok, answered.value.text()
        self.tab.keyboard.press("Escape")
        question.wait_for(state="hidden")

    def task(self, task_id: str) -> Locator:
        """Return the row of a task on its run's page."""
        link = self.tab.get_by_role("link", name=task_id, exact=True)
        return self.tab.get_by_role("table").get_by_role("row").filter(has=link)

    def await_task(self, task_id: str, state: str) -> None:
        """Wait until the run's page says that a task is in a state."""
        self.await_seen(self.task(task_id).get_by_text(state, exact=True), f"{task_id}: {state}")

    def await_seen(self, sought: Locator, what: str) -> None:
        """Wait until something is to be seen that a task has to do first."""
        airflow = self._airflow
        wait_while_working(sought.is_visible, what, signs=airflow.signs, told=airflow.log_tail)

    def cdc_page(self, pipeline: str) -> FrameLocator:
        """Go to our page by the navigation, and to a pipeline by our list."""
        self.tab.get_by_role("link", name="CDC").first.click()
        frame = self.tab.frame_locator("iframe[title='CDC']")
        frame.get_by_role("link", name=pipeline, exact=True).click()
        frame.get_by_role("heading", name=pipeline).wait_for()
        return frame

    def tab_of(self, frame: FrameLocator, name: str) -> None:
        """Open one of the tabs of a pipeline's page; beside its name may be a number."""
        frame.get_by_role("tab", name=re.compile(f"^{name}")).click()

    def answer(self, frame: FrameLocator, verb: str, look: Callable[[], None]) -> None:
        """Press a button of our page, look at its question, and say yes."""
        frame.get_by_role("button", name=verb, exact=True).click()
        dialog = frame.get_by_role("dialog")
        look()
        dialog.get_by_role("button", name=verb, exact=True).click()
        dialog.wait_for(state="detached")
