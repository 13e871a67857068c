"""What every state store must remember of the last day, and how it shows many pipelines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from airflow_cdc_provider.core.errors import FencedError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.records import Sample, StreamState
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.row_counts import RowCounts, TableCounts
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.store import SqlStateStore
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import (
    ORDERS,
    OTHER,
    SHOP,
    at,
    counted,
    plan_of,
    report_of,
    splits_of,
)

NOON_US = 1_767_268_800_000_000
SECOND = 1_000_000


@dataclass
class Clock:
    """A clock that a test sets."""

    now_us: int = NOON_US

    def __call__(self) -> int:
        return self.now_us


class SampleBehaviour:
    """Subclassed for each database; the subclass gives the fixture `store`."""

    @pytest.fixture
    def clock(self, store: SqlStateStore) -> Clock:
        clock = Clock()
        store._clock = clock
        return clock

    def streaming(self, store: SqlStateStore) -> int:
        return store.take_over(SHOP, "me").generation

    def beat(
        self, store: SqlStateStore, generation: int, *, changes: int, lag_us: int | None = 0
    ) -> None:
        store.beat(SHOP, generation, StreamState(at(5), changes=changes, lag_us=lag_us))

    def test_the_first_beat_of_ten_seconds_is_a_sample_and_the_others_write_none(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        self.beat(store, generation, changes=100, lag_us=7)
        clock.now_us += 2 * SECOND
        with counted(store) as statements:
            self.beat(store, generation, changes=200)
        assert not [each for each in statements if "cdc_sample" in each]
        clock.now_us += 8 * SECOND
        self.beat(store, generation, changes=300, lag_us=5)
        assert store.samples(SHOP, 0) == (
            Sample(NOON_US, 10, 7, 100),
            Sample(NOON_US + 10 * SECOND, 10, 5, 300),
        )

    def test_samples_are_fine_for_an_hour_coarse_for_a_day_and_then_gone(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        for minute in range(28 * 60):
            clock.now_us = NOON_US + minute * 60 * SECOND
            lag_us = 99 if minute % 5 == 1 else 1
            self.beat(store, generation, changes=minute, lag_us=lag_us)
        found = store.samples(SHOP, 0)
        steps = [sample.step_s for sample in found]
        assert steps == sorted(steps, reverse=True)
        coarse = [sample for sample in found if sample.step_s == 300]
        fine = [sample for sample in found if sample.step_s == 10]
        assert clock.now_us - 26 * 3600 * SECOND < coarse[0].at_us
        assert len(coarse) > 23 * 12
        assert 59 <= len(fine) <= 66
        # the greatest lag of five minutes, and what was told last
        assert {sample.lag_us for sample in coarse} == {99}
        assert coarse[1].changes == coarse[0].changes + 5  # type: ignore[operator]
        assert coarse[-1].at_us + 300 * SECOND <= fine[0].at_us
        assert store.samples(SHOP, clock.now_us - 120 * SECOND)[0].at_us >= clock.now_us - (
            120 * SECOND
        )

    def test_rows_that_a_snapshot_reads_are_counted_where_they_were_read(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        store.start_plan(SHOP, generation, "plan-1", [plan_of()])
        splits = splits_of(4)
        store.add_splits(SHOP, generation, splits)
        for number, split in enumerate(splits):
            clock.now_us = NOON_US + number * 4 * SECOND
            report = report_of(split, rows=10 + number)
            store.mark_split(SHOP, generation, split, SplitStatus.FINISHED, report=report)
        assert [(sample.at_us, sample.rows) for sample in store.samples(SHOP, 0)] == [
            (NOON_US, 10 + 11 + 12),
            (NOON_US + 10 * SECOND, 13),
        ]

    def test_many_small_splits_are_counted_together_and_none_is_left_out(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        store.start_plan(SHOP, generation, "plan-1", [plan_of()])
        splits = splits_of(50)
        store.add_splits(SHOP, generation, splits)
        with counted(store) as statements:
            for split in splits:
                report = report_of(split, rows=3)
                store.mark_split(SHOP, generation, split, SplitStatus.FINISHED, report=report)
        assert len([each for each in statements if "cdc_sample" in each]) < 10
        store.mark_table(SHOP, generation, ORDERS, TablePhase.READ)
        assert sum(sample.rows for sample in store.samples(SHOP, 0)) == 150

    def test_rows_that_a_request_reads_are_counted_once(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        asked = store.ask(request_of())
        store.move_request(
            SHOP,
            generation,
            asked.request_id,
            expected=RequestStatus.ASKED,
            to=RequestStatus.READING,
        )
        for rows in (40, 40, 100):
            noted = replace(asked, status=RequestStatus.READING, rows=rows)
            store.note_request(generation, noted)
        assert [sample.rows for sample in store.samples(SHOP, 0)] == [100]

    def test_samples_of_an_old_generation_are_refused(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        old = self.streaming(store)
        store.take_over(SHOP, "newer")
        with pytest.raises(FencedError):
            self.beat(store, old, changes=1)
        assert store.samples(SHOP, 0) == ()

    def test_samples_are_forgotten_with_the_pipeline_and_others_keep_theirs(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = self.streaming(store)
        self.beat(store, generation, changes=1)
        other = store.take_over(OTHER, "me").generation
        store.beat(OTHER, other, StreamState(at(5), changes=4))
        store.forget(SHOP, generation)
        assert store.samples(SHOP, 0) == ()
        assert [sample.changes for sample in store.samples(OTHER, 0)] == [4]

    # --- many at once ------------------------------------------------------------------------

    def test_thirty_pipelines_are_looked_at_in_as_many_statements_as_three(
        self, store: SqlStateStore
    ) -> None:
        sent = []
        for count in (3, 30):
            names = [PipelineName(f"p{number}") for number in range(count)]
            for name in names:
                generation = store.take_over(name, "me").generation
                store.start_plan(name, generation, "plan", [plan_of()])
                store.beat(name, generation, StreamState(at(5), changes=4))
            with counted(store) as statements:
                found = store.overviews(names, store.now_us())
            assert [each.name for each in found] == sorted(names, key=str)
            sent.append(len(statements))
        assert sent[0] == sent[1] < 10

    def test_an_overview_counts_tables_and_requests_and_names_what_is_wrong(
        self, store: SqlStateStore
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        tables = [TableId("shop", name) for name in ("orders", "items", "users")]
        store.start_plan(SHOP, generation, "plan", [plan_of(table) for table in tables])
        no_key = StoredError.of(RefusedError("no key"))
        store.mark_table(SHOP, generation, tables[1], TablePhase.FAILED, no_key)
        store.mark_table(SHOP, generation, tables[2], TablePhase.CONSISTENT)
        store.ask(request_of())
        store.ask(replace(request_of(), request_id="w", status=RequestStatus.WAITING))
        store.beat(SHOP, generation, StreamState(at(5), changes=4))
        (found,) = store.overviews([SHOP, OTHER], store.now_us())
        assert found.tables == {
            TablePhase.PLANNED: 1,
            TablePhase.FAILED: 1,
            TablePhase.CONSISTENT: 1,
        }
        assert found.requests == {RequestStatus.ASKED: 1, RequestStatus.WAITING: 1}
        assert found.troubles == (("shop.items", no_key),)
        assert found.stream == store.stream(SHOP)
        assert [sample.changes for sample in found.samples] == [4]

    @pytest.mark.parametrize("count", [1, 7, 60, 61, 500])
    def test_a_tables_splits_are_counted_in_cells_of_their_own_order(
        self, store: SqlStateStore, count: int
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan", [plan_of()])
        splits = splits_of(count)
        store.add_splits(SHOP, generation, splits)
        first = splits[0]
        store.mark_split(
            SHOP, generation, first, SplitStatus.FINISHED, report=report_of(first, rows=9)
        )
        (table,) = store.table_overviews(SHOP, store.now_us())
        assert (table.source, table.sink, table.rows, table.bytes) == (
            "shop.orders",
            "dr_shop.orders",
            9,
            450,
        )
        assert len(table.cells) <= 61
        assert table.cells[0][SplitStatus.FINISHED] == 1
        assert table.splits.get(SplitStatus.PLANNED, 0) == count - 1
        assert sum(sum(cell.values()) for cell in table.cells) == count

    @pytest.mark.parametrize("count", [1, 60, 61, 500])
    def test_splits_that_are_all_alike_have_the_cells_of_those_that_are_not(
        self, store: SqlStateStore, count: int
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan", [plan_of()])
        splits = splits_of(count)
        store.add_splits(SHOP, generation, splits)
        (planned,) = store.table_overviews(SHOP, store.now_us())
        for each in splits[1:]:
            store.mark_split(SHOP, generation, each, SplitStatus.READING)
        (mixed,) = store.table_overviews(SHOP, store.now_us())
        assert [sum(cell.values()) for cell in planned.cells] == [
            sum(cell.values()) for cell in mixed.cells
        ]
        assert planned.splits == {SplitStatus.PLANNED: count}
        assert sum(mixed.splits.values()) == count

    def test_what_is_changed_in_a_table_is_counted_from_midnight(
        self, store: SqlStateStore, clock: Clock
    ) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan", [plan_of()])
        orders = plan_of().schema.table
        clock.now_us = 86_400_000_000 * 20_000 + 5
        seen: list[tuple[int | None, int | None, int | None, int | None]] = []

        def look() -> None:
            (table,) = store.table_overviews(SHOP, store.now_us())
            seen.append((table.inserts, table.updates, table.deletes, table.changed_us))

        def beat(rows: RowCounts, changed_us: int) -> None:
            counts = {orders: TableCounts(rows, changed_us)}
            store.beat(SHOP, generation, StreamState(at(100)), counts=counts)
            look()

        look()
        beat(RowCounts(), 0)
        beat(RowCounts(5, 2, 1), 70)
        store.beat(SHOP, generation, StreamState(at(100)))  # nothing was counted
        look()
        clock.now_us = 86_400_000_000 * 20_001
        look()
        beat(RowCounts(5, 4, 1), 90)
        beat(RowCounts(6, 4, 1), 95)
        beat(RowCounts(1, 0, 0), 99)  # a new plan counts anew
        assert seen == [
            (None, None, None, None),
            (0, 0, 0, None),
            (5, 2, 1, 70),
            (5, 2, 1, 70),
            (0, 0, 0, 70),
            (0, 2, 0, 90),
            (1, 2, 0, 95),
            (1, 0, 0, 99),
        ]

    def test_the_number_of_a_split_that_was_cut_keeps_its_place(self, store: SqlStateStore) -> None:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan", [plan_of()])
        splits = splits_of(3)
        store.add_splits(SHOP, generation, splits)
        store.mark_split(SHOP, generation, splits[1], SplitStatus.CUT)
        (table,) = store.table_overviews(SHOP, store.now_us())
        assert table.cells == ({SplitStatus.PLANNED: 1}, {}, {SplitStatus.PLANNED: 1})
        assert table.splits == {SplitStatus.PLANNED: 2}
