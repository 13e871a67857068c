"""Following the log in the driver's own process: short stretches need no Spark.

What a micro-batch of Spark's does is done here, with the same reader and the same sink: read up to
where the log ends, apply, and keep both connections for the next. Batches go from one to the other
as they are. Reading and applying take turns, so it is slower than Spark's two workers where much
is to be read; where little is, nothing waits for Spark to plan a micro-batch and to write down that
it did. That leaves asking the source where its log ends: every 20 to 50 ms while nothing comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.stream.following import Following
from airflow_cdc_provider.engine.stream.log_pace import LogPace
from airflow_cdc_provider.engine.stream.stream_task import StreamTask, check_reached

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.changes import ChangeBatch
    from airflow_cdc_provider.columns.sink_port import ChangeSink
    from airflow_cdc_provider.columns.source_port import LogEnd, TailReader
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.positions import LogPosition


class OwnFollower:
    """Follows the log, one batch after the other, until more than `most_bytes` wait."""

    def __init__(
        self, task: StreamTask, following: Following, most_bytes: int | None = None
    ) -> None:
        self._task = task
        self._following = following
        self._most_bytes = most_bytes

    def follow(self, start: LogPosition) -> bool:
        """Read and apply from a start; False when more waits."""
        with ExitStack() as stack:
            log_end = stack.enter_context(
                closing(self._task.source.log_end(purpose="end of the log"))
            )
            stretch = stack.enter_context(closing(_Opened(self._task)))
            pace = LogPace(log_end, self._following)
            while (end := pace.next_end(start)) is not start:
                if self._is_much(log_end, start):
                    return False
                self._apply(stretch, end)
                start = end
        return True

    def _is_much(self, log_end: LogEnd, start: LogPosition) -> bool:
        if self._most_bytes is None:
            return False
        waiting = log_end.bytes_behind(start)
        return waiting is not None and waiting > self._most_bytes

    def _apply(self, opened: _Opened, end: LogPosition) -> None:
        """Apply the log up to an end; a transaction half-way is rolled back where asked to end."""
        following, passed_over = self._following, self._following.passed_over
        with passed_over.micro_batch:
            opened.sink.quiet = passed_over.take()
            coming: tuple[TableId, ...] = ()
            try:
                for batch in self._until_asked(opened.read_up_to(end)):
                    opened.sink.apply(batch)
                    coming += batch.barrier.effect.coming if batch.barrier is not None else ()
            except CdcError as error:
                following.error = error
                raise
            following.note_applied(opened.sink.quiet, coming)

    def _until_asked(self, batches: Iterable[ChangeBatch]) -> Iterator[ChangeBatch]:
        for batch in batches:
            if self._following.ending.is_set():
                return
            yield batch


class _Opened:
    """The log and the sink, each opened when it is needed first."""

    def __init__(self, task: StreamTask) -> None:
        self._task = task
        self._reader: TailReader | None = None
        self._sink: ChangeSink | None = None

    @property
    def sink(self) -> ChangeSink:
        if self._sink is None:
            self._sink = self._task.open_changes()
        return self._sink

    def read_up_to(self, end: LogPosition) -> Iterator[ChangeBatch]:
        """Yield the changes up to an end, which may have been told by another server."""
        if self._reader is not None and self._reader.position.server != end.server:
            self._reader.close()
            self._reader = None
        reader = self._reader = self._reader or self._task.open_log(end)
        if not reader.position.reaches(end):
            yield from reader.read_up_to(end, batch_s=self._task.max_batch_s)
            check_reached(reader.position, end)

    def close(self) -> None:
        """Close what is open; a transaction that is open at the sink is rolled back."""
        for each in (self._sink, self._reader):
            if each is not None:
                each.close()
