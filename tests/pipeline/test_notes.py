"""What a run notes for those who look later: the reach of the source's log, and preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.stream import heartbeat
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from tests.pipeline.conftest import Shop
from tests.pipeline.test_schema_changes import begin, catch_up, change

if TYPE_CHECKING:
    import pytest


def reach_of(run: Run) -> LogReach:
    note = run.store.note(run.name, NoteKind.LOG_REACH)
    assert note is not None
    return LogReach(**note.form)


def test_a_stream_notes_how_far_the_log_reaches_back(shop: Shop) -> None:
    begin(shop, ["orders"])
    change(shop, "orders", ["UPDATE orders SET note = 'more'"])
    before = reach_of(catch_up(shop))
    shop.source.execute("FLUSH BINARY LOGS")
    change(shop, "orders", ["UPDATE orders SET note = 'most'"])
    after = reach_of(catch_up(shop))
    assert after.files == before.files + 1
    assert before.applied_bytes is not None
    assert after.applied_bytes is not None
    assert before.applied_bytes < after.applied_bytes <= after.kept_bytes


def test_a_stream_asks_for_the_reach_once_in_a_while(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(shop, ["orders"])
    ask, asked = MySqlLogEnd.reach, []

    def counted(self: MySqlLogEnd, start: object) -> LogReach:
        asked.append(start)
        return ask(self, start)  # type: ignore[arg-type]

    monkeypatch.setattr(MySqlLogEnd, "reach", counted)
    monkeypatch.setattr(heartbeat.Heartbeat.__init__, "__kwdefaults__", {"every_s": 0.05})
    change(shop, "orders", ["UPDATE orders SET note = 'more'"])
    catch_up(shop)
    assert len(asked) == 2  # before the stream, which has something to do, and in it


def test_that_the_reach_cannot_be_told_ends_no_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> LogReach:
        raise CdcError("not granted")

    monkeypatch.setattr(MySqlLogEnd, "reach", denied)
    begin(shop, ["orders"])
    run = catch_up(shop)
    assert run.store.note(run.name, NoteKind.LOG_REACH) is None


def test_a_plan_notes_what_preflight_found(shop: Shop) -> None:
    begin(shop, ["orders"])
    run = shop.run()
    note = run.store.note(run.name, NoteKind.PREFLIGHT)
    assert note is not None
    assert sum(note.form["counts"].values()) == len(note.form["findings"])
    for found in note.form["findings"]:
        assert found.keys() >= {"code", "level", "subject", "observed", "why", "fix"}
