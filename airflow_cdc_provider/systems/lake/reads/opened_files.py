"""A file of a lake's table, opened to be read; what is wrong with it is said in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc_provider.core.errors import CorruptLogError, RetryableError
from airflow_cdc_provider.systems.files.object_store import ObjectStore


@contextmanager
def opened_file(store: ObjectStore, name: str) -> Iterator[pq.ParquetFile]:
    """Open a file of a table, and close it; an error in words if it is gone, or is no Parquet."""
    try:
        source = store.columns_of(name)
        file = pq.ParquetFile(source, pre_buffer=not isinstance(source, Path))
    except FileNotFoundError as error:
        raise RetryableError(
            f"{name.rpartition('/')[2]} is gone, though the table had it when this read was "
            "planned",
            where=f"{store}/{name}",
            risk="none: its rows are in another file by now, or the machine lacks the folder; "
            "nothing was read in their place",
            remedy="read again, or start the query again: it goes on with the files of now; a read "
            "that takes hours needs old files as long (the table's own settings say how long)",
        ) from error
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"{name.rpartition('/')[2]} is no whole Parquet file: {error}",
            where=f"{store}/{name}",
            risk="its rows cannot be read; nothing was guessed",
            remedy="restore the file from a copy, or `reset` the table",
        ) from error
    with file:
        yield file
