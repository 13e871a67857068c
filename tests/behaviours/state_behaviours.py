"""What every state store must do, whatever the database."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy import event

from airflow_cdc_provider.core.errors import (
    FencedError,
    IntegrityError,
    RefusedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import Note, NoteKind, PipelineState, StreamState, TablePlan
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

SHOP = PipelineName("shop")
OTHER = PipelineName("other")
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ORDERS = TableId("shop", "orders")


def at(offset: int) -> MySqlPosition:
    return MySqlPosition(
        SERVER, BinlogPosition(3, offset), GtidSet.parse(f"{SERVER}:1-{max(1, offset)}")
    )


def plan_of(table: TableId = ORDERS) -> TablePlan:
    columns = (
        Column("id", mysql_type("bigint", unsigned=True), nullable=False, auto_increment=True),
        Column("state", mysql_type("enum", members=("new", "it's paid"), charset="utf8mb4")),
    )
    schema = TableSchema(table, columns, ("id",), create_statement="CREATE TABLE ...")
    return TablePlan.alike(schema, TableId("dr_shop", table.table), 1234)


def splits_of(count: int, table: TableId = ORDERS) -> list[SnapshotSplit]:
    bounds = [(number * 10,) for number in range(1, count)]
    return list(splits_between(table, ("id",), (KeyKind.INTEGER,), bounds))


def report_of(split: SnapshotSplit, *, rows: int = 10) -> SplitReport:
    return SplitReport(split.split_id, at(100), at(200), rows, rows * 50, "f" * 16, 1)


@contextmanager
def counted(store: SqlStateStore) -> Iterator[list[str]]:
    """Give the statements that are sent meanwhile; one for many rows is one."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(store._engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(store._engine, "before_cursor_execute", note)


class StateStoreBehaviour:
    """Subclassed for each database; the subclass gives the fixture `store`."""

    def planned(self, store: SqlStateStore, count: int = 4) -> tuple[int, list[SnapshotSplit]]:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan-1", [plan_of()])
        splits = splits_of(count)
        store.add_splits(SHOP, generation, splits)
        return generation, splits

    def test_an_unknown_pipeline_is_none_until_it_is_ensured(self, store: SqlStateStore) -> None:
        assert store.pipeline(SHOP) is None
        fresh = store.ensure(SHOP)
        assert (fresh.phase, fresh.wanted, fresh.generation) == (Phase.NEW, Wanted.RUN, 0)
        assert store.ensure(SHOP) == store.pipeline(SHOP) == fresh

    def test_names_that_differ_by_case_are_two_pipelines(self, store: SqlStateStore) -> None:
        store.take_over(SHOP, "me")
        assert store.pipeline(PipelineName("SHOP")) is None

    def test_each_owner_gets_a_larger_generation(self, store: SqlStateStore) -> None:
        first = store.take_over(SHOP, "a").generation
        second = store.take_over(SHOP, "b").generation
        third = store.take_over(SHOP, "c", at_least=second + 7)
        assert first < second < second + 7 < third.generation
        assert third.owner == "c"

    def test_every_write_of_an_old_generation_is_refused(self, store: SqlStateStore) -> None:
        old, splits = self.planned(store)
        store.take_over(SHOP, "newer")
        before = (store.pipeline(SHOP), store.tables(SHOP), store.splits(SHOP))
        stream = StreamState(at(5))
        writes: list[Callable[[], object]] = [
            lambda: store.renew_lease(SHOP, old),
            lambda: store.release_lease(SHOP, old),
            lambda: store.move(SHOP, old, expected=Phase.NEW, to=Phase.PLANNING),
            lambda: store.start_plan(SHOP, old, "plan-2", []),
            lambda: store.add_splits(SHOP, old, splits_of(9)),
            lambda: store.finish_planning(SHOP, old, ORDERS),
            lambda: store.mark_split(SHOP, old, splits[0], SplitStatus.READING),
            lambda: store.mark_table(SHOP, old, ORDERS, TablePhase.READ),
            lambda: store.store_hand_off(SHOP, old, _stream(splits)),
            lambda: store.beat(SHOP, old, stream),
            lambda: store.forget(SHOP, old),
        ]
        for write in writes:
            with pytest.raises(FencedError):
                write()
        assert (store.pipeline(SHOP), store.tables(SHOP), store.splits(SHOP)) == before
        assert store.stream(SHOP) is None

    def test_the_slower_of_two_movers_is_refused(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.move(SHOP, generation, expected=Phase.NEW, to=Phase.PLANNING)
        with pytest.raises(StateMovedError):
            store.move(SHOP, generation, expected=Phase.NEW, to=Phase.FAILED)
        assert store.ensure(SHOP).phase is Phase.PLANNING

    def test_a_move_that_the_lifecycle_does_not_have_is_refused(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        with pytest.raises(StateMovedError):
            store.move(SHOP, generation, expected=Phase.NEW, to=Phase.STREAMING)

    def test_of_many_who_take_over_at_once_each_gets_its_own_generation(
        self, store: SqlStateStore
    ) -> None:
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda n: store.take_over(SHOP, f"o{n}").generation, range(24)))
        assert sorted(taken) == list(range(1, 25))

    def test_the_slower_of_two_who_register_a_pipeline_gets_it_too(
        self, store: SqlStateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look = store.pipeline

        def look_too_early(name: PipelineName) -> PipelineState | None:
            monkeypatch.setattr(store, "pipeline", look)
            store.take_over(name, "the faster one")
            return None

        monkeypatch.setattr(store, "pipeline", look_too_early)
        assert store.ensure(SHOP).owner == "the faster one"

    def test_a_move_and_a_take_over_at_once_never_both_win_out_of_order(
        self, store: SqlStateStore
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.move(SHOP, generation, expected=Phase.NEW, to=Phase.PLANNING)
        gate = threading.Barrier(2)

        def zombie() -> int:
            gate.wait()
            written = 0
            for _ in range(50):
                try:
                    store.move(SHOP, generation, expected=Phase.PLANNING, to=Phase.PLANNING)
                except FencedError:
                    return written
                written += 1
            return written

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(zombie)
            gate.wait()
            store.take_over(SHOP, "newer")
            seen = store.ensure(SHOP)
            writing.result()
        assert store.ensure(SHOP) == seen

    def test_what_is_wanted_needs_no_generation(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.want(SHOP, Wanted.STOP)
        assert store.renew_lease(SHOP, generation).wanted is Wanted.STOP

    def test_a_lease_ends_unless_it_is_renewed(self, store: SqlStateStore) -> None:
        taken = store.take_over(SHOP, "me", lease_s=10)
        renewed = store.renew_lease(SHOP, taken.generation, lease_s=100)
        assert renewed.lease_until_us - taken.lease_until_us >= 90_000_000
        store.release_lease(SHOP, taken.generation)
        assert store.ensure(SHOP).lease_until_us == 0

    def test_an_owner_that_gave_its_lease_back_does_not_take_the_next_ones(
        self, store: SqlStateStore
    ) -> None:
        old = store.take_over(SHOP, "me").generation
        store.release_lease(SHOP, old)
        held = store.take_over(SHOP, "me")  # the same name, as the tasks of one DAG have
        with pytest.raises(FencedError):
            store.release_lease(SHOP, old)
        assert store.ensure(SHOP) == held

    def test_a_stream_is_its_owners_and_the_next_one_has_none_before_it_starts_one(
        self, store: SqlStateStore
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        phases = (Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING)
        for before, after in pairwise(phases):
            store.move(SHOP, generation, expected=before, to=after)
        store.beat(SHOP, generation, StreamState(at(5)))
        assert store.take_over(SHOP, "me").phase is Phase.HANDED_OFF
        told = store.stream(SHOP)
        assert told is not None
        assert told.generation == generation
        assert store.events(SHOP) == ()  # who took over may have done so on purpose

    def test_a_stream_whose_driver_is_gone_was_lost(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        phases = (Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING)
        for before, after in pairwise(phases):
            store.move(SHOP, generation, expected=before, to=after)
        with subprocess.Popen(["/bin/true"]) as ended:
            pass
        process = this_process().replace(f" {os.getpid()} ", f" {ended.pid} ")
        note = {"generation": generation, "process": process, "outages": []}
        store.keep_note(SHOP, NoteKind.OUTAGES, note)
        store.take_over(SHOP, "me")
        (event,) = store.events(SHOP)
        assert event.level == "warning"
        assert "the stream was lost: its driver of generation 1 did not end it" in event.text
        assert event.text.endswith("me takes over")

    def test_a_stream_that_gave_its_lease_back_was_not_lost(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        phases = (Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING)
        for before, after in pairwise(phases):
            store.move(SHOP, generation, expected=before, to=after)
        store.release_lease(SHOP, generation)
        store.take_over(SHOP, "me")
        assert store.events(SHOP) == ()

    def test_a_plan_comes_back_equal(self, store: SqlStateStore) -> None:
        _, splits = self.planned(store)
        (table,) = store.tables(SHOP)
        assert table.plan == plan_of()
        assert (table.phase, table.splits_planned, table.planning_done) == (
            TablePhase.PLANNED,
            4,
            False,
        )
        assert [state.split for state in store.splits(SHOP)] == splits
        assert store.ensure(SHOP).plan_id == "plan-1"

    def test_a_new_plan_forgets_the_old_one_and_nothing_of_other_pipelines(
        self, store: SqlStateStore
    ) -> None:
        generation, splits = self.planned(store)
        store.store_hand_off(SHOP, generation, _stream(splits))
        store.beat(SHOP, generation, StreamState(at(5)))
        other = store.take_over(OTHER, "me").generation
        store.start_plan(OTHER, other, "plan-9", [plan_of()])
        store.add_splits(OTHER, other, splits)
        store.start_plan(SHOP, generation, "plan-2", [plan_of(TableId("shop", "items"))])
        assert store.splits(SHOP) == ()
        assert store.hand_off(SHOP) is None
        assert not store.is_handed_off(SHOP)
        assert store.stream(SHOP) is None
        assert [str(table.table) for table in store.tables(SHOP)] == ["shop.items"]
        assert len(store.splits(OTHER)) == 4

    def test_storing_a_split_twice_is_harmless_and_with_another_range_refused(
        self, store: SqlStateStore
    ) -> None:
        generation, splits = self.planned(store)
        store.mark_split(SHOP, generation, splits[1], SplitStatus.READING)
        store.add_splits(SHOP, generation, [*splits, *splits])
        assert [state.attempt for state in store.splits(SHOP)] == [0, 1, 0, 0]
        planned = dict.fromkeys((each.split_id for each in splits), SplitStatus.PLANNED)
        reading = {splits[1].split_id: SplitStatus.READING}
        assert store.split_statuses(SHOP) == planned | reading
        wider = replace(splits[1], keys=KeyRange((5,), (20,)))
        with pytest.raises(IntegrityError, match="another range"):
            store.add_splits(SHOP, generation, [wider])

    def test_a_split_counts_attempts_and_adds_its_rows_once(self, store: SqlStateStore) -> None:
        generation, splits = self.planned(store)
        for _ in range(3):
            store.mark_split(SHOP, generation, splits[0], SplitStatus.READING)
        report = report_of(splits[0], rows=7)
        for _ in range(2):
            store.mark_split(SHOP, generation, splits[0], SplitStatus.FINISHED, report=report)
        state = store.splits(SHOP, ORDERS)[0]
        assert (state.attempt, state.status) == (3, SplitStatus.FINISHED)
        assert store.split_reports(SHOP, ORDERS) == (report,)
        (table,) = store.tables(SHOP)
        assert (table.splits_finished, table.rows, table.bytes) == (1, 7, 350)

    def test_many_splits_are_finished_in_few_statements(self, store: SqlStateStore) -> None:
        generation, many = self.planned(store, 2500)
        with counted(store) as statements:
            store.finish_splits(SHOP, generation, [(each, report_of(each)) for each in many])
        assert len(statements) < 20
        states = store.splits(SHOP)
        assert {state.status for state in states} == {SplitStatus.FINISHED}
        assert store.split_reports(SHOP, ORDERS) == tuple(map(report_of, many))

    def test_of_many_splits_one_that_cannot_be_finished_is_named(
        self, store: SqlStateStore
    ) -> None:
        generation, splits = self.planned(store)
        store.mark_split(SHOP, generation, splits[2], SplitStatus.CUT)
        with pytest.raises(StateMovedError, match=f"{splits[2].split_id} is cut"):
            store.finish_splits(SHOP, generation, [(each, report_of(each)) for each in splits])
        assert SplitStatus.FINISHED not in {state.status for state in store.splits(SHOP)}

    def test_a_finished_split_is_not_read_again(self, store: SqlStateStore) -> None:
        generation, splits = self.planned(store)
        report = report_of(splits[0])
        store.mark_split(SHOP, generation, splits[0], SplitStatus.FINISHED, report=report)
        for status in (SplitStatus.READING, SplitStatus.FAILED, SplitStatus.CUT):
            with pytest.raises(StateMovedError):
                store.mark_split(SHOP, generation, splits[0], status)

    def test_a_cut_split_no_longer_counts(self, store: SqlStateStore) -> None:
        generation, splits = self.planned(store)
        store.mark_split(SHOP, generation, splits[0], SplitStatus.CUT)
        assert store.tables(SHOP)[0].splits_planned == 3
        with pytest.raises(StateMovedError):
            store.mark_split(SHOP, generation, splits[0], SplitStatus.FINISHED)

    def test_a_split_that_is_not_planned_cannot_be_marked(self, store: SqlStateStore) -> None:
        generation, _ = self.planned(store)
        with pytest.raises(StateMovedError, match="not in the plan"):
            store.mark_split(SHOP, generation, splits_of(9)[8], SplitStatus.READING)

    def test_tables_are_marked_by_name(self, store: SqlStateStore) -> None:
        generation, _ = self.planned(store)
        store.finish_planning(SHOP, generation, ORDERS)
        broken = RefusedError("broken: ünïcode 🙂\n\0", remedy="; where: \\'").about(ORDERS)
        store.mark_table(SHOP, generation, ORDERS, TablePhase.FAILED, StoredError.of(broken))
        (table,) = store.tables(SHOP)
        assert (table.planning_done, table.phase) == (True, TablePhase.FAILED)
        back = table.error.read()
        assert (type(back), back.args, back.tables) == (RefusedError, broken.args, broken.tables)
        with pytest.raises(StateMovedError):
            store.mark_table(SHOP, generation, TableId("shop", "Orders"), TablePhase.READ)

    def test_the_hand_off_comes_back_equal(self, store: SqlStateStore) -> None:
        generation, splits = self.planned(store)
        stream = _stream(splits)
        store.store_hand_off(SHOP, generation, stream)
        store.store_hand_off(SHOP, generation, stream)
        assert store.hand_off(SHOP) == stream
        assert store.is_handed_off(SHOP)

    def test_the_last_heartbeat_wins(self, store: SqlStateStore) -> None:
        generation, _ = self.planned(store)
        store.beat(SHOP, generation, StreamState(at(5)))
        latest = StreamState(at(9), at(12), 3, 44, 5, None, 1_700_000_000_000_000, (ORDERS,))
        store.beat(SHOP, generation, latest)
        assert store.stream(SHOP) == latest

    def test_a_table_that_goes_on_under_another_definition_keeps_what_was_read(
        self, store: SqlStateStore
    ) -> None:
        generation, splits = self.planned(store)
        store.finish_splits(SHOP, generation, [(split, report_of(split)) for split in splits])
        before = plan_of()
        more = Column("more", mysql_type("int"))
        schema = replace(before.schema, columns=(*before.schema.columns, more))
        changed = replace(before, schema=schema)
        store.change_plan(SHOP, generation, changed=[changed])
        (table,) = store.tables(SHOP)
        assert (table.plan, table.planning_done) == (changed, True)
        assert (table.splits_finished, table.splits_planned, table.rows) == (4, 4, 40)
        store.change_plan(SHOP, generation, added=[changed])
        (table,) = store.tables(SHOP)
        assert (table.splits_finished, table.splits_planned, table.rows) == (0, 0, 0)

    def test_events_come_newest_first(self, store: SqlStateStore) -> None:
        store.ensure(SHOP)
        for number in range(5):
            store.tell(SHOP, f"event {number}", level="warning")
        store.tell(OTHER, "not mine")
        texts = [event.text for event in store.events(SHOP, 3)]
        assert texts == ["event 4", "event 3", "event 2"]

    def test_of_writers_that_move_a_note_at_once_one_wins(
        self, store: SqlStateStore, dsn: str
    ) -> None:
        stores = [open_store(dsn) for _ in range(4)]
        won: list[tuple[int, int]] = []
        for count in range(5):
            before = store.note(SHOP, NoteKind.NOTIFICATIONS)
            ready = threading.Barrier(len(stores))

            def move(
                number: int,
                *,
                count: int = count,
                before: Note | None = before,
                ready: threading.Barrier = ready,
            ) -> None:
                ready.wait()
                form = {"count": count, "by": number}
                kind = NoteKind.NOTIFICATIONS
                if stores[number].move_note(SHOP, kind, form, expected=before):
                    won.append((count, number))

            with ThreadPoolExecutor(len(stores)) as pool:
                list(pool.map(move, range(len(stores))))
            note = store.note(SHOP, NoteKind.NOTIFICATIONS)
            assert note is not None
            assert (note.form["count"], note.form["by"]) == won[-1]
        assert [count for count, _ in won] == [*range(5)]
        for each in stores:
            each.close()

    def test_a_note_is_not_moved_in_the_place_of_one_that_came_meanwhile(
        self, store: SqlStateStore
    ) -> None:
        kind = NoteKind.NOTIFICATIONS
        assert store.move_note(SHOP, kind, {"count": 1}, expected=None)
        first = store.note(SHOP, kind)
        assert not store.move_note(SHOP, kind, {"count": 2}, expected=None)
        assert store.move_note(SHOP, kind, {"count": 3}, expected=first)
        assert not store.move_note(SHOP, kind, {"count": 4}, expected=first)
        assert store.move_note(OTHER, kind, {"count": 5}, expected=None)
        found = store.note(SHOP, kind)
        assert found is not None
        assert found.form == {"count": 3}

    def test_a_note_stands_in_the_place_of_the_one_before_until_all_is_forgotten(
        self, store: SqlStateStore
    ) -> None:
        generation, _ = self.planned(store)
        assert store.note(SHOP, NoteKind.PREFLIGHT) is None
        for count in (1, 2):
            store.keep_note(SHOP, NoteKind.PREFLIGHT, {"count": count, "text": "Größe"})
        store.keep_note(OTHER, NoteKind.PREFLIGHT, {"count": 9})
        note = store.note(SHOP, NoteKind.PREFLIGHT)
        assert note is not None
        assert note.form == {"count": 2, "text": "Größe"}
        assert note.at_us > 0
        assert store.note(SHOP, NoteKind.LOG_REACH) is None
        store.forget(SHOP, generation)
        assert store.note(SHOP, NoteKind.PREFLIGHT) is None

    def test_forgetting_keeps_the_generation(self, store: SqlStateStore) -> None:
        generation, _ = self.planned(store)
        store.tell(SHOP, "hello")
        store.forget(SHOP, generation)
        state = store.ensure(SHOP)
        assert (state.generation, state.plan_id, state.phase) == (generation, "", Phase.NEW)
        assert state.owner == ""
        assert [*store.tables(SHOP), *store.splits(SHOP), *store.events(SHOP)] == []

    def test_splits_are_stored_by_thousands(self, store: SqlStateStore) -> None:
        generation, _ = self.planned(store, count=1)
        table = TableId("shop", "items")
        store.start_plan(SHOP, generation, "big", [plan_of(table)])
        store.add_splits(SHOP, generation, splits_of(20_000, table))
        assert store.tables(SHOP)[0].splits_planned == 20_000


def _stream(splits: list[SnapshotSplit]) -> StreamSplit:
    return hand_off([FinishedSplit(split, at(200), at(200)) for split in splits])
