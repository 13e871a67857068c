"""A lake in a folder, and what its log holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS, OP, ORDER
from airflow_cdc_provider.systems.lake.lake_sink import LakeSink
from tests.behaviours.sink_world import Row, SinkWorld

FORMATS = ("iceberg", "delta")


@dataclass
class LakeWorld(SinkWorld):
    """The sinks' world in a folder of tables."""

    root: Path
    form: str = "iceberg"
    bucket: Folder | None = None
    """In the place of `root`."""
    mirror_mb: int = 0
    """Of tables that hold the current rows."""

    @property
    def place(self) -> Folder:
        if self.bucket is not None:
            return replace(self.bucket, mirror_mb=self.mirror_mb)
        return Folder(str(self.root), self.form, commit_seconds=60, mirror_mb=self.mirror_mb)

    @property
    def store(self) -> ObjectStore:
        return open_files(self.place.store)

    def make_tables(self) -> None:
        """Make nothing: a table comes with its first rows."""

    def under(self, generation: int, **_: Any) -> LakeSink:
        plans = (self.orders, self.seats)
        return LakeSink(self.place, Owner(self.pipeline, generation), plans)

    @property
    def lake(self) -> LakeSink:
        return self.under(self.generation)

    def logged(self, table: str = "orders") -> pa.Table:
        """What the log's files hold of a table."""
        store = self.store
        names = [file.path for file in Manifest(store, "").read_any().files(f"shop.{table}")]
        files = [pq.read_table(store.columns_of(name)) for name in names]
        return pa.concat_tables(files) if files else pa.table({name: [] for name in CHANGE_COLUMNS})

    def held(self, table: str = "orders") -> list[Row]:
        return rows_now(self.logged(table), ["id"])


def rows_now(changes: pa.Table, key: list[str]) -> list[Row]:
    """Return a table's rows after its changes; each must fit what was there before it."""
    rows: dict[Row, Row] = {}
    seen: set[int] = set()
    for change in sorted(changes.to_pylist(), key=lambda each: int(each[ORDER])):
        op, order = change[OP], change[ORDER]
        assert order == -1 or order not in seen, f"two changes have the order {order}"
        seen.add(order)
        of = tuple(change[name] for name in key)
        row = tuple(value for name, value in change.items() if name not in CHANGE_COLUMNS)
        if op == "t":
            rows.clear()
            continue
        if op != "r" or order < 0:  # else it was read again
            assert (of in rows) == (op in "ud"), f"{op} of {of}, and the table holds {rows}"
        if op == "d":
            assert rows.pop(of) == row
        else:
            assert op != "r" or rows.get(of) != row, f"{op} of {of} changes nothing"
            rows[of] = row
    return sorted(rows.values())


def rows_of(world: LakeWorld, rows: pa.Table) -> list[Row]:
    """Return the rows of `orders` that its table says, whether it holds changes or rows."""
    return rows_there(rows, ["id"]) if world.mirror_mb else rows_now(rows, ["id"])


def rows_there(rows: pa.Table, key: list[str]) -> list[Row]:
    """Return the rows of a table of current rows: each key is there once, and none was deleted."""
    found = rows.to_pylist()
    assert {each[OP] for each in found} <= {*"rcu"}
    keys = [tuple(each[name] for name in key) for each in found]
    assert len({*keys}) == len(keys), f"keys are there twice: {keys}"
    return sorted(
        tuple(value for name, value in each.items() if name not in CHANGE_COLUMNS) for each in found
    )
