"""A commit to an Iceberg table that takes files away and adds others, in one snapshot.

PyIceberg's own way to overwrite keeps each manifest for good, also when nothing in it is left, so
that a commit would cost more with each one before it. Here they are merged as appends merge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile


class Replacing(_OverwriteFiles, _MergeAppendFiles):
    """Takes files away as an overwrite does, and merges manifests as an append does."""

    def put(self, paths: Sequence[str], gone: Sequence[DataFile]) -> None:
        """Put the files at these paths in the place of others."""
        transaction = self._transaction
        if transaction.table_metadata.name_mapping() is None:
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        for each in gone:
            self.delete_data_file(each)
        metadata = transaction.table_metadata
        for each in parquet_files_to_data_files(self._io, metadata, iter(paths)):
            self.append_data_file(each)


class Rewriting(Replacing):
    """Says of its snapshot that it has the same rows, so that readers of changes pass over it."""

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        """Return what is told of the snapshot; the library knows no totals of such ones."""
        found = super()._summary(dict(snapshot_properties or {}))
        return Summary(Operation.REPLACE, **found.additional_properties)
