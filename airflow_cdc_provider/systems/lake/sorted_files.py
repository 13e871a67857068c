"""Rows become files of one partition each, sorted and of a size that readers like."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.core.table_layout import NO_LAYOUT, TableLayout
from airflow_cdc_provider.systems.file_log.files import parquet_writer
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.gathered import in_columns
from airflow_cdc_provider.systems.lake.partitions import Partition, parted
from airflow_cdc_provider.systems.lake.tables.table import DataFile

_PIECE_BYTES = 96 * 1024 * 1024
"""Of Arrow's columns, which are held and sorted at once: a third or less of that in a file."""
_GROUP_ROWS = 131_072


@dataclass(slots=True)
class SortedFiles:
    """Writes rows of one table to new files; each is sorted, and of one partition.

    As a context manager it ends the last file; if something fails there is none of them.
    """

    store: ObjectStore
    folder: str
    """Of the table, below the store."""
    columns: pa.Schema
    key: Sequence[str]
    """What they are sorted by, behind what the layout says."""
    called: str
    """What their names begin with."""
    layout: TableLayout = NO_LAYOUT
    made: list[DataFile] = field(default_factory=list)
    """The files so far, which last."""
    _held: list[pa.Table] = field(default_factory=list)
    _size: int = 0

    def __enter__(self) -> SortedFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_whole = False
        try:
            if kind is None:
                self.end()
                is_whole = True
        finally:
            if not is_whole:
                self.discard()

    def add(self, rows: pa.Table) -> None:
        """Add rows; what is missing of the table's columns is NULL."""
        if not rows.num_rows:
            return
        self._held.append(in_columns(rows, self.columns))
        self._size += rows.nbytes
        if self._size >= _PIECE_BYTES:
            self.end()

    def end(self) -> None:
        """Write what is held, if anything: later rows go to another file."""
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._size = [], 0
        order = tuple(dict.fromkeys((*self.layout.order, *self.key)))
        if not _is_sorted(rows, order):
            rows = rows.sort_by([(name, "ascending") for name in order])
        for partition, part in parted(rows, self.layout.partitions):
            self._write(part, partition)

    def discard(self) -> None:
        """Delete the files: no commit names them."""
        for each in self.made:
            self.store.delete(each.name)
        self.made.clear()

    def _write(self, rows: pa.Table, partition: Partition) -> None:
        """Write the sorted rows of a partition to one file."""
        name = f"{self.folder}/{self.called}-{secrets.token_hex(16)}.parquet"
        new, is_sealed = self.store.create(name), False
        try:
            with new.explained(), parquet_writer(new.stream, self.columns) as writer:
                writer.write_table(rows, row_group_size=_GROUP_ROWS)
            size, is_sealed = new.seal(), True
        finally:
            if not is_sealed:
                new.discard()
        order = pc.max(rows.column(ORDER).fill_null(SNAPSHOT_ORDER)).as_py()
        self.made.append(DataFile(name, rows.num_rows, size, order, partition))


def _is_sorted(rows: pa.Table, key: Sequence[str]) -> bool:
    """Tell whether rows are in the order of a column of whole numbers; if in doubt, no."""
    if len(key) != 1:
        return False
    numbers = rows.column(key[0])
    if numbers.null_count or not pa.types.is_signed_integer(numbers.type):
        return False
    found = numbers.to_numpy()
    return bool(np.all(found[1:] >= found[:-1]))
