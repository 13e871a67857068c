"""A file of a lake's table, opened to be read; what is wrong with it is said in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.systems.changelog.reads.change_rows import opened_parquet
from airflow_cdc_provider.systems.files.object_store import ObjectStore

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def opened_file(store: ObjectStore, name: str) -> pq.ParquetFile:
    """Open a file of a table; an error in words if it is gone, or is no Parquet."""
    try:
        return opened_parquet(store, name, whose="table")
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
