"""What a ledger's store must do: read what was written, commit all of a decision or none.

The rules themselves are tested without a store (`tests/engine/test_ledger_machine.py`). Here each
store is to hand a decision what is committed at that moment, and to have afterwards what the
decision's records say.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from airflow_cdc_provider.core.errors import CdcError, FencedError, RefusedError, StateMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress, hand_off
from airflow_cdc_provider.engine.ledger import decisions
from airflow_cdc_provider.engine.ledger.records import Records, SlotMoved
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part
from airflow_cdc_provider.engine.ledger.store import Ask, Hold, LedgerStore
from tests.behaviours.ledger_asks import (
    ALL,
    Watched,
    altered,
    comparable,
    moved,
    offset_of,
    state,
    store_of,
    together,
)
from tests.behaviours.sink_world import SinkWorld, insert
from tests.behaviours.source_log import at

MORE = TableId("shop", "more")
ERROR = StoredError.saying("refused")


class LedgerBehaviours:
    """The store of any sink."""

    def test_a_new_owner_of_a_new_pipeline_finds_nothing(self, world: SinkWorld) -> None:
        ledger = world.ledger
        assert (ledger.generation(), ledger.plan_id()) == (1, "")
        assert (ledger.stream(), ledger.stopped(), ledger.open_changes()) == (None, (), ())
        assert (list(ledger.reports()), ledger.finished_ids()) == ([], frozenset())
        assert (ledger.table_changes(), ledger.last_changes()) == ({}, {})
        assert ledger.counts().batches == 0

    def test_a_smaller_generation_cannot_take_over(self, world: SinkWorld) -> None:
        world.ledger.take_over(5)
        with pytest.raises(FencedError):
            world.opened(world.under(4).open_ledger()).take_over(4)
        assert world.ledger.generation() == 5

    def test_of_owners_that_come_at_once_the_greatest_generation_stays(
        self, world: SinkWorld
    ) -> None:
        ledgers = {number: world.opened(world.under(number).open_ledger()) for number in (2, 3, 4)}

        def take(number: int) -> None:
            with suppress(FencedError):
                ledgers[number].take_over(number)

        together([partial(take, number) for number in ledgers])
        assert world.ledger.generation() == 4

    def test_an_older_owner_changes_nothing_whatever_it_asks_for(self, world: SinkWorld) -> None:
        stream = world.hand_off()
        older = world.opened(world.under(1).open_ledger())
        world.ledger.take_over(2)
        quiet = IdleRange(at(100), at(200), only_ledgers=False)
        acts: list[Callable[[], object]] = [
            lambda: older.start_plan("another"),
            lambda: older.store_stream(stream),
            lambda: older.store_stream(replace(stream, start=at(300))),
            lambda: older.pass_over(quiet),
            lambda: older.keep_stop(at(150), "consistent"),
            lambda: older.change_tables(added={MORE: at(100)}),
            lambda: older.go_on_from(at(50), []),
            lambda: older.begin_changes([altered(world.orders)]),
            lambda: older.end_change(altered(world.orders)),
            lambda: older.stop_tables([world.orders.schema.table]),
            lambda: older.say_of_stopped(world.orders.schema.table, NO_ERROR),
            lambda: older.rejoin(world.orders.schema.table),
        ]
        for act in acts:
            with pytest.raises((FencedError, RefusedError)):
                act()
        assert (world.ledger.plan_id(), world.ledger.stream()) == ("", stream)

    def test_where_the_stream_ends_is_kept_while_it_moves_and_until_it_is_to_go_on(
        self, world: SinkWorld
    ) -> None:
        stream = world.hand_off()
        ledger = world.ledger
        kept = ledger.keep_stop(at(150), "consistent")
        assert (kept.start, kept.stop, kept.stop_by) == (stream.start, at(150), "consistent")
        ledger.pass_over(IdleRange(stream.start, at(150), only_ledgers=False))
        again = world.opened(world.sink.open_ledger()).stream()
        assert again is not None
        assert (again.start, again.stop, again.stop_by) == (at(150), at(150), "consistent")
        after = ledger.keep_stop(None)
        assert (after.stop, after.stop_by) == (None, "")

    def test_an_error_in_the_middle_of_a_decision_leaves_all_as_it_was(
        self, world: SinkWorld
    ) -> None:
        stream = world.hand_off()
        store, before = store_of(world.ledger), state(world.ledger)

        def decide(found: LedgerState) -> Records:
            assert found.stream == stream
            decisions.start_plan(found, 1, "another")
            raise StateMovedError("no", "here", "none", "nothing")

        with pytest.raises(StateMovedError):
            store.commit(Ask(1, decide, ALL))
        assert state(world.ledger) == before
        assert moved(world.ledger, 100, 200) == 200

    def test_an_owner_that_is_overtaken_while_it_decides_commits_nothing(
        self, world: SinkWorld
    ) -> None:
        world.hand_off()
        other = world.opened(world.under(2).open_ledger())

        def decide(found: LedgerState) -> Records:
            decisions.require_owner(found, 1)
            other.take_over(2)
            return (SlotMoved(0, at(200)),)

        with pytest.raises(FencedError, match="generation 2 owns"):
            store_of(world.ledger).commit(Ask(1, decide, Part.SLOTS, hold=Hold.LAST))
        assert world.ledger.stream().start == at(100)

    def test_a_decision_that_stores_nothing_is_no_commit(self, world: SinkWorld) -> None:
        world.hand_off()
        before = state(world.ledger)
        found = store_of(world.ledger).commit(Ask(1, lambda _: (), ALL))
        assert comparable(found) == before == state(world.ledger)

    @pytest.mark.parametrize("hold", [Hold.FIRST, Hold.LAST])
    def test_of_writers_of_one_generation_each_decides_behind_the_other(
        self, world: SinkWorld, hold: Hold
    ) -> None:
        world.hand_off()
        stores = [store_of(world.opened(world.under(1).open_ledger())) for _ in range(3)]

        def one_further(found: LedgerState) -> Records:
            return (SlotMoved(0, at(offset_of(found.required_stream()) + 1)),)

        def act(store: LedgerStore) -> None:
            for _ in range(10):
                store.commit(Ask(1, one_further, Part.SLOTS, hold))

        together([partial(act, store) for store in stores])
        assert world.ledger.stream().start == at(130)

    def test_a_new_plan_forgets_the_splits_and_the_stream_of_the_old_one_once(
        self, world: SinkWorld
    ) -> None:
        world.ledger.start_plan("one")
        world.publish(world.splits(), world.split(), (1, "a"))
        world.ledger.start_plan("one")
        assert len(world.ledger.reports()) == 1
        world.hand_off()
        world.changes().apply(world.batch([insert(1, "a")]))
        world.ledger.start_plan("two")
        assert (world.ledger.reports(), world.ledger.plan_id()) == ([], "two")
        assert (world.ledger.stream(), world.ledger.counts().batches) == (None, 0)
        assert (world.ledger.table_changes(), world.ledger.last_changes()) == ({}, {})

    def test_reports_are_in_order_and_those_that_are_known_are_left_out(
        self, world: SinkWorld
    ) -> None:
        sink, bounds = world.splits(), [None, 10, 20, 30, None]
        splits = [world.split(n, *ends) for n, ends in enumerate(pairwise(bounds))]
        reports = {n: world.publish(sink, splits[n]) for n in (2, 0, 3, 1)}
        assert list(world.ledger.reports()) == [(split, reports[split.number]) for split in splits]
        known = {splits[0].split_id, splits[2].split_id}
        assert [split for split, _ in world.ledger.reports(but=known)] == [splits[1], splits[3]]
        assert world.ledger.finished_ids() == {split.split_id for split in splits}

    def test_a_hand_off_from_replaced_reports_is_refused(self, world: SinkWorld) -> None:
        sink = world.splits()
        stream = world.hand_off("orders")
        world.ledger.start_plan("again")
        world.publish(sink, world.split(), (1, "read later"), high=300)
        with pytest.raises(StateMovedError, match="published again"):
            world.ledger.store_stream(stream)
        assert world.ledger.stream() is None

    def test_a_hand_off_behind_a_replayed_splits_low_watermark_is_refused(
        self, world: SinkWorld
    ) -> None:
        split, rows = world.split(), world.rows((1, "read early"))
        report = replace(world.report(split, rows, high=100), low=at(50))
        world.splits().publish(split, rows, report)
        progress = TableProgress(split.table, at(70), (), (at(100),))
        with pytest.raises(StateMovedError, match="published again"):
            world.ledger.store_stream(StreamSplit(at(70), None, (progress,)))

    def test_a_hand_off_that_was_done_reads_no_report_again(
        self, world: SinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream, store = world.hand_off(), store_of(world.ledger)

        def refuse(*_: object, **__: object) -> None:
            pytest.fail("this may read 100,000 reports")

        monkeypatch.setattr(store, "reports", refuse)
        monkeypatch.setattr(store, "commit", refuse)
        world.ledger.store_stream(stream)

    def test_a_table_that_cannot_be_filtered_is_refused_where_it_must_be(
        self, world: SinkWorld
    ) -> None:
        """Law 6: a sink that upserts applies such changes twice, one that appends may not."""
        split = world.split()
        report = world.publish(world.splits(), split, (1, "a"))
        stream = hand_off([FinishedSplit.of(split, report, backfilled=False)], backfilled=False)
        if world.sink.abilities.needs_exact_filter:
            with pytest.raises(RefusedError):
                world.ledger.store_stream(stream)
            assert world.ledger.stream() is None
        else:
            world.ledger.store_stream(stream)
            assert world.ledger.stream() == stream

    def test_what_is_read_back_is_what_the_records_say(self, world: SinkWorld) -> None:
        """Also by another session; each commit's records are taken into the state before it."""
        with Watched(world.ledger) as commits:
            world.ledger.take_over(2)
            world.ledger.start_plan("one")
            world.generation = 2
            sink = world.splits(2)
            finished = []
            for name in ("orders", "seats"):
                split = world.split(of=name)
                report = world.publish(sink, split)
                finished.append(FinishedSplit.of(split, report, backfilled=True))
            world.ledger.store_stream(hand_off(finished))
            moved(world.ledger, 100, 150)
            self.change(world)
        assert len(commits) > 3
        other = world.opened(world.under(2).open_ledger())
        assert state(other) == state(world.ledger)

    def change(self, world: SinkWorld) -> None:
        """Change what can be changed of the stream's tables; here nothing."""


class ChangingTablesBehaviours(LedgerBehaviours):
    """The store of a sink whose tables come, go, change and are isolated."""

    def change(self, world: SinkWorld) -> None:
        orders, seats, ledger = world.orders, world.seats.schema.table, world.ledger
        table = orders.schema.table
        ledger.change_tables(added={MORE: at(150)})
        ledger.change_tables(read=[MORE])
        ledger.begin_changes([altered(orders, through=160), altered(world.seats, through=160)])
        ledger.end_change(altered(orders, through=160))
        ledger.stop_tables([seats, MORE], ERROR)
        ledger.say_of_stopped(MORE, NO_ERROR)
        ledger.end_change(altered(world.seats, through=170))
        ledger.rejoin(seats)
        ledger.rejoin(seats)
        ledger.begin_changes([altered(orders, through=180, rereads=True)])
        ledger.end_change(altered(orders, through=180, rereads=True))
        ledger.go_on_from(at(120), [table])
        ledger.rejoin(MORE)
        ledger.change_tables(removed=[MORE])

    def test_schema_changes_are_begun_once_and_kept_in_order_until_they_end(
        self, world: SinkWorld
    ) -> None:
        world.hand_off()
        first, second = altered(world.seats), altered(world.orders)
        for _ in range(2):
            world.ledger.begin_changes([first, second, first])
        assert world.ledger.open_changes() == (first, second)
        world.ledger.end_change(first)
        other = world.opened(world.under(1).open_ledger())
        assert other.open_changes() == (second,)
        assert world.ledger.table_changes()[first.table].changes == 1

    def test_a_schema_change_that_several_begin_at_once_is_begun_once(
        self, world: SinkWorld
    ) -> None:
        ledgers = [world.opened(world.under(1).open_ledger()) for _ in range(4)]
        change = altered(world.orders)
        together([partial(ledger.begin_changes, [change]) for ledger in ledgers])
        assert world.ledger.open_changes() == (change,)

    def test_a_table_is_isolated_with_its_error_and_position_and_comes_back(
        self, world: SinkWorld
    ) -> None:
        world.hand_off()
        orders = world.orders.schema.table
        left = world.ledger.stop_tables([orders], ERROR)
        assert [each.table for each in left.tables] == [world.seats.schema.table]
        moved(world.ledger, 100, 200)
        (stopped,) = world.opened(world.under(1).open_ledger()).stopped()
        assert (stopped.table, stopped.error, stopped.stream.start) == (orders, ERROR, at(100))
        assert stopped.since_us > 0
        with pytest.raises(CdcError, match="stands at"):
            world.ledger.rejoin(orders)
        world.ledger.end_change(altered(world.orders, through=200))
        back = world.ledger.rejoin(orders)
        assert (back.start, orders in {each.table for each in back.tables}) == (at(200), True)
        assert (world.ledger.stopped(), world.ledger.stream()) == ((), back)

    def test_the_splits_of_a_table_that_leaves_or_begins_anew_are_forgotten(
        self, world: SinkWorld
    ) -> None:
        world.hand_off()
        orders, seats = world.orders.schema.table, world.seats.schema.table
        world.ledger.change_tables(removed=[orders])
        assert [split.table for split, _ in world.ledger.reports()] == [seats]
        world.ledger.go_on_from(at(50), [seats])
        assert list(world.ledger.reports()) == []
        assert world.ledger.stream().start == at(50)
