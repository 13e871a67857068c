"""A table that differs at the sink: what is written is the plan's target, not its schema.

The source's `orders` has columns `no`, `who` and `secret`; at the sink it is `orders` of `id` and
`name`, as in every world.
"""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import Comparator, Comparison
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.engine.sink.port import JoinedRows
from tests.behaviours.sink_world import Row, SinkWorld, delete, insert, update
from tests.behaviours.source_log import at


class UnlikeTargetBehaviours:
    """A sink that takes splits and changes, in whatever mode."""

    def test_splits_and_changes_are_written_as_the_target_has_them(self, world: SinkWorld) -> None:
        make_unlike(world)
        publish_shaped(world, (1, "a", 7), (2, "b", 8), (3, "out", 0))
        assert world.held() == [(1, "a"), (2, "b")]
        sink = world.changes()
        sink.apply(
            world.batch(
                [insert(4, "d", 5), update((1, "a", 7), (1, "A", 9))],
                [update((2, "b", 8), (2, "b", 0)), insert(5, "out", 0)],
                [update((3, "out", 0), (3, "c", 1)), delete(4, "d", 5)],
            )
        )
        assert world.held() == [(1, "A"), (3, "c")]
        sink.apply(world.batch([update((1, "A", 9), (6, "moved", 9))], start=130))
        assert world.held() == [(3, "c"), (6, "moved")]

    def test_a_split_that_is_published_again_replaces_its_range_of_the_target(
        self, world: SinkWorld
    ) -> None:
        make_unlike(world)
        sink = world.splits()
        for number, (start, end), rows in (
            (0, (None, 10), [(1, "old", 1), (2, "old", 1)]),
            (1, (10, None), [(11, "kept", 1)]),
            (0, (None, 10), [(2, "new", 1), (3, "out", 0)]),
        ):
            split = world.split(number, start, end)
            shaped = shape(world, *rows)
            sink.publish(split, shaped, world.report(split, shaped, attempt=len(rows)))
        assert world.held() == [(2, "new"), (11, "kept")]


class UnlikeTargetJoinBehaviours:
    """A sink whose stream rows can join."""

    def test_rows_join_as_the_target_has_them(self, world: SinkWorld) -> None:
        make_unlike(world)
        publish_shaped(world, (1, "a", 1), (12, "wrong", 1), (30, "z", 1))
        joins, split = world.opened(world.sink.open_joins()), world.split(4, 10, 20)
        rows = shape(world, (12, "b", 1), (13, "out", 0), (14, "d", 1))

        def rows_at(_position: LogPosition) -> JoinedRows:
            return JoinedRows(rows)

        epoch = joins.begin("r", [split.table])
        assert joins.join("r", split, world.report(split, rows), rows_at, epoch=epoch) == at(100)
        assert world.held() == [(1, "a"), (12, "b"), (14, "d"), (30, "z")]
        assert joins.held_keys(split).to_pylist() == [{"id": 12}, {"id": 14}]


def make_unlike(world: SinkWorld) -> None:
    """Let the source have another table than the sink; rows whose secret is 0 are not copied."""
    number, text = world.types[TypeKind.INTEGER], world.types[TypeKind.TEXT]
    columns = (Column("no", number, nullable=False), Column("who", text), Column("secret", number))
    schema = TableSchema(world.orders.schema.table, columns, ("no",), (0,))
    shape = TableShape(
        columns=(OutputColumn("id", "no"), OutputColumn("name", "who")),
        where=Comparison("secret", Comparator.GREATER, 0),
    )
    target = world.sink.target_of(schema, world.orders.sink_table, shape)
    world.orders = TablePlan(schema, target, 0, shape)
    world.sink = world.under(world.generation)


def shape(world: SinkWorld, *rows: Row) -> Any:
    """Return rows of the source as a reader hands them to the sink."""
    shaped: SplitRows = shaped_rows(world.rows(*rows), world.orders)
    return shaped


def publish_shaped(world: SinkWorld, *rows: Row) -> None:
    """Publish the table as one split, and hand off at 100."""
    split, held = world.split(), shape(world, *rows)
    report = world.report(split, held)
    world.splits().publish(split, held, report)
    world.ledger.store_stream(hand_off([FinishedSplit.of(split, report, backfilled=True)]))
