"""Many files of the log become those of a table that has partitions, or rows in an order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.gathered import batches_of, changed
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles
from airflow_cdc_provider.systems.lake.tables.table import DataFile


def laid_out(
    out: SortedFiles, store: ObjectStore, files: Sequence[SealedFile]
) -> Sequence[DataFile]:
    """Write the rows of a folder's files to new ones as these are laid out; return those.

    If it fails there are none.
    """
    wanted, rows = sum(each.rows for each in files), 0
    with out:
        for each in files:
            for batch in batches_of(store, each, out.columns):
                rows += batch.num_rows
                out.add(pa.Table.from_batches([batch]))
        if rows != wanted:
            raise changed(store, files, rows, wanted)
    return out.made
