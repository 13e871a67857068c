"""Between which numbers a column of a Parquet file is, as its footer tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from airflow_cdc_provider.systems.lake.tables.table import Bounds

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def bounds_in(metadata: pq.FileMetaData, name: str) -> Bounds | None:
    """Return the bounds of a column; None if the file does not tell them, or they are no numbers.

    Columns within a struct have paths of their own.
    """
    schema = metadata.schema
    found = [
        metadata.row_group(group).column(place).statistics
        for place in range(len(schema))
        if schema.column(place).path == name
        for group in range(metadata.num_row_groups)
    ]
    if not found or any(each is None or not each.has_min_max for each in found):
        return None
    low, high = min(each.min for each in found), max(each.max for each in found)
    return Bounds(name, low, high) if isinstance(low, int) and isinstance(high, int) else None


def without_value(metadata: pq.FileMetaData, names: Collection[str]) -> Iterator[str]:
    """Yield those of some columns that have no value in a row of a file, as its footer tells."""
    paths = [metadata.schema.column(place).path for place in range(len(metadata.schema))]
    for name in names:
        places = [place for place, path in enumerate(paths) if path.partition(".")[0] == name]
        told = [
            metadata.row_group(group).column(place).statistics
            for place in places
            for group in range(metadata.num_row_groups)
        ]
        if not places or any(each is None or each.null_count for each in told):
            yield name
