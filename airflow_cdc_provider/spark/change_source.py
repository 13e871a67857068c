"""The data source behind format `cdc`: a table of a change log as rows, once or as a stream.

Spark calls it in workers of its own. Options and columns are looked at on the driver's machine,
files are read on executors, in Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.changelog.reads.change_rows import FilePart, read_parts
from airflow_cdc_provider.systems.changelog.reads.commits import TableCommits
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.parts import parts_of
from airflow_cdc_provider.systems.changelog.reads.ranges import FileRange, file_range, refused
from airflow_cdc_provider.systems.changelog.reads.table_columns import log_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "cdc"


@dataclass
class ChangesPartition(InputPartition):
    """The files that one task reads, with the columns to read."""

    parts: tuple[FilePart, ...]
    columns: pa.Schema
    has_all: bool
    """The files must have no other columns: nobody has said which ones to leave out."""


class ChangeLogSource(DataSource):
    """Reads one table of a change log."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table and of its commits."""
        options = ReadOptions.parse(self.options)
        commits = opened(options)
        behind = file_range(commits, options.ends).behind if commits.files else None
        found = log_columns(commits, options.columns, behind=behind)
        if found is None:
            raise RefusedError(
                f"nothing was written of {options.table} yet, so its columns are not known",
                where=str(options.place),
                risk=NOTHING_STARTED,
                remedy="wait for its first row, or give the columns by .schema(...)",
            )
        return from_arrow_schema(found, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the log once."""
        options = ReadOptions.parse(self.options)
        if options.max_files is not None:
            raise refused(
                "maxFilesPerTrigger is an option of a stream",
                remedy="leave it out, or read as a stream",
            )
        return ChangesReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what follows the log."""
        from airflow_cdc_provider.spark.change_stream import change_stream  # noqa: PLC0415 - for streams only

        return change_stream(ReadOptions.parse(self.options), schema)


class ChangesReader(DataSourceReader):
    """Reads a range of one table's log."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the range, together or cut to about one size."""
        commits = opened(self._options)
        if commits.begin is None:
            raise refused(
                "the snapshot is not finished, and none of its rows counts before",
                remedy="wait until the pipeline's tables are handed off to its stream",
            )
        chosen = file_range(commits, self._options.ends)
        return partitions_of(commits, chosen, self._options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return read_partition(partition, with_truncates=self._options.with_truncates)


def opened(options: ReadOptions) -> TableCommits:
    """Return the commits of the table, as they are now."""
    commits = TableCommits(options.files, options.table)
    commits.read_on()
    return commits


def partitions_of(
    commits: TableCommits, chosen: FileRange, options: ReadOptions, schema: StructType
) -> list[InputPartition]:
    """Return the partitions of some files, with the columns that Spark expects of them."""
    if chosen.first == chosen.behind:
        return []
    columns = _expected_columns(commits, schema, behind=chosen.behind)
    parts = parts_of(commits, chosen, part_bytes=options.part_bytes)
    return [ChangesPartition(each, columns, not options.columns) for each in parts]


def _expected_columns(commits: TableCommits, schema: StructType, *, behind: int) -> pa.Schema:
    """Return the columns of Spark's schema as the log has them; refuse others, and other types."""
    found = log_columns(commits, behind=behind)
    if found is None:
        raise ValueError("a log with files has columns")
    types = {each.name: each.dataType for each in from_arrow_schema(found, True)}  # noqa: FBT003
    for field in schema:
        known = types.get(field.name)
        if known != field.dataType:
            there = "is not there" if known is None else f"is {known.simpleString()}"
            raise RefusedError(
                f"column {field.name} {there} in the log, and {field.dataType.simpleString()} here",
                where=str(commits.root),
                risk="values would be changed or missing; nothing was read",
                remedy="leave out .schema(...), or give the log's types; a stream whose table was "
                "changed since needs a new query with a new checkpoint",
            )
    return found.empty_table().select(schema.names).schema


def read_partition(partition: InputPartition, *, with_truncates: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's files, one file behind the other."""
    if not isinstance(partition, ChangesPartition):
        raise TypeError(f"{partition} is no partition of a change log")
    return read_parts(
        partition.parts,
        partition.columns,
        with_truncates=with_truncates,
        has_all=partition.has_all,
    )
