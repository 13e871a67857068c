"""A commit to an Iceberg table that takes files away and adds others, in one snapshot.

PyIceberg's own way to overwrite keeps each manifest for good, also when nothing in it is left, so
that a commit would cost more with each one before it. Here they are merged as appends merge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Transaction


class _Replaced(_OverwriteFiles, _MergeAppendFiles):
    """Takes files away as an overwrite does, and merges manifests as an append does."""


def replaced_by(
    transaction: Transaction,
    io: FileIO,
    gone: Sequence[DataFile],
    paths: Sequence[str],
    told: Mapping[str, str],
) -> None:
    """Let a commit take files away and add others; `told` is said of its snapshot."""
    if transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    made = parquet_files_to_data_files(io, transaction.table_metadata, iter(paths))
    with _Replaced(
        Operation.OVERWRITE, transaction, io, snapshot_properties=dict(told)
    ) as snapshot:
        for each in gone:
            snapshot.delete_data_file(each)
        for each in made:
            snapshot.append_data_file(each)
