"""A stream of changes that reads only so much at a time, and ends where Spark says.

It needs PySpark 4.2: before, Spark neither told a Python source a limit nor where to end.
"""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from airflow_cdc_provider.spark.change_stream import ChangeStream
from airflow_cdc_provider.spark.table_changes import Offset


class LimitedStream(ChangeStream, SupportsTriggerAvailableNow):
    """Follows one table's changes with `maxFilesPerTrigger` and `availableNow`."""

    _last: Offset | None = None
    """Where a run of `availableNow` ends."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch may have."""
        most = self.options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what is there now; nothing that comes later is read in this run."""
        self._last = self.changes().end()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; the start again if nothing is new."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        if self._last is None:
            return self.awaited(start, most_files=most, last=None)
        return self.awaited(start, most_files=most, last=self._last, wait_s=0.0)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of what is there, so that progress tells the lag."""
        return self.changes().end()
