"""The changes of a table as a stream: what stores them says what offsets are.

The reader lives on the driver's machine for as long as its query, so it reads each manifest once.
Where nothing is new it waits for some time, for Spark asks again at once, for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from airflow_cdc_provider.spark.change_source import partitions_of, read_partition
from airflow_cdc_provider.spark.table_changes import Offset, TableChanges, opened
from airflow_cdc_provider.systems.changelog.reads.ranges import refused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions

_WAIT_S = 0.5


def change_stream(options: ReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream that this PySpark can use, with limits from 4.2 on."""
    try:
        from airflow_cdc_provider.spark.limited_stream import LimitedStream  # noqa: PLC0415 - 4.2
    except ImportError:
        if options.max_files is not None:
            raise refused(
                "maxFilesPerTrigger needs PySpark 4.2 or newer",
                remedy="leave it out: a micro-batch then has all that is there",
            ) from None
        return UnlimitedStream(options, schema)
    return LimitedStream(options, schema)


class ChangeStream(DataSourceStreamReader):
    """Follows one table's changes; what it may read at a time is said by those made of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options, self._schema = options, schema
        self._changes: TableChanges | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Go to executors without the options, which may have a catalog's account."""
        return {}

    def changes(self) -> TableChanges:
        """Return the changes of the table, as they are now."""
        if self._changes is None:
            self._changes = opened(self.options)
        else:
            self._changes.read_on()
        return self._changes

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        return self.changes().initial()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the files between two offsets, together or cut to about one size."""
        chosen = self.changes().between(start, end)
        return partitions_of(chosen, self._schema, where=str(self.options.place))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return read_partition(partition)

    def awaited(
        self, start: Offset, *, most_files: int | None, last: Offset | None, wait_s: float = _WAIT_S
    ) -> Offset:
        """Return the end of the next micro-batch once something is new, or the time is over."""
        deadline = time.monotonic() + wait_s
        while True:
            changes = self.changes()
            found = changes.behind(start, most_files=most_files, last=last)
            if found != start or time.monotonic() >= deadline:
                return found
            time.sleep(changes.look_every_s)


class UnlimitedStream(ChangeStream):
    """Reads all that is there in each micro-batch: all that PySpark 4.0 and 4.1 can ask for."""

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 - as before 4.2
        """Return the end of what is there."""
        return self.changes().end()
