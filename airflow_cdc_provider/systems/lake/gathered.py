"""Many small files of changes become one that a table takes, in their order and in its columns."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.systems.file_log.files import SealedFile, parquet_writer
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.tables.table import DataFile

_GROUP_BYTES = 64 * 1024 * 1024
"""Of Arrow's columns, held until they are written."""


def gathered(store: ObjectStore, files: Sequence[SealedFile], columns: pa.Schema) -> DataFile:
    """Write the rows of a folder's files to a new one beside them, which lasts.

    Columns that a file does not have are NULL there.
    """
    folder = files[0].path.rpartition("/")[0]
    name = f"{folder}/changes-{secrets.token_hex(16)}.parquet"
    wanted, rows, order = sum(each.rows for each in files), 0, SNAPSHOT_ORDER
    new, is_sealed = store.create(name), False
    try:
        with new.explained(), parquet_writer(new.stream, columns) as writer:
            for group in _groups(store, files, columns):
                rows += group.num_rows
                order = max(order, pc.max(group.column(ORDER)).as_py())
                writer.write_table(group, row_group_size=max(1, group.num_rows))
        if rows != wanted:
            raise changed(store, files, rows, wanted)
        size, is_sealed = new.seal(), True
    finally:
        if not is_sealed:
            new.discard()
    return DataFile(name, rows, size, order)


def _groups(
    store: ObjectStore, files: Sequence[SealedFile], columns: pa.Schema
) -> Iterator[pa.Table]:
    """Yield the files' rows in groups of about `_GROUP_BYTES`."""
    held: list[pa.Table] = []
    size = 0
    for each in files:
        table = in_columns(_read(store, each.path), columns)
        held.append(table)
        size += table.nbytes
        if size >= _GROUP_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def batches_of(
    store: ObjectStore, file: SealedFile, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of the log in some columns; those that it does not have are NULL."""
    with opened(store, file.path) as there:
        known = set(there.schema_arrow.names)
        names = [name for name in columns.names if name in known]
        for batch in there.iter_batches(columns=names):
            yield from in_columns(pa.Table.from_batches([batch]), columns).to_batches()


def columns_of(store: ObjectStore, name: str) -> pa.Schema:
    """Return the columns of a file of the log."""
    with opened(store, name) as there:
        return there.schema_arrow.remove_metadata()


def _read(store: ObjectStore, name: str) -> pa.Table:
    """Read a file of the log whole."""
    with opened(store, name) as there:
        return there.read()


@contextmanager
def opened(store: ObjectStore, name: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the log; that it is gone is a loss and no outage."""
    try:
        with pq.ParquetFile(store.columns_of(name)) as there:
            yield there
    except FileNotFoundError:
        raise IntegrityError(
            "a file that the log names is gone",
            where=f"{store}/{name}",
            risk="its rows are in no table; nothing was committed without them",
            remedy="put the file back from a copy; or `reset` its table with --table: it is made "
            "anew, and the others flow on",
        ) from None


def in_columns(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows in the columns of a table; those that they do not have are NULL."""
    there = set(table.column_names)
    arrays = [
        table.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(table.num_rows, field.type)
        for field in columns
    ]
    return pa.table(arrays, schema=columns)


def changed(
    store: ObjectStore, files: Sequence[SealedFile], rows: int, wanted: int
) -> IntegrityError:
    """Return the error for files that do not have the rows that the log says."""
    return IntegrityError(
        f"the files have {rows} rows, the log says {wanted}",
        where=f"{store}/{files[0].path.rpartition('/')[0]}",
        risk="rows were lost or added; none of them was committed",
        remedy="restore the files from a copy, or `reset` the pipeline",
    )
