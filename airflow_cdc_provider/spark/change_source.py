"""The data source behind format `cdc`: the changes of a table as rows, once or as a stream.

Spark calls it in workers of its own. Options and columns are looked at on the driver's machine,
files are read on executors, in Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.spark.table_changes import ChosenChanges, TaskPart, opened
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.ranges import refused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "cdc"


@dataclass
class ChangesPartition(InputPartition):
    """What one task reads."""

    part: TaskPart


class ChangeSource(DataSource):
    """Reads the changes of one table, of a change log or of a lake."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table and of its commits."""
        options = ReadOptions.parse(self.options)
        found = opened(options).columns()
        if found is None:
            raise RefusedError(
                f"nothing was written of {options.table} yet, so its columns are not known",
                where=str(options.place),
                risk=NOTHING_STARTED,
                remedy="wait for its first row, or give the columns by .schema(...)",
            )
        return from_arrow_schema(found, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the changes once."""
        options = ReadOptions.parse(self.options)
        if options.max_files is not None:
            raise refused(
                "maxFilesPerTrigger is an option of a stream",
                remedy="leave it out, or read as a stream",
            )
        return ChangesReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what follows the changes."""
        from airflow_cdc_provider.spark.change_stream import change_stream  # noqa: PLC0415 - for streams only

        return change_stream(ReadOptions.parse(self.options), schema)


class ChangesReader(DataSourceReader):
    """Reads a range of one table's changes."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def __getstate__(self) -> dict[str, Any]:
        """Go to executors without the options, which may have a catalog's account."""
        return {}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the range, together or cut to about one size."""
        chosen = opened(self._options).asked()
        return partitions_of(chosen, self._schema, where=str(self._options.place))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; none for that which Spark puts where there are none."""
        if type(partition) is InputPartition and partition.value is None:
            return iter(())
        return read_partition(partition)


def partitions_of(chosen: ChosenChanges, schema: StructType, *, where: str) -> list[InputPartition]:
    """Return the partitions of a range, with the columns that Spark expects of them."""
    if chosen.is_empty:
        return []
    columns = _expected_columns(chosen, schema, where)
    return [ChangesPartition(each) for each in chosen.parts(columns)]


def _expected_columns(chosen: ChosenChanges, schema: StructType, where: str) -> pa.Schema:
    """Return the columns of Spark's schema as they are stored; refuse others, and other types."""
    found = chosen.columns()
    if found is None:
        raise ValueError("changes that are there have columns")
    types = {each.name: each.dataType for each in from_arrow_schema(found, True)}  # noqa: FBT003
    for field in schema:
        known = types.get(field.name)
        if known != field.dataType:
            there = "is not there" if known is None else f"is {known.simpleString()}"
            raise RefusedError(
                f"column {field.name} {there} in the log, and {field.dataType.simpleString()} here",
                where=where,
                risk="values would be changed or missing; nothing was read",
                remedy="leave out .schema(...), or give the log's types; a stream whose table was "
                "changed since needs a new query with a new checkpoint",
            )
    return found.empty_table().select(schema.names).schema


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's files, one file behind the other."""
    if not isinstance(partition, ChangesPartition):
        raise TypeError(f"{partition} is no partition of changes")
    return partition.part.batches()
