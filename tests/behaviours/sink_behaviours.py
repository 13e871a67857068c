"""Laws 4 and 8 as every sink must keep them; subclassed for each system, in a world it makes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_cdc_provider.core.errors import CdcError, FencedError
from tests.behaviours.sink_world import SinkWorld


class SplitSinkBehaviours:
    """Law 4: a split is published whole or not at all. Law 8: one owner."""

    neighbours = 40
    """The splits that are published side by side."""

    def test_a_published_split_is_there_with_its_report(self, world: SinkWorld) -> None:
        split = world.split()
        report = world.publish(world.splits(), split, (1, "a"), (2, None))
        assert world.held() == [(1, "a"), (2, None)]
        assert list(world.ledger.reports()) == [(split, report)]
        assert world.ledger.finished_ids() == {split.split_id}
        assert list(world.ledger.reports(but={split.split_id})) == []

    def test_rows_in_quantity_arrive_unchanged(self, world: SinkWorld) -> None:
        rows = [(i, f"näme'\\\t\n\x00 {i}" * 3) for i in range(5000)]
        world.publish(world.splits(), world.split(), *rows)
        assert world.held() == rows

    def test_an_empty_split_has_a_report(self, world: SinkWorld) -> None:
        world.publish(world.splits(), world.split())
        assert [report.rows for _, report in world.ledger.reports()] == [0]

    def test_a_row_deleted_at_the_source_between_two_reads_is_gone(self, world: SinkWorld) -> None:
        sink = world.splits()
        world.publish(sink, world.split(), (1, "a"), (2, "b"), (3, "c"))
        world.publish(sink, world.split(), (1, "a"), (3, "c"), high=200)
        assert world.held() == [(1, "a"), (3, "c")]

    def test_neighbouring_splits_are_published_side_by_side(self, world: SinkWorld) -> None:
        count = self.neighbours
        sinks = [world.splits() for _ in range(4)]

        def publish(number: int) -> None:
            split = world.split(
                number, number * 10 or None, (number + 1) * 10 if number < count - 1 else None
            )
            rows = [(i, f"in {number}") for i in range(number * 10, number * 10 + 10)]
            for high in (100, 200):
                world.publish(sinks[number % 4], split, *rows, high=high)

        def publish_all(first: int) -> None:
            for number in range(first, count, 4):
                publish(number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(publish_all, range(4)))
        assert world.held() == [(i, f"in {i // 10}") for i in range(10 * count)]
        assert len(world.ledger.reports()) == count

    def test_an_old_generation_is_refused(self, world: SinkWorld) -> None:
        old = world.splits(1)
        world.ledger.take_over(2)
        with pytest.raises(CdcError):
            world.publish(old, world.split(), (1, "zombie"))
        assert world.held() == []

    def test_a_split_of_a_table_the_stream_owns_is_refused(self, world: SinkWorld) -> None:
        late = world.splits()
        world.hand_off("orders")
        with pytest.raises(FencedError, match="handed off"):
            world.publish(late, world.split(), (1, "late"), high=50)
        assert world.held() == []

    def test_splits_beside_a_split_that_is_read_again_stay(self, world: SinkWorld) -> None:
        sink = world.splits()
        world.publish(sink, world.split(0, None, 10), (5, "below"))
        world.publish(sink, world.split(1, 10, 20), (10, "first"), (19, "first"))
        world.publish(sink, world.split(2, 20, None), (20, "above"))
        world.publish(sink, world.split(1, 10, 20), (12, "again"), high=200)
        assert world.held() == [(5, "below"), (12, "again"), (20, "above")]

    def test_a_report_that_is_stored_is_not_published_again(self, world: SinkWorld) -> None:
        sink, split = world.splits(), world.split()
        report = world.publish(sink, split, (1, "a"))
        sink.publish(split, world.rows((2, "b")), report)
        assert world.held() == [(1, "a")]
