"""Small files of a table of changes become larger ones, now and then: each row stays as it is.

Each commit of changes adds a file to each partition that has any. Once a partition has so many
small ones, all of them become one, or a few, by a commit of its own which says that the rows are
the same. What is written again is little, for a file that has grown is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import TableLayout
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.partitions import Partition
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles
from airflow_cdc_provider.systems.lake.table_columns import columns_with
from airflow_cdc_provider.systems.lake.tables.table import LoadedTable, Stamp, TableFile

_SMALL_BYTES = 16 * 1024 * 1024
_SMALL_READ_BYTES = 4 * 1024 * 1024
"""A file of a first snapshot's rows is left alone from there on: it comes once, and in good order.

So that a large table is not written twice, splits are so large that its files are.
"""
_MOST = 16
"""Small files that a table may have."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Files that take the place of others with the same rows."""

    gone: Sequence[TableFile]
    out: SortedFiles

    def commit(self, loaded: LoadedTable, stamp: Stamp) -> None:
        """Put them in their place; `stamp` is what the table says already."""
        loaded.replace(self.gone, self.out.made, self.out.columns, stamp, are_same_rows=True)

    def is_in(self, loaded: LoadedTable | None) -> bool:
        """Tell whether a table has one of them."""
        files = () if loaded is None else loaded.files(ORDER)
        names = {each.path.rpartition("/")[2] for each in files}
        return any(each.name.rpartition("/")[2] in names for each in self.out.made)


def _is_small(file: TableFile) -> bool:
    """Tell whether a file is better joined to others."""
    is_read = file.bounds is not None and file.bounds.high == SNAPSHOT_ORDER
    return file.bytes < (_SMALL_READ_BYTES if is_read else _SMALL_BYTES)


def compacted(
    store: ObjectStore, table: TableId, loaded: LoadedTable, layout: TableLayout
) -> Compacted | None:
    """Write the rows of a partition's small files to larger ones; None if there are not many.

    `layout` is the one that the table is to have. If it fails, no file that was made is left.
    """
    if loaded.partitions is None:
        return None
    small: dict[Partition | None, list[TableFile]] = {}
    for each in loaded.files(ORDER):
        if _is_small(each):
            small.setdefault(each.partition, []).append(each)
    many = [files for files in small.values() if len(files) >= _MOST]
    if not many:
        return None
    columns = columns_with(table, loaded.columns, (), widens=False)
    layout = replace(layout, partitions=loaded.partitions)
    with SortedFiles(store, table_folder(table), columns, [ORDER], "compact", layout) as out:
        for files in many:
            for each in files:
                for batch in each.batches(columns.names):
                    out.add(pa.Table.from_batches([batch]))
            out.end()
    return Compacted(list(chain.from_iterable(many)), out)
