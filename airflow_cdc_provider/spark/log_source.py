"""The source's log as a Python data source of Structured Streaming.

`latestOffset` runs in one long-lived process of the driver and asks the server over an ordinary
connection where the log ends: a long poll of a second at most, so that an idle stream costs next
to nothing and a change is picked up at once. `read` runs on an executor.

The settings of a stream hold passwords. So they are not options: they are in the pickled class,
which `log_source` makes for each job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from airflow_cdc_provider.columns.source_port import LogEnd
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.errors_as_records import CarriedError
from airflow_cdc_provider.engine.stream.stream_task import BATCH_BYTES, StreamTask
from airflow_cdc_provider.spark.log_offsets import offset_of, position_of
from airflow_cdc_provider.spark.stream_task import LOG_SCHEMA, Turn, read_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SOURCE_NAME = "cdc_log"
LONG_POLL_S = 1.0
_ASK_EVERY_S = (0.02, 0.05, 0.1)


def log_source(task: StreamTask) -> type[DataSource]:
    """Make the data source class of one stream; options are `run`, `start` and `until`."""

    class CdcLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return SOURCE_NAME

        def schema(self) -> str:
            return LOG_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return LogStreamReader(task, dict(self.options))

    return CdcLog


class LogPartition(InputPartition):
    """The one partition of a micro-batch."""

    def __init__(self, end: dict[str, Any], run: str, number: int) -> None:
        super().__init__(number)
        self.end = end
        self.run = run


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Paces micro-batches by the end of the server's log."""

    def __init__(self, task: StreamTask, options: dict[str, str]) -> None:
        self._task = task
        self._run = options["run"]
        self._start = position_of(json.loads(options["start"]))
        until = options.get("until", "")
        self._bound: LogPosition | None = position_of(json.loads(until)) if until else None
        self._log_end: LogEnd | None = None
        self._number = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return offset_of(self._start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self._bound is None:
            with _carrying_errors():
                self._bound = self._asked().now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return where the next micro-batch ends; `start` itself when nothing came in a second."""
        position = position_of(start)
        deadline = time.monotonic() + LONG_POLL_S
        waits = iter(_ASK_EVERY_S)
        wait_s = 0.0
        while True:
            with _carrying_errors():
                end = self._next_end(position)
            if end is not position:
                return offset_of(end)
            if self._bound is not None or time.monotonic() >= deadline:
                return start
            wait_s = next(waits, wait_s)
            time.sleep(wait_s)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        self._number += 1
        return [LogPartition(end, self._run, self._number)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            raise TypeError(f"not a partition of this source: {type(partition).__name__}")
        turn = Turn(partition.run, partition.value)
        return read_log(self._task, turn, position_of(partition.end))

    def _next_end(self, start: LogPosition) -> LogPosition:
        found = self._asked().next_end(start, bound=self._bound, batch_bytes=BATCH_BYTES)
        self._bound = found.bound
        return found.end

    def _asked(self) -> LogEnd:
        if self._log_end is None:
            self._log_end = self._task.source.log_end(purpose="end of the log")
        return self._log_end


@contextmanager
def _carrying_errors() -> Iterator[None]:
    """Spark keeps only an exception's text, so the error's record goes into it."""
    try:
        yield
    except CdcError as error:
        raise CarriedError(error) from None
