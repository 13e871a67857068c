"""Following the log in the driver's own process: while little log waits, Spark is not needed.

What a micro-batch of Spark's does is done here, with the same reader and the same sink. Batches go
from one to the other as they are. Reading and applying take turns, so it is slower than Spark's two
workers where much is to be read; where little is, nothing waits for Spark to plan a micro-batch and
to write down that it did.

A stream that goes on for ever is followed as the server pushes its log, on one connection: what has
come is applied as soon as nothing more has come, and what comes meanwhile is the next batch. How
much log waits is asked when reading begins, and again whenever some megabytes were read: short of
that the answer is no.

A bounded run, and one that carries out requests, ends at a place that the server told. So the end
of the log is asked for, and the log is read up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.stream.log_pace import LogPace
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.stream_task import StreamTask, check_reached

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.changes import ChangeBatch
    from airflow_cdc_provider.columns.source_port import LogEnd, TailReader
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.positions import LogPosition
    from airflow_cdc_provider.engine.sink.port import ChangeSink

_ASK_EVERY_BYTES = 8 * 1024 * 1024
"""Of log that was read, until it is asked how much still waits."""
_HEED_EVERY_S = 0.2
"""How soon a stream that nothing comes to heeds that it is to end."""


class OwnFollower:
    """Follows the log in this process, batch by batch, until more than `most_bytes` wait."""

    def __init__(
        self, task: StreamTask, following: Following, most_bytes: int | None = None
    ) -> None:
        self._task = task
        self._following = following
        self._most_bytes = most_bytes

    def follow(self, start: LogPosition) -> bool:
        """Read and apply the log from a position; False when more waits than may be read here."""
        with closing(_Opened(self._task)) as opened:
            with self._log_end() as log_end:
                if self._following.has_end:
                    return self._follow_to_end(log_end, opened, start)
                if self._is_much(log_end, start):
                    return False
                end = log_end.now()
            return self._follow_as_it_comes(opened, start, end)

    def _log_end(self) -> closing[LogEnd]:
        """Open a session that returns the end of the source's log."""
        return closing(self._task.source.log_end(purpose="end of the log"))

    # --- as the server pushes it --------------------------------------------------------------

    def _follow_as_it_comes(self, opened: _Opened, start: LogPosition, end: LogPosition) -> bool:
        """Apply changes as they arrive, until a stop; False when too much log waits."""
        unasked, sink = 0, opened.sink
        batches = opened.reader(end).follow(batch_s=self._task.max_batch_s, wait_s=_HEED_EVERY_S)
        for batch in self._until_asked(batches):
            if batch is None:
                continue
            for applied in self._apply(sink, _whole(batch, batches)):
                unasked += applied.bytes
                start = applied.end or start
            if unasked >= min(_ASK_EVERY_BYTES, self._most_bytes or _ASK_EVERY_BYTES):
                unasked = 0
                with self._log_end() as log_end:
                    if self._is_much(log_end, start):
                        return False
        return True

    # --- to where it ends ---------------------------------------------------------------------

    def _follow_to_end(self, log_end: LogEnd, opened: _Opened, start: LogPosition) -> bool:
        """Apply the log up to its bound; False when too much log waits."""
        pace = LogPace(log_end, self._following)
        while (end := pace.next_end(start)) is not start:
            if self._is_much(log_end, start):
                return False
            for _ in self._apply(opened.sink, opened.read_up_to(end)):
                pass
            start = end
        return True

    # --- both ---------------------------------------------------------------------------------

    def _is_much(self, log_end: LogEnd, start: LogPosition) -> bool:
        """Tell whether more log waits than this follower takes."""
        if self._most_bytes is None:
            return False
        waiting = log_end.bytes_behind(start)
        return waiting is not None and waiting > self._most_bytes

    def _apply(
        self, sink: ChangeSink, batches: Iterable[ChangeBatch | None]
    ) -> Iterator[ChangeBatch]:
        """Apply batches and yield them; at a stop, a half-read transaction is rolled back.

        The ledger's rows are locked meanwhile; the driver's other threads do not commit idle log.
        """
        following, passed_over = self._following, self._following.passed_over
        with passed_over.micro_batch:
            sink.quiet = passed_over.take()
            coming: tuple[TableId, ...] = ()
            try:
                for batch in self._until_asked(batches):
                    if batch is None:
                        continue
                    sink.apply(batch)
                    coming += batch.barrier.effect.coming if batch.barrier is not None else ()
                    yield batch
            except CdcError as error:
                following.error = error
                raise
            following.note_applied(sink.quiet, coming)

    def _until_asked(self, batches: Iterable[ChangeBatch | None]) -> Iterator[ChangeBatch | None]:
        """Yield batches until the stream is to end."""
        for batch in batches:
            if self._following.ending.is_set():
                return
            yield batch


def _whole(first: ChangeBatch, more: Iterator[ChangeBatch | None]) -> Iterator[ChangeBatch | None]:
    """Yield a batch, and those that follow up to the end of its last transaction."""
    for batch in chain((first,), more):
        yield batch
        if batch is not None and batch.end is not None:
            return


class _Opened:
    """The reader of the log and the sink's writer, each opened when first needed."""

    def __init__(self, task: StreamTask) -> None:
        self._task = task
        self._reader: TailReader | None = None
        self._sink: ChangeSink | None = None

    @property
    def sink(self) -> ChangeSink:
        """Return the sink's writer of changes, opened if needed."""
        if self._sink is None:
            self._sink = self._task.open_changes()
        return self._sink

    def reader(self, end: LogPosition) -> TailReader:
        """Return the reader of the log, on the server whose log's end this is."""
        if self._reader is not None and self._reader.position.server != end.server:
            self._reader.close()
            self._reader = None
        self._reader = self._reader or self._task.open_log(end)
        return self._reader

    def read_up_to(self, end: LogPosition) -> Iterator[ChangeBatch]:
        """Yield the changes up to an end."""
        reader = self.reader(end)
        if not reader.position.reaches(end):
            yield from reader.read_up_to(end, batch_s=self._task.max_batch_s)
            check_reached(reader.position, end)

    def close(self) -> None:
        """Close reader and writer; an open transaction at the sink is rolled back."""
        for each in (self._sink, self._reader):
            if each is not None:
                each.close()
