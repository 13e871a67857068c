"""The files of a log, JSON or Parquet, written piece by piece into its store.

A sealed file never changes. It does not count before a manifest names it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.systems.file_log.json_text import json_lines
from airflow_cdc_provider.systems.file_log.tree import Members, arrow_array
from airflow_cdc_provider.systems.files.object_store import ObjectStore


class Format(StrEnum):
    """The format of a change log's files."""

    JSON = "json"
    """A JSON object a line."""
    PARQUET = "parquet"


_GROUP_BYTES = 8 * 1024 * 1024
"""Of Arrow's columns, held until they are written as one row group: small ones read slowly."""


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A finished file of the change log, which never changes."""

    path: str
    """Below the change log's folder."""
    rows: int
    bytes: int


class OpenFile:
    """A file of the change log while it is written: its name is not there yet."""

    def __init__(self, store: ObjectStore, path: str, form: Format) -> None:
        self._path, self._form = path, form
        self._rows = 0
        self._parquet: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._new = store.create(path)

    def write(self, envelopes: Members, count: int) -> None:
        """Append envelopes to the file; without any, what columns they have."""
        self._rows += count
        with self._new.explained():
            if self._form is Format.JSON:
                self._new.stream.write(json_lines(envelopes, count))
            else:
                self._write_parquet(envelopes, count)

    def _write_parquet(self, envelopes: Members, count: int) -> None:
        """Append envelopes to a Parquet file."""
        arrays = {name: arrow_array(value, count) for name, value in envelopes.values}
        self._held.append(pa.table(arrays))
        self._held_bytes += self._held[-1].nbytes
        if self._held_bytes >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        """Write what is held as one row group."""
        table = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        if self._parquet is None:
            self._parquet = parquet_writer(self._new.stream, table.schema)
        self._parquet.write_table(table, row_group_size=max(1, table.num_rows))

    def seal(self) -> SealedFile:
        """Finish the file, so that it lasts under its name."""
        with self._new.explained():
            if self._held:
                self._write_group()
            if self._parquet is not None:
                self._parquet.close()
        return SealedFile(self._path, self._rows, self._new.seal())

    def discard(self) -> None:
        """Forget the unfinished file; a disk that is full hides no error by another."""
        with suppress(OSError, pa.ArrowException, CdcError):
            if self._parquet is not None:
                self._parquet.close()
        self._new.discard()


def parquet_writer(stream: BinaryIO, columns: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file; short decimals are whole numbers, as Iceberg has them."""
    return pq.ParquetWriter(stream, columns, store_decimal_as_integer=True)
