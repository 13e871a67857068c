"""A stream of a change log that reads only so much at a time, and ends where Spark says.

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
from airflow_cdc_provider.systems.changelog.reads.offsets import Offset, StreamOffset


class LimitedStream(ChangeStream, SupportsTriggerAvailableNow):
    """Follows one table's log with `maxFilesPerTrigger` and `availableNow`."""

    _target: int | None = None
    """The number of files at which a run of `availableNow` ends."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch may have."""
        most = self.options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what is there now; nothing that comes later is read in this run."""
        self._target = len(self.commits().files)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; the start again if nothing is new."""
        begun = StreamOffset.of_json(start)
        commits = (
            self.awaited(begun, wait_s=0.0) if self._target is not None else self.awaited(begun)
        )
        behind = len(commits.files) if self._target is None else self._target
        if isinstance(limit, ReadMaxFiles):
            behind = min(behind, begun.files + limit.max_files)
        if behind <= begun.files:
            return start
        return StreamOffset.behind(commits, behind).to_json()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of what is there, so that progress tells the lag."""
        commits = self.commits()
        return StreamOffset.behind(commits, len(commits.files)).to_json()
