"""Following the log in the driver's own process: short stretches need no Spark.

What a micro-batch of Spark's does is done here, by the same functions: read up to where the log
ends, apply, and keep both connections for the next. Reading and applying take turns, so it is
slower than Spark's two workers where much is to be read; where little is, nothing waits for Spark
to plan a micro-batch and to write down that it did. That leaves asking the source where its log
ends: every 20 to 50 ms while nothing comes.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.engine.stream.following import Following
from airflow_cdc_provider.engine.stream.stream_task import (
    BATCH_BYTES,
    Kept,
    StreamTask,
    Turn,
    apply_changes,
    read_log,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.sink_port import ChangeSink
    from airflow_cdc_provider.columns.source_port import LogEnd, TailReader
    from airflow_cdc_provider.core.positions import LogPosition

_ASK_EVERY_S = (0.02, 0.05)


class OwnFollower:
    """Follows the log, one micro-batch after the other, until more than `most_bytes` wait."""

    def __init__(
        self, task: StreamTask, following: Following, most_bytes: int | None = None
    ) -> None:
        self._task = task
        self._following = following
        self._most_bytes = most_bytes
        self._bound = following.bound

    def follow(self, start: LogPosition) -> bool:
        """Read and apply from a start; False when more waits."""
        self._bound = self._following.bound
        reader: Kept[TailReader] = Kept()
        sink: Kept[ChangeSink] = Kept()
        run = uuid.uuid4().hex
        with ExitStack() as stack:
            log_end = stack.enter_context(
                closing(self._task.source.log_end(purpose="end of the log"))
            )
            stack.enter_context(closing(reader))
            stack.enter_context(closing(sink))
            for turn in (Turn(run, number) for number in itertools.count(1)):
                end = self._next_end(log_end, start)
                if end is start:
                    return True
                if self._is_much(log_end, start):
                    return False
                self._apply(turn, read_log(self._task, turn, end, kept=reader), sink)
                start = end
        return True

    def _next_end(self, log_end: LogEnd, start: LogPosition) -> LogPosition:
        """Wait for log to read; `start` itself at the bound, or when the end is asked for."""
        waits, wait_s = iter(_ASK_EVERY_S), 0.0
        while not self._following.ending.wait(wait_s):
            self._bound = self._bound or self._following.bound
            found = log_end.next_end(start, bound=self._bound, batch_bytes=BATCH_BYTES)
            self._bound = found.bound
            if found.end is not start or self._bound is not None:
                return found.end
            wait_s = next(waits, wait_s)
        return start

    def _is_much(self, log_end: LogEnd, start: LogPosition) -> bool:
        if self._most_bytes is None:
            return False
        waiting = log_end.bytes_behind(start)
        return waiting is not None and waiting > self._most_bytes

    def _apply(self, turn: Turn, rows: Iterable[pa.RecordBatch], kept: Kept[ChangeSink]) -> None:
        passed_over = self._following.passed_over
        with passed_over.micro_batch:
            quiet, rows = passed_over.take(), self._until_asked(rows)
            for batch in apply_changes(self._task, turn, quiet, rows, kept=kept):
                self._following.note((row["kind"], row["body"]) for row in batch.to_pylist())

    def _until_asked(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand rows on until the end is asked for; a transaction half-way is rolled back."""
        for row in rows:
            if self._following.ending.is_set():
                return
            yield row
