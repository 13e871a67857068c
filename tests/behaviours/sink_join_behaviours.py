"""Rows that are read again, as every sink must take them that lets them join its stream."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, SplitOutdatedError, StateMovedError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.engine.sink.port import JoinedRows, JoinedSplit
from tests.behaviours.sink_world import Row, SinkWorld, insert
from tests.behaviours.source_log import at


class JoinSinkBehaviours:
    """The stream is handed off at 100."""

    def test_rows_join_where_the_stream_is_once_it_is_past_h(self, world: SinkWorld) -> None:
        world.hand_off(orders=[(1, "a"), (12, "wrong"), (13, "wrong"), (30, "z")])
        joins, split = world.opened(world.sink.open_joins()), world.split(4, 10, 20)
        assert join(world, joins, split, (12, "b"), high=105) == (None, [])
        world.changes().apply(world.batch([insert(2, "c")]))
        place, asked = join(world, joins, split, (12, "b"), (14, "d"), high=105)
        assert (place, asked[-1]) == (at(110), at(110))
        assert world.held() == [(1, "a"), (2, "c"), (12, "b"), (14, "d"), (30, "z")]
        assert joins.joined("r") == (JoinedSplit(split, 2, at(110)),)
        assert world.ledger.stream().start == at(110)

    def test_a_split_joins_once_until_its_request_is_forgotten(self, world: SinkWorld) -> None:
        world.hand_off(orders=[(1, "a")])
        joins, split = world.opened(world.sink.open_joins()), world.split()
        assert join(world, joins, split, (1, "b"))[0] == at(100)
        assert join(world, joins, split, (1, "c")) == (at(100), [])
        joins.forget("r")
        assert joins.joined("r") == ()
        assert join(world, joins, split, (1, "c"))[0] == at(100)
        assert world.held() == [(1, "c")]

    def test_who_began_a_request_before_joins_nothing_any_more(self, world: SinkWorld) -> None:
        world.hand_off(orders=[(1, "a"), (12, "wrong")])
        old, new = (world.opened(world.sink.open_joins()) for _ in range(2))
        first = old.begin("r", [world.orders.schema.table])
        assert join(world, old, world.split(0, None, 10), (1, "b"), epoch=first)[0] == at(100)
        assert old.begin("other", [world.orders.schema.table]) == first
        second = new.begin("r", [world.orders.schema.table])
        for split in (world.split(0, None, 10), world.split(1, 10, 20)):
            with pytest.raises(StateMovedError, match=r"request r was begun again"):
                join(world, old, split, (12, "zombie"), epoch=first)
        assert world.held() == [(1, "b"), (12, "wrong")]
        assert join(world, new, world.split(1, 10, None), (12, "b"), epoch=second)[0] == at(100)
        assert [each.split.number for each in new.joined("r")] == [0, 1]
        new.forget("r")
        with pytest.raises(StateMovedError, match="or ended"):
            join(world, new, world.split(2, 30, None), (31, "zombie"), epoch=second)
        assert world.held() == [(1, "b"), (12, "b")]

    def test_a_split_is_known_by_its_range_and_not_by_its_number_alone(
        self, world: SinkWorld
    ) -> None:
        world.hand_off(orders=[(1, "a"), (12, "wrong"), (23, "wrong")])
        joins = world.opened(world.sink.open_joins())
        assert join(world, joins, world.split(3, 10, 20), (12, "b"))[0] == at(100)
        with pytest.raises(SplitOutdatedError, match="has joined as"):
            join(world, joins, world.split(3, 10, 30), (12, "b"), (23, "b"))
        assert world.held() == [(1, "a"), (12, "b"), (23, "wrong")]

    def test_rows_that_join_count_as_changes_of_their_table(self, world: SinkWorld) -> None:
        world.hand_off(orders=[(1, "a")])
        joins = world.opened(world.sink.open_joins())
        join(world, joins, world.split(1, 10, 20), (12, "b"), (14, "d"))
        join(world, joins, world.split(2, 30, 40))  # rows there would be gone now
        counted = world.ledger.table_changes()
        assert counted == {world.orders.schema.table: TableChangeCount(3, at(100))}

    def test_only_the_owner_joins(self, world: SinkWorld) -> None:
        world.hand_off(orders=[(1, "a")])
        joins = world.opened(world.sink.open_joins())
        world.ledger.take_over(2)
        with pytest.raises(CdcError):  # some sinks end the connection of the old owner
            join(world, joins, world.split(), (1, "zombie"))
        assert world.held() == [(1, "a")]


def join(
    world: SinkWorld,
    joins: Any,
    split: SnapshotSplit,
    *rows: Row,
    high: int = 100,
    epoch: int | None = None,
    request: str = "r",
) -> tuple[LogPosition | None, list[LogPosition]]:
    """Join these rows wherever the stream is; tells where, and at what places they were asked.

    The `request` is begun for it, unless an epoch of it is given.
    """
    held, asked = world.rows(*rows), []
    begun = joins.begin(request, [split.table]) if epoch is None else epoch

    def rows_at(position: LogPosition) -> JoinedRows:
        asked.append(position)
        return JoinedRows(held)

    report = world.report(split, held, high=high)
    place = joins.join(request, split, report, rows_at, epoch=begun)
    return place, asked
