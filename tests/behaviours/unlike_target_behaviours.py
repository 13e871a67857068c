"""A table that differs at the sink: what is written is the plan's target, not its schema.

The source's `orders` has columns `no`, `who` and `secret`; at the sink it is `orders` of `id` and
`name`, as in every world.
"""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import Comparator, Comparison
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.engine.verify.verify import verify
from tests.behaviours.column_source import ColumnSource
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


class UnlikeTargetVerifyBehaviours:
    """A sink that can be compared, with a source of another system."""

    def test_a_copy_is_equal_to_what_another_system_has(self, world: SinkWorld) -> None:
        rows = [(number, f"né {number}" if number % 3 else None) for number in range(2, 90)]
        world.publish(world.splits(), world.split(), *rows)
        table = compared(world, *rows)
        assert (table.equal, table.equal_rows) == (True, len(rows))
        assert table.why_digest == "the two systems have no other digest in common"
        others = [(1, "new"), *rows[1:], (90, "x")]
        others[50] = (others[50][0], "other")
        table = compared(world, *others)
        assert named(table) == {"missing 1", "missing 90", "extra 2", f"different {others[50][0]}"}
        assert [keys.start for keys in table.differing] == [(1,), (others[50][0],), (90,)]

    def test_a_target_unlike_its_source_is_compared_as_it_is_to_be(self, world: SinkWorld) -> None:
        make_unlike(world)
        rows = [(1, "a", 7), (2, "b", 8), (3, "out", 0), (4, "d", 1)]
        publish_shaped(world, *rows)
        table = compared(world, *rows)
        assert (table.equal, table.rows_source, table.rows_sink) == (True, 3, 3)
        assert table.why_digest == "the table has another shape at the sink"
        table = compared(world, (1, "a", 0), (2, "B", 8), (3, "in", 1), (4, "d", 2))
        assert named(table) == {"extra 1", "different 2", "missing 3"}
        shown = {sample.key: sample.columns for sample in table.samples}
        assert list(map(str, shown["2"])) == ["name: 'B' at the source, 'b' at the sink"]
        assert table.differing == (KeyRange((1,), (4,)),)
        assert not table.unrepairable


def compared(world: SinkWorld, *rows: Row) -> TableVerdict:
    """Compare `orders` with a source that has these rows."""
    schema, held = world.orders.schema, world.rows(*rows).table
    source: Any = ColumnSource({schema.table: (schema, held)})
    (table,) = verify(source, world.sink, [world.orders], values=True).tables
    return table


def named(table: TableVerdict) -> set[str]:
    """Return each row that differs by its kind and key."""
    return {f"{each.kind} {each.key}" for each in table.samples}
