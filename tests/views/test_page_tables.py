"""Tables as the CDC page shows them, and how far a snapshot is as a whole."""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.overview import TableOverview
from airflow_cdc_provider.core.records import Note, Sample
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.views.page_tables import snapshot_form, table_forms, with_waiting

NOW = 1_000_000_000


def table(**more: Any) -> TableOverview:
    given = {"source": "shop.orders", "sink": "dr.orders", "phase": TablePhase.CONSISTENT}
    return TableOverview(
        **{**given, "planning_done": True, "estimated_rows": 100, "error": NO_ERROR, **more}
    )


def test_a_tables_changes_of_today_and_its_last_one_are_shown_where_they_are_counted() -> None:
    counted = table(inserts=3, updates=0, deletes=1, changed_us=NOW)
    names = ("inserts", "updates", "deletes", "changed_us")
    (form, none) = table_forms([counted, table()], (), None, is_streamed=True)
    assert tuple(form[name] for name in names) == (3, 0, 1, NOW)
    assert {none[name] for name in names} == {None}


def test_a_table_whose_changes_the_sink_does_not_take_is_said_to_wait() -> None:
    tables = [table(), table(source="shop.new")]
    forms = with_waiting(table_forms(tables, (), None, is_streamed=True), ["shop.new"])
    assert [form["waits"] for form in forms] == [False, True]


def test_what_comparing_found_is_shown_of_the_tables_that_were_compared() -> None:
    found = {"at_us": 7, "equal": True, "rows": 40}
    tables = [table(), table(source="shop.new")]
    note = Note(9, {"tables": {"shop.orders": found}})
    forms = table_forms(tables, (), note, is_streamed=True)
    assert [form["verified"] for form in forms] == [found, None]


def test_only_while_rows_are_read_first_there_is_a_snapshot_to_show() -> None:
    for phase in ("new", "handed_off", "streaming", "stopped", "failed"):
        assert snapshot_form(phase, [table()], (), NOW) is None


def test_the_time_left_of_a_snapshot_is_guessed_from_what_is_not_read_and_the_rates_of_late() -> (
    None
):
    reading = table(
        splits={SplitStatus.FINISHED: 2, SplitStatus.PLANNED: 8}, rows=200, estimated_rows=1000
    )
    done = table(splits={SplitStatus.FINISHED: 1}, rows=50, estimated_rows=9000)
    samples = [Sample(NOW - ago_s * 1_000_000, 10, None, None, 100) for ago_s in (40, 20)]
    form = snapshot_form("snapshot", [reading, done], samples, NOW)
    assert form is not None
    assert (form["finished"], form["splits"], form["rows"]) == (3, 11, 250)
    assert form["rows_per_s"] == 5
    assert form["left_s"] == [0.8 * 800 / 5, 1.3 * 800 / 5]
    nothing_yet = snapshot_form("planning", [reading], (), NOW)
    assert nothing_yet is not None
    assert (nothing_yet["rows_per_s"], nothing_yet["left_s"]) == (None, None)
