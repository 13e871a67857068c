"""Rows that stay in a lake when the source deletes them, marked, and what their metadata says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowMetadata, RowStamp
from airflow_cdc_provider.core.table_schema import Column, TableSchema, UniqueKey
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.lake import rows_again
from airflow_cdc_provider.systems.lake.lake_sink import LakeSink
from airflow_cdc_provider.systems.lake.preflight import lake_look, names_twice
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import Row, delete, insert, update, worlds
from tests.behaviours.source_log import at, point
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import again_by, append, begun, compared, delete_by_hand
from tests.systems.lake.world import FORMATS, LakeWorld

METADATA = RowMetadata(
    operation="op", position="place", committed_at="at", table="origin", server="server"
)
SHAPE = TableShape(others=True, deleted_flag="gone", metadata=METADATA)


@dataclass
class SoftWorld(LakeWorld):
    """A lake whose `orders` keep deleted rows."""

    shape: TableShape = SHAPE

    def _plan(
        self, name: str, *columns: Column, unique_keys: tuple[UniqueKey, ...] = ()
    ) -> TablePlan:
        plan = super()._plan(name, *columns, unique_keys=unique_keys)
        if name != "orders":
            return plan
        target = self._target(plan)
        return replace(plan, target=target, shape=self.shape)

    def _target(self, plan: TablePlan) -> TableSchema:
        lake = LakeSink(self.place, Owner(self.pipeline, self.generation))
        return lake.target_of(plan.schema, plan.sink_table, self.shape)

    def rows(self, *rows: Row, of: str = "orders") -> ArrowRows:
        stamp = RowStamp.of_read(at(100), at(100))
        found = shaped_rows(super().rows(*rows, of=of), getattr(self, of), stamp)
        assert isinstance(found, ArrowRows)
        return found


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SoftWorld]:
    yield from worlds(SoftWorld(root=tmp_path / "lake", form=request.param, mirror_mb=512))


def truncate(place: int) -> Statement:
    sql = "TRUNCATE TABLE orders"
    return Statement("shop", sql, point(place, place + 10), effect_of(sql, default_database="shop"))


def there(world: SoftWorld) -> pa.Table:
    return table_of(world.form, world.root, "shop.orders").sort_by("id")


def told(world: SoftWorld) -> list[tuple[object, ...]]:
    """The rows of the table: key, name, flag and the letter of what wrote it."""
    columns = [there(world).column(name).to_pylist() for name in ("id", "name", "gone", "op")]
    return list(zip(*columns, strict=True))


def stamp_of(world: SoftWorld, key: int) -> tuple[object, ...]:
    (row,) = [each for each in there(world).to_pylist() if each["id"] == key]
    return tuple(row[name] for name in ("op", "place", "at", "origin", "server"))


def test_a_deleted_row_stays_marked_and_lives_again_by_an_insert(world: SoftWorld) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"))
    world.lake.publish_tables()
    assert told(world) == [(1, "a", 0, "r"), (2, "b", 0, "r"), (3, "c", 0, "r")]
    changes = [delete(1, "a"), update((2, "b"), (20, "B")), update((3, "c"), (3, "C"))]
    world.changes().apply(world.batch(changes))
    assert compared(world) == [(3, "C"), (20, "B")]
    world.lake.publish_tables()
    assert told(world) == [(1, "a", 1, "d"), (2, "b", 1, "d"), (3, "C", 0, "u"), (20, "B", 0, "c")]
    assert compared(world) == [(3, "C"), (20, "B")]
    assert compared(world, 1, 2, 3) == [(3, "C")]
    world.changes().apply(world.batch([insert(1, "anew")], start=110))
    world.lake.publish_tables()
    assert told(world)[0] == (1, "anew", 0, "c")
    types = [there(world).schema.field(name).type for name in ("gone", "at", "op")]
    assert types[:2] == [pa.int32(), pa.timestamp("us", "UTC")]
    assert pa.types.is_string(types[2]) or pa.types.is_large_string(types[2])


@pytest.mark.parametrize("publishes", [False, True])
def test_a_truncate_marks_living_rows_and_what_comes_behind_it_wins(
    publishes: bool, world: SoftWorld
) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"), (4, "d"))
    world.lake.publish_tables()
    world.changes().apply(world.batch([delete(1, "a")]))
    if publishes:
        world.lake.publish_tables()
    changes = [update((2, "b"), (2, "B")), insert(5, "e")]
    sink = world.changes()
    sink.apply(world.batch(changes, start=110, end=130, barrier=truncate(120)))
    sink.apply(world.batch([insert(3, "new")], start=130))
    assert compared(world) == [(3, "new")]
    world.lake.publish_tables()
    assert told(world) == [
        (1, "a", 1, "d"),
        (2, "B", 1, "t"),
        (3, "new", 0, "c"),
        (4, "d", 1, "t"),
        (5, "e", 1, "t"),
    ]
    assert compared(world) == [(3, "new")]
    marked = stamp_of(world, 4)
    assert marked == stamp_of(world, 2)
    assert marked[1:] != stamp_of(world, 1)[1:]
    assert marked[3] == "shop.orders"
    (row,) = [each for each in there(world).to_pylist() if each["id"] == 4]
    assert (row["place"], row["at"]) == (row["_position"], row["_committed_at"])


def test_a_table_that_begins_again_keeps_the_rows_that_do_not_come_again(
    world: SoftWorld,
) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"))
    world.lake.publish_tables()
    world.changes().apply(world.batch([delete(1, "a")]))
    begins_again(world, (3, "C"), (4, "d"))
    world.lake.publish_tables()
    wanted = [(1, "a", 1, "d"), (2, "b", 1, "d"), (3, "C", 0, "r"), (4, "d", 0, "r")]
    assert told(world) == wanted
    assert compared(world) == [(3, "C"), (4, "d")]
    assert stamp_of(world, 2)[2] is None


@pytest.mark.parametrize("is_published", [True, False])
def test_a_table_that_is_exchanged_for_other_types_keeps_marked_rows(
    is_published: bool, world: SoftWorld
) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"))
    if is_published:
        world.lake.publish_tables()
    world.changes().apply(world.batch([delete(1, "a"), insert(5, "e")]))
    begins_again(world, (3, "C"), (4, "d"))
    as_numbers(world, "joined-*")
    for _ in range(2):
        world.lake.publish_tables()
        assert told(world) == [
            (1, None, 1, "d"),
            (2, None, 1, "d"),
            (3, 7, 0, "r"),
            (4, 7, 0, "r"),
            (5, None, 1, "d"),
        ]


def test_a_living_row_whose_mark_somebody_took_away_is_missing_and_is_read_again(
    world: SoftWorld,
) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"))
    world.lake.publish_tables()
    (row,) = [each for each in there(world).to_pylist() if each["id"] == 2]
    delete_by_hand(world, "id = 2")
    append(world, pa.Table.from_pylist([row | {"gone": None}], schema=there(world).schema))
    assert compared(world) == [(1, "a"), (3, "c")]
    joins = world.opened(world.lake.open_joins())
    join(world, joins, world.split(), (1, "a"), (2, "b"), (3, "c"))
    world.lake.publish_tables()
    assert told(world) == [(1, "a", 0, "r"), (2, "b", 0, "r"), (3, "c", 0, "r")]


def test_marked_rows_whose_key_is_another_one_now_are_not_dropped_without_a_word(
    world: SoftWorld,
) -> None:
    begun(world, (1, "a"), (2, "b"))
    world.lake.publish_tables()
    world.changes().apply(world.batch([delete(1, "a")]))
    world.lake.publish_tables()
    begins_again(world, (3, "C"))
    as_numbers(world, "joined-*", name="id", kind=pa.timestamp("us"))
    with pytest.raises(RefusedError, match=r"marked as deleted cannot be kept: they have no id"):
        world.lake.publish_tables()
    assert told(world) == [(1, "a", 1, "d"), (2, "b", 0, "r")]
    dropped(world)
    world.lake.publish_tables()
    assert [each[1:] for each in told(world)] == [("C", 0, "r")]


def test_a_new_plan_keeps_the_rows_that_it_does_not_read(world: SoftWorld) -> None:
    begun(world, (1, "a"), (2, "b"), (3, "c"))
    world.lake.publish_tables()
    world.changes().apply(world.batch([delete(1, "a")]))
    world.lake.publish_tables()
    again_by(world, 2, (3, "C"), (4, "d"))
    for _ in range(2):
        world.under(2).publish_tables()
        wanted = [(1, "a", 1, "d"), (2, "b", 1, "d"), (3, "C", 0, "r"), (4, "d", 0, "r")]
        assert told(world) == wanted
    assert compared(world) == [(3, "C"), (4, "d")]


@pytest.mark.parametrize("held_bytes", [0, 1 << 30])
def test_rows_that_are_read_again_mark_the_stale_and_leave_the_marked(
    held_bytes: int, world: SoftWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_again, "_HELD_BYTES", held_bytes)
    begun(world, (1, "a"), (2, "b"), (3, "c"), (4, "d"), (30, "z"))
    changes = [delete(1, "a"), delete(2, "b"), update((3, "c"), (3, "C"))]
    world.changes().apply(world.batch(changes))
    world.lake.publish_tables()
    before = [stamp_of(world, key) for key in (1, 3, 30)]
    joins = world.opened(world.lake.open_joins())
    keys = joins.held_keys(world.split(0, 0, 20))
    assert keys.column("id").to_pylist() == [3, 4]
    counts = world.lake.open_side().counts(world.orders.target, ("id",), flag="gone")
    assert counts.count(world.split().keys, most=100) == 3
    join(world, joins, world.split(0, 0, 20), (2, "b"), (3, "C"), (5, "e"))
    world.lake.publish_tables()
    assert told(world) == [
        (1, "a", 1, "d"),
        (2, "b", 0, "r"),
        (3, "C", 0, "u"),
        (4, "d", 1, "d"),
        (5, "e", 0, "r"),
        (30, "z", 0, "r"),
    ]
    assert [stamp_of(world, key) for key in (1, 3, 30)] == before
    assert stamp_of(world, 4)[2] is None
    assert compared(world) == [(2, "b"), (3, "C"), (5, "e"), (30, "z")]
    join(world, joins, world.split(0, 0, 20), (2, "b"), (3, "C"), (5, "e"), request="other")
    assert not world.lake.has_unpublished()


def test_names_that_a_lakes_own_columns_have_are_refused(tmp_path: Path) -> None:
    names = RowMetadata(operation="_op", position="_Position")
    world = SoftWorld(root=tmp_path / "lake", mirror_mb=512, shape=replace(SHAPE, metadata=names))
    with world.stack:
        assert names_twice(world.orders) == ["_op", "_position"]
        (finding,) = [
            each for each in lake_look(world.store, world.place, [world.orders]) if each.fix
        ]
        assert "metadata" in finding.fix
        assert finding.observed == "columns _op, _position would be there twice"


def dropped(world: SoftWorld) -> None:
    if world.form == "delta":
        rmtree(world.root / "shop.orders/_delta_log")
    else:
        catalog_of(world.root).drop_table(("shop", "orders"))


def begins_again(world: SoftWorld, *rows: Row) -> None:
    """Have `orders` begin again with these rows."""
    change = altered(world.orders, through=100, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    joins = world.opened(world.lake.open_joins())
    join(world, joins, world.split(), *rows, high=110)
    world.ledger.change_tables(read=[world.orders.schema.table])


def as_numbers(
    world: SoftWorld, files: str, name: str = "name", kind: pa.DataType | None = None
) -> None:
    """Have files of the log another type in one column, as behind an ALTER."""
    for file in (world.root / "shop.orders").glob(files):
        rows = pq.read_table(file)
        numbers = pa.array([7 if op != "t" else None for op in rows["_op"].to_pylist()])
        place = rows.schema.get_field_index(name)
        pq.write_table(rows.set_column(place, name, numbers.cast(kind or pa.int64())), file)
