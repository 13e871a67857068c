"""Commits to an Iceberg table: files that are added, and others that are taken away for them.

PyIceberg's own way to add files guesses their partitions from their footers, which do not tell all
of them. Its own way to overwrite keeps each manifest for good, also when nothing in it is left, so
that a commit would cost more with each one before it. Here they are merged as appends merge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from airflow_cdc_provider.systems.lake.tables import table


class OneLook(Transaction):
    """Works out what its table would be once for each update.

    The library does so at each look, some fifteen times a commit, and copies all snapshots for it.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._seen: tuple[TableMetadata, object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """Return what the table would be after the updates so far."""
        base, updates, seen = self._table.metadata, self._updates, self._seen
        if seen is None or seen[0] is not base or seen[1] is not updates:
            self._seen = seen = base, updates, super().table_metadata
        return seen[2]

    def commit_transaction(self) -> Table:
        """Commit. The library asks for the table's identity alone here, which no update changes."""
        self._seen = self._table.metadata, self._updates, self._table.metadata
        return super().commit_transaction()


class Replacing(_OverwriteFiles, _MergeAppendFiles):
    """Takes files away as an overwrite does, and merges manifests as an append does."""

    def put(self, root: str, files: Sequence[table.DataFile], gone: Sequence[DataFile]) -> None:
        """Put files below a root in the place of others."""
        for each in gone:
            self.delete_data_file(each)
        put_files(self._transaction, self, root, files)


class Rewriting(Replacing):
    """Says of its snapshot that it has the same rows, so that readers of changes pass over it."""

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        """Return what is told of the snapshot; the library knows no totals of such ones."""
        found = super()._summary(dict(snapshot_properties or {}))
        return Summary(Operation.REPLACE, **found.additional_properties)


def put_files(
    transaction: Transaction,
    snapshot: _SnapshotProducer[Any],
    root: str,
    files: Sequence[table.DataFile],
) -> None:
    """Add files below a root to a snapshot; their columns are matched by name."""
    if transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    metadata = transaction.table_metadata
    for each in files:
        path = f"{root}/{each.name}"
        snapshot.append_data_file(_described(snapshot._io, metadata, path, each))  # noqa: SLF001 - as the library's own


def _described(io: FileIO, metadata: TableMetadata, path: str, file: table.DataFile) -> DataFile:
    """Return what a manifest says of a file: its footer's numbers, and its partition."""
    with io.new_input(path).open() as stream:
        footer = pq.read_metadata(stream)
    found = _statistics(footer, metadata)
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        **found.to_serialized_dict(),
    )
    described.spec_id = metadata.default_spec_id
    return described


def _statistics(footer: pq.FileMetaData, metadata: TableMetadata) -> DataFileStatistics:
    """Return the numbers of a footer; dates of the year 0, which Python lacks, have no bounds."""
    schema = metadata.schema()
    plan = compute_statistics_plan(schema, metadata.properties)
    names = parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(footer, plan, names)
    except OverflowError:
        dated, counts = (
            DateType | TimestampType | TimestamptzType,
            MetricsMode(MetricModeTypes.COUNTS),
        )
        plain = {
            number: replace(each, mode=counts) if isinstance(each.iceberg_type, dated) else each
            for number, each in plan.items()
        }
        return data_file_statistics_from_parquet_metadata(footer, plain, names)
