"""The trigger on a real state store: what it stores, and what it tells."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.errors import LogPurgedError, RefusedError, SinkUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.table_picks import came
from airflow_cdc_provider.state.asking import ask_about_tables
from airflow_cdc_provider.triggers.stream import CLASS_PATH, UNWATCHED, CdcStreamTrigger
from airflow_cdc_provider.triggers.verdict import StreamEvent, Verdict
from tests.airflow.conftest import SHOP, beat, streaming
from tests.airflow.stream_trigger import trigger
from tests.behaviours.state_behaviours import plan_of

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_cdc_provider.state.store import SqlStateStore

ORDERS, CUSTOMERS = TableId("shop", "orders"), TableId("shop", "customers")


def event_of(watching: CdcStreamTrigger, timeout_s: float = 10.0) -> StreamEvent:
    async def first() -> TriggerEvent:
        try:
            async with asyncio.timeout(timeout_s):
                async for event in watching.run():
                    return event
        finally:
            await watching.cleanup()
        raise AssertionError("the trigger ended without an event")

    return StreamEvent.from_payload(asyncio.run(first()).payload)


def planned(store: SqlStateStore, *tables: TableId) -> int:
    """Have a stream of these tables; returns the generation."""
    generation = streaming(store)
    store.start_plan(SHOP, generation, "plan-1", [plan_of(table) for table in tables])
    return generation


def watched(
    state_dsn: str, capfd: pytest.CaptureFixture[str], *, lines: int = 1, **changes: Any
) -> tuple[CdcStreamTrigger, list[str]]:
    """Watch a stream until so many lines are told of it, and three looks longer.

    Returns what is told, each line from its level on.
    """
    capfd.readouterr()
    watching = trigger(state_dsn, **changes)
    printed: list[str] = []

    def told() -> list[str]:
        printed.append(capfd.readouterr().out)
        return re.findall(r"(\[\w+ *\] .*?) *\[airflow_cdc_provider", "".join(printed))

    async def follow() -> None:
        looks = asyncio.ensure_future(anext(watching.run()))
        for _ in range(3000):
            await asyncio.sleep(0.02)
            if len(told()) >= lines or looks.done():
                break
        await asyncio.sleep(3 * watching.poll_s)
        assert not looks.done(), looks
        looks.cancel()
        await asyncio.gather(looks, return_exceptions=True)
        await watching.cleanup()

    asyncio.run(follow())
    return watching, told()


def test_a_trigger_is_made_again_equal_from_what_is_stored(state_dsn: str) -> None:
    watching = trigger(state_dsn, goal="consistent", since_us=5, deadline_us=9, stale_s=3.0)
    path, arguments = watching.serialize()
    assert path == CLASS_PATH
    stored = json.loads(json.dumps(arguments))
    assert CdcStreamTrigger(**stored).serialize() == watching.serialize()


def test_what_is_stored_has_no_secret_in_it() -> None:
    watching = CdcStreamTrigger(pipeline="shop", state={"conn_id": "shop_state"})
    assert "shop_state" in repr(watching)
    assert "://" not in repr(watching)


def test_a_lost_stream_wakes_the_sensor(store: SqlStateStore, state_dsn: str) -> None:
    generation = streaming(store)
    beat(store, generation, heartbeat_us=1)
    event = event_of(trigger(state_dsn, since_us=1, stale_s=1.0))
    assert (event.verdict, event.generation) == (Verdict.LOST, generation)
    assert "no heartbeat" in event.detail


def test_a_trigger_waits_until_the_stream_has_stopped(store: SqlStateStore, state_dsn: str) -> None:
    generation = streaming(store)
    beat(store, generation)

    def stop() -> None:
        store.want(SHOP, Wanted.STOP)
        store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)

    timer = threading.Timer(0.3, stop)
    timer.start()
    assert event_of(trigger(state_dsn)).verdict is Verdict.STOPPED
    timer.join()


def test_a_failure_is_handed_on_by_name(store: SqlStateStore, state_dsn: str) -> None:
    generation = streaming(store)
    store.move(
        SHOP,
        generation,
        expected=Phase.STREAMING,
        to=Phase.FAILED,
        error=StoredError.of(LogPurgedError("purged; where: x", remedy="reset").about(ORDERS)),
    )
    event = event_of(trigger(state_dsn))
    printed = "CDC-LOG-002 purged; where: x; what to do: reset"
    assert (event.verdict, event.detail) == (Verdict.FAILED, printed)
    error = StoredError(event.error).read()
    assert isinstance(error, LogPurgedError)
    assert (error.what, error.where, error.tables) == ("purged; where: x", "", (str(ORDERS),))


def test_a_pipeline_without_a_stream_is_told_of_as_a_text(
    store: SqlStateStore, state_dsn: str
) -> None:
    store.ensure(SHOP)
    event = event_of(trigger(state_dsn))
    assert (event.verdict, str(StoredError(event.error))) == (Verdict.FAILED, event.detail)


def test_a_deadline_is_the_triggers_own(store: SqlStateStore, state_dsn: str) -> None:
    beat(store, streaming(store))
    assert event_of(trigger(state_dsn, deadline_us=1)).verdict is Verdict.TIMEOUT


def test_it_wakes_the_sensor_when_it_is_time_to_look(store: SqlStateStore, state_dsn: str) -> None:
    beat(store, streaming(store))
    assert event_of(trigger(state_dsn, look_us=1)).verdict is Verdict.LOOK
    assert event_of(trigger(state_dsn, look_us=1, deadline_us=1)).verdict is Verdict.TIMEOUT


def test_it_wakes_the_sensor_when_the_stream_tells_of_a_table_that_came(
    store: SqlStateStore, state_dsn: str
) -> None:
    beat(store, streaming(store))
    store.tell(SHOP, came(ORDERS))
    far_us, heard_us = store.now_us() + 10**12, store.now_us()
    for watching in (
        trigger(state_dsn, look_us=far_us, heard_us=heard_us),
        trigger(state_dsn, look_us=far_us),  # of an older release
    ):
        with pytest.raises(TimeoutError):
            event_of(watching, timeout_s=0.3)
    store.tell(SHOP, came(CUSTOMERS))
    watching = trigger(state_dsn, look_us=far_us, heard_us=heard_us)
    assert event_of(watching).verdict is Verdict.LOOK


def test_it_wakes_the_sensor_for_what_is_asked_about_tables(
    store: SqlStateStore, state_dsn: str
) -> None:
    """What waits for something is looked at as seldom as the source; a paused one not at all."""
    generation = streaming(store)
    beat(store, generation)
    request = ask_about_tables(store, SHOP, RequestKind.FOLLOW, [ORDERS], by="somebody")
    assert event_of(trigger(state_dsn)).verdict is Verdict.LOOK
    store.want(SHOP, Wanted.STOP)
    with pytest.raises(TimeoutError):
        event_of(trigger(state_dsn), timeout_s=0.5)
    store.want(SHOP, Wanted.RUN)
    store.note_request(
        generation, replace(request, error=StoredError.saying("waits: the source does not answer"))
    )
    with pytest.raises(TimeoutError):
        event_of(trigger(state_dsn), timeout_s=0.5)


def test_a_state_store_that_is_away_is_waited_for(tmp_path: Path, state_dsn: str) -> None:
    away = f"sqlite:///{tmp_path}/no/such/folder/state.db"
    with pytest.raises(TimeoutError):
        event_of(trigger(away), timeout_s=0.5)


def test_a_stream_that_could_not_be_heard_of_has_its_patience_when_the_store_is_back(
    store: SqlStateStore, tmp_path: Path
) -> None:
    generation = streaming(store)
    beat(store, generation)
    away = tmp_path / "away"

    def come_back() -> None:
        away.symlink_to(tmp_path)
        time.sleep(0.5)
        store.want(SHOP, Wanted.STOP)
        store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)

    timer = threading.Timer(3.0, come_back)
    timer.start()
    event = event_of(trigger(f"sqlite:///{away}/state.db", stale_s=2.0))
    timer.join()
    assert (event.verdict, event.detail) == (Verdict.STOPPED, "")


def test_a_person_who_ends_the_watch_is_told_that_the_stream_goes_on(
    store: SqlStateStore, state_dsn: str
) -> None:
    generation = streaming(store)
    beat(store, generation)
    asyncio.run(trigger(state_dsn).on_kill())
    (event, *_) = store.events(SHOP)
    assert (event.level, event.text) == ("warning", UNWATCHED)
    count = len(store.events(SHOP))
    store.want(SHOP, Wanted.STOP)
    asyncio.run(trigger(state_dsn).on_kill())
    assert len(store.events(SHOP)) == count


def test_the_states_connection_is_found_in_the_triggerer(
    store: SqlStateStore, state_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_STATE", state_dsn)
    beat(store, streaming(store))
    watching = trigger(state_dsn, state={"conn_id": "shop_state"}, goal="consistent")
    assert event_of(watching).verdict is Verdict.REACHED


def test_the_lag_of_a_stream_that_is_not_heard_of_is_told_as_its_last(
    store: SqlStateStore, state_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    generation = streaming(store)
    beat(store, generation, lag_us=0, changes=20756)
    _, (line,) = watched(state_dsn, capfd)
    assert line.startswith("[info     ] watching shop, lag 0.0 s, 20,756 changes, at ")
    beat(store, generation, lag_us=0, changes=20756, heartbeat_us=store.now_us() - 52_000_000)
    _, (line,) = watched(state_dsn, capfd)
    assert "shop, not heard of for 52 s, last lag 0.0 s, 20,756 changes, at " in line


def test_a_table_that_stops_is_told_of_once_with_the_way_back_and_counted_in_each_line(
    store: SqlStateStore,
    state_dsn: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generation = planned(store, ORDERS, CUSTOMERS)
    beat(store, generation)
    _, (line,) = watched(state_dsn, capfd)
    assert "still" not in line
    error = RefusedError("it is full", "the sink", remedy="make room")
    store.mark_table(SHOP, generation, ORDERS, TablePhase.FAILED, StoredError.of(error))
    # a table that begins again stands still no more than those that flow
    store.mark_table(SHOP, generation, CUSTOMERS, TablePhase.CHANGED)
    monkeypatch.setattr("airflow_cdc_provider.triggers.stream._TELL_EVERY_US", 50_000)
    watching, lines = watched(state_dsn, capfd, lines=6)
    assert lines[:4] == [
        "[warning  ] shop.orders stands still while the other tables flow on: "
        f"{error.code} it is full",
        "[warning  ]     where: the sink",
        "[warning  ]     what to do: make room",
        "[warning  ]     to have it back, `resume`: Change… beside the table on the CDC page, the "
        "DAG `<pipeline>__tables`, or `airflow cdc resume FILE --table shop.orders`",
    ]
    assert len(lines) > 5
    assert all("watching" in line and ", 1 table stands still" in line for line in lines[4:])
    store.mark_table(SHOP, generation, CUSTOMERS, TablePhase.PAUSED)
    _, lines = watched(
        state_dsn, capfd, lines=3, standing=watching.standing
    )  # the task's next watch
    assert "shop.customers stands still while the other tables flow on: a person" in lines[0]
    assert len([line for line in lines if "[warning" in line]) == 2
    assert "2 tables stand still" in lines[-1]


def test_what_was_told_of_goes_with_the_event(store: SqlStateStore, state_dsn: str) -> None:
    generation = planned(store, ORDERS)
    beat(store, generation)
    store.mark_table(SHOP, generation, ORDERS, TablePhase.PAUSED)
    assert event_of(trigger(state_dsn, look_us=1)).standing == {str(ORDERS): ""}


def test_a_missing_environment_variable_is_named(state_dsn: str) -> None:
    with pytest.raises(RefusedError, match="NO_SUCH_DSN"):
        event_of(trigger(state_dsn, state={"dsn_env": "NO_SUCH_DSN"}))


def test_an_outage_is_told_in_the_tasks_log_and_as_a_metric(
    store: SqlStateStore, state_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    generation = planned(store, ORDERS)
    beat(store, generation, lag_us=7_000_000)
    error = SinkUnreachableError("the sink answered error 2003", where="db:3306")
    outage = {"error": error.to_json(), "since_us": store.now_us() - 9_000_000}
    outage |= {"part": "work", "tries": 3, "next_us": store.now_us() + 60_000_000}
    form = {"generation": generation, "process": this_process(), "outages": [outage]}
    store.keep_note(SHOP, NoteKind.OUTAGES, form)
    _, lines = watched(state_dsn, capfd)
    (line,) = lines
    assert line.startswith("[warning")
    assert "the sink answered error 2003 (CDC-SNK-001), since " in line
    assert re.search(r"for (9|10) s, tried 3 times, next in (59|60) s, lag 7.0 s", line)
    store.keep_note(SHOP, NoteKind.OUTAGES, {**form, "generation": generation - 1})
    _, lines = watched(state_dsn, capfd)
    assert [line for line in lines if "2003" in line] == []
