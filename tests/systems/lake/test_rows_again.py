"""Rows of a lake that are read again while their table flows: what is compared and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.errors import SplitTooBigError, StateMovedError
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import Interval, SnapshotSplit
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.rows_again import JoinPlace
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake import gathered, held, rows_again
from airflow_cdc_provider.systems.lake.tables.table import Bounds
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_join_behaviours import JoinSinkBehaviours, join
from tests.behaviours.sink_world import delete, insert, update
from tests.behaviours.source_log import at, point
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import append, begun, delete_by_hand, published
from tests.systems.lake.world import LakeWorld

FIRST = ((1, "a"), (12, "b"), (13, "c"), (30, "z"))


class TestJoinsInALake(JoinSinkBehaviours):
    pass


def joins(world: LakeWorld) -> Any:
    return world.opened(world.lake.open_joins())


def operations(world: LakeWorld) -> str:
    """What the table's rows say, in the order of the log."""
    changes = table_of(world.form, world.root, "shop.orders").sort_by("_order")
    return "".join(changes.column("_op").to_pylist())


def by_mode(world: LakeWorld, changes: str, rows: str) -> str:
    """What the rows say of tables that hold each change, or the current rows."""
    return rows if world.mirror_mb else changes


def rejoined(
    world: LakeWorld, rows_at: Callable[[LogPosition], JoinedRows], number: int = 0
) -> LogPosition | None:
    """Join the split from 10 to 20 as a request of its own."""
    sink, split = joins(world), world.split(number, 10, 20)
    epoch = sink.begin("r", [split.table])
    report = world.report(split, world.rows())
    place: LogPosition | None = sink.join("r", split, report, rows_at, epoch=epoch)
    return place


def test_what_is_equal_is_not_written_and_the_rest_says_what_became_of_it(
    world: LakeWorld,
) -> None:
    begun(world, *FIRST)
    world.lake.publish_tables()
    join(world, joins(world), world.split(0, 10, 20), (12, "b"), (14, "d"))
    world.changes().apply(world.batch([update((14, "d"), (14, "e")), delete(1, "a")]))
    join(world, joins(world), world.split(1, 10, 20), (12, "B"), (14, "e"), request="other")
    world.lake.publish_tables()
    assert operations(world) == by_mode(world, "rrrr" + "dr" + "ud" + "r", "rur")
    assert published(world) == [(12, "B"), (14, "e"), (30, "z")]


@pytest.mark.parametrize("held_bytes", [0, 1 << 30])
def test_what_comes_while_a_split_waits_is_compared_too(
    held_bytes: int, world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_again, "_HELD_BYTES", held_bytes)
    begun(world, *FIRST)
    asked: list[LogPosition] = []

    def rows_at(position: LogPosition) -> JoinedRows:
        asked.append(position)
        if len(asked) == 1:
            return JoinedRows(world.rows((12, "b"), (13, "c")))
        return JoinedRows(world.rows((12, "new"), (15, "came")))

    look = rows_again.LakeSplitLook.ahead

    def then_changed(self: Any, joined: JoinedRows) -> None:
        look(self, joined)
        changes = [update((12, "b"), (12, "new")), delete(13, "c"), insert(15, "came")]
        world.changes().apply(world.batch(changes))

    monkeypatch.setattr(rows_again.LakeSplitLook, "ahead", then_changed)
    assert rejoined(world, rows_at) == at(110)
    assert asked == [at(100), at(110)]
    world.lake.publish_tables()
    assert operations(world) == by_mode(world, "rrrr" + "udc", "rruc")
    assert published(world) == [(1, "a"), (12, "new"), (15, "came"), (30, "z")]


def test_what_is_published_while_a_split_waits_is_found_in_the_table(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, *FIRST)
    world.changes().apply(world.batch([update((12, "b"), (12, "B")), insert(16, "wrong")]))
    look = rows_again.LakeSplitLook.ahead

    def then_published(self: Any, joined: JoinedRows) -> None:
        look(self, joined)
        world.changes().apply(world.batch([insert(17, "wrong")], start=110))
        world.lake.publish_tables()

    monkeypatch.setattr(rows_again.LakeSplitLook, "ahead", then_published)
    place = rejoined(world, lambda _: JoinedRows(world.rows((12, "B"), (13, "c"))))
    assert place == at(120)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (12, "B"), (13, "c"), (30, "z")]


def test_files_that_are_published_while_they_are_compared_are_looked_for_again(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_again, "_HELD_BYTES", 0)
    begun(world, *FIRST)
    world.changes().apply(world.batch([insert(16, "wrong")]))
    compare, read = rows_again.LakeSplitLook.changes, gathered.batches_of
    compared: list[JoinPlace] = []

    def comparing(self: Any, joined: JoinedRows, place: JoinPlace) -> Any:
        compared.append(place)
        return compare(self, joined, place)

    def published_first(store: ObjectStore, file: SealedFile, columns: pa.Schema) -> Any:
        if len(compared) == 1:
            world.lake.publish_tables()
        return read(store, file, columns)

    monkeypatch.setattr(rows_again.LakeSplitLook, "changes", comparing)
    monkeypatch.setattr(held, "batches_of", published_first)
    assert rejoined(world, lambda _: JoinedRows(world.rows((12, "b"), (13, "c")))) == at(110)
    assert len(compared) == 2
    world.lake.publish_tables()
    assert published(world) == [*FIRST]


def test_rows_of_before_a_truncate_are_none_that_could_go(world: LakeWorld) -> None:
    begun(world, *FIRST)
    truncated = Statement(
        "shop",
        "TRUNCATE TABLE orders",
        point(110, 120),
        effect_of("TRUNCATE TABLE orders", default_database="shop"),
    )
    world.changes().apply(world.batch([update((1, "a"), (1, "A"))], barrier=truncated))
    world.changes().apply(world.batch([insert(14, "d")], start=110))
    world.lake.publish_tables()
    join(world, joins(world), world.split(0, 10, 20), (12, "again"))
    world.lake.publish_tables()
    assert operations(world) == by_mode(world, "rrrr" + "utc" + "dr", "r")
    assert published(world) == [(12, "again")]


def test_rows_that_others_added_and_deleted_are_mended(world: LakeWorld) -> None:
    begun(world, *FIRST)
    world.lake.publish_tables()
    row = table_of(world.form, world.root, "shop.orders").slice(0, 1)
    by_hand = [
        row.to_pylist()[0] | {"id": 18, "name": "by hand"},
        row.to_pylist()[0] | {"id": 12, "name": "by hand", "_op": "u", "_order": 1_000},
    ]
    append(world, pa.Table.from_pylist(by_hand, row.schema))
    delete_by_hand(world, "id = 13")
    join(world, joins(world), world.split(0, 10, 20), (12, "b"), (13, "c"))
    world.changes().apply(world.batch([update((12, "b"), (12, "B"))]))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (12, "B"), (13, "c"), (30, "z")]


def test_keys_are_told_by_ranges_and_intervals(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, *FIRST)
    world.changes().apply(world.batch([update((12, "b"), (15, "b")), insert(19, "x")]))
    sink, split = joins(world), world.split(0, 10, 20)
    assert sink.held_keys(split).column("id").to_pylist() == [13, 15, 19]
    plan, one = world.orders, Interval("id", 13, 19)
    chosen = SnapshotSplit(plan.schema.table, 0, ("id",), plan.schema.key_kinds, KeyRange(), one)
    assert sorted(sink.held_keys(chosen).column("id").to_pylist()) == [13, 15]
    monkeypatch.setattr(rows_again, "MOST_HELD_KEYS", 2)
    with pytest.raises(SplitTooBigError, match="more than 1,000,000 rows of split"):
        sink.held_keys(split)


def test_a_table_that_begins_again_is_read_as_a_whole_first(world: LakeWorld) -> None:
    begun(world, *FIRST)
    sink, table = joins(world), world.orders.schema.table
    epoch = sink.begin("r", [table])
    join(world, sink, world.split(0, 10, 20), (12, "B"), (13, "c"), epoch=epoch)
    change = altered(world.orders, through=100, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    with pytest.raises(StateMovedError, match="has begun again, and is read as a whole first"):
        join(world, sink, world.split(1, 20, None), (30, "Z"), epoch=sink.begin("r", [table]))
    assert join(world, sink, world.split(), (1, "new"), request="add")[0] == at(100)
    world.ledger.change_tables(read=[table])
    again = sink.begin("r", [table])
    assert join(world, sink, world.split(1, 20, None), (30, "Z"), epoch=again)[0] == at(100)
    world.lake.publish_tables()
    assert published(world) == [(1, "new"), (30, "Z")]


@pytest.mark.parametrize("low", [None, 12])
@pytest.mark.parametrize("high", [None, 13])
def test_bounds_leave_no_row_out_that_is_inside(
    low: int | None, high: int | None, world: LakeWorld
) -> None:
    begun(world, *FIRST)
    world.lake.publish_tables()
    now = world.lake._held.looked_at(world.orders.sink_table, lambda found: found)
    assert now is not None
    some = now.batches(["id"], Bounds("id", low, high))
    found = sorted(key for each in some for key in each.column("id").to_pylist())
    inside = [key for key, _ in FIRST if (low or 0) <= key <= (high or 99)]
    assert found == inside
