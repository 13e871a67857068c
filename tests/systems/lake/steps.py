"""What tests do to a lake: as its own stream does, and as others do to its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from airflow_cdc_provider.columns.verify_port import ColumnsRead
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from tests.behaviours.sink_world import Row, insert
from tests.systems.lake import damage
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.world import LakeWorld, rows_of


def begun(world: LakeWorld, *rows: Row) -> None:
    """Claim the tables, read `orders`, and hand off to the stream."""
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    world.ledger.store_stream(world.hand_off(orders=rows))


def published(world: LakeWorld) -> list[Row]:
    """What the table's changes add up to; each fits, and none is there twice."""
    return rows_of(world, table_of(world.form, world.root, "shop.orders"))


def compared(world: LakeWorld, *keys: int) -> list[Row]:
    """The rows that a comparison finds in the lake, all or those with some keys."""
    side = world.lake.open_side()
    found = side.definition(world.orders.sink_table)
    assert found is not None
    read = ColumnsRead(found, ("id", "name"), ("id",), plain_key=True)
    table = side.columns_of(read, read)
    batches = table.rows_of([(key,) for key in keys]) if keys else table.rows(KeyRange())
    return sorted(
        tuple(row.values())
        for each in batches
        for row in each.rows.to_pylist()  # few
    )


def change(world: LakeWorld, number: int, generation: int = 1) -> None:
    """Insert the row of a number, which is a transaction of its own."""
    start = 100 + 10 * (number - 10)
    world.changes(generation).apply(world.batch([insert(number, "x")], start=start))


def again_by(world: LakeWorld, generation: int, *rows: Row) -> None:
    """Begin a new plan as a new owner, as `reset` and `run` do."""
    ledger = world.opened(world.under(generation).open_ledger())
    ledger.take_over(generation)
    ledger.start_plan("two")
    splits, finished = world.splits(generation), []
    for table, of_table in (("orders", rows), ("seats", ())):
        split = world.split(of=table)
        report = world.publish(splits, split, *of_table, high=100)
        finished.append(FinishedSplit.of(split, report, backfilled=True))
    ledger.store_stream(hand_off(finished))


def as_numbers(world: LakeWorld, column: str) -> None:
    """Have the log's files of changes a column of numbers, as behind an ALTER."""
    folder = world.root / "shop.orders"
    for file in (*folder.glob("joined-*"), *folder.glob("stream-*")):
        rows = pq.read_table(file)
        numbers = pa.array([7 if op != "t" else None for op in rows["_op"].to_pylist()], pa.int64())
        place = rows.schema.get_field_index(column)
        pq.write_table(rows.set_column(place, column, numbers), file)


# --- as others do ---------------------------------------------------------------------------


def set_back(world: LakeWorld, commits: int) -> None:
    """Set the table back by so many commits, as somebody else does."""
    damage.set_back(world.form, world.root, world.orders.sink_table, commits=commits)


def keep_snapshots(world: LakeWorld, most: int) -> None:
    """Have Iceberg's table keep so many snapshots, however young they are."""
    table = catalog_of(world.root).load_table(("shop", "orders"))
    with table.transaction() as transaction:
        transaction.set_properties(
            {
                "history.expire.min-snapshots-to-keep": str(most),
                "history.expire.max-snapshot-age-ms": "0",
            }
        )


def append(world: LakeWorld, rows: pa.Table) -> None:
    """Append rows as somebody else does."""
    if world.form == "delta":
        write_deltalake(str(world.root / "shop.orders"), rows, mode="append")
    else:
        catalog_of(world.root).load_table(("shop", "orders")).append(rows)


def delete_by_hand(world: LakeWorld, where: str) -> None:
    """Delete rows of the table as somebody else does."""
    if world.form == "delta":
        DeltaTable(str(world.root / "shop.orders")).delete(where)
    else:
        catalog_of(world.root).load_table(("shop", "orders")).delete(where)


def foreign(world: LakeWorld, rows: pa.Table) -> None:
    """Make a table of that name without us."""
    if world.form == "delta":
        write_deltalake(str(world.root / "shop.orders"), rows)
        return
    catalog = catalog_of(world.root)
    catalog.create_namespace(("shop",))
    catalog.create_table(("shop", "orders"), schema=rows.schema).append(rows)


def rewritten(world: LakeWorld) -> None:
    """Put other files with the same rows in the place of the table's."""
    if world.form == "delta":
        DeltaTable(str(world.root / "shop.orders")).optimize.compact()
        return
    table = catalog_of(world.root).load_table(("shop", "orders"))
    table.overwrite(table.scan().to_arrow())


def expired(world: LakeWorld, parent: int | None = None) -> None:
    """Drop all of the table's history; of Iceberg the snapshot that stays then has this parent."""
    if world.form == "delta":
        folder = str(world.root / "shop.orders")
        retention = {"delta.logRetentionDuration": "interval 0 seconds"}
        DeltaTable(folder).alter.set_table_properties(retention)
        DeltaTable(folder).create_checkpoint()
        DeltaTable(folder).cleanup_metadata()
        return
    table = catalog_of(world.root).load_table(("shop", "orders"))
    now = table.metadata.current_snapshot_id
    others = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != now]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    place = Path(table.refresh().metadata_location.removeprefix("file://"))
    told = json.loads(place.read_text())
    (snapshot,) = told["snapshots"]
    if parent is None:
        assert "parent-snapshot-id" not in snapshot  # as PyIceberg leaves it
    else:
        place.write_text(
            json.dumps(told | {"snapshots": [snapshot | {"parent-snapshot-id": parent}]})
        )


def copied(one: Path, other: Path, *, moves: bool = False) -> None:
    """Put a file or folder elsewhere, as it is."""
    if moves:
        one.rename(other)
        return
    if one.is_dir():
        for each in one.rglob("*"):
            if each.is_file():
                copied(each, other / each.relative_to(one))
        return
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(one.read_bytes())


def sequence(snapshot: Any) -> int:
    return int(snapshot.sequence_number)


def versions(world: LakeWorld) -> int:
    """How often the table was committed to; 0 if there is none."""
    if world.form == "delta":
        folder = str(world.root / "shop.orders")
        return DeltaTable(folder).version() + 1 if DeltaTable.is_deltatable(folder) else 0
    catalog, name = catalog_of(world.root), ("shop", "orders")
    there = catalog.table_exists(name)
    return len(catalog.load_table(name).metadata.metadata_log) + 1 if there else 0
