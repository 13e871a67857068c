"""The stream's work on executors: reading the log, and applying what was read.

Both run in the one task of a micro-batch, in two Python workers with Spark in between, so that
decoding and applying overlap, and a slow sink slows the reader down instead of filling memory.

Spark reuses Python workers, so the log connection and the sink stay open in them between
micro-batches. This is an optimisation that must never be believed blindly: Spark may hand the next
micro-batch to another worker, and then what is kept here is out of date. So a kept connection
is used only by the micro-batch that directly follows the one it was kept by, in the same run;
else it is closed, and reading starts where the sink's ledger says.

Expected failures leave as rows, because of an exception Spark would keep only the text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from airflow_cdc_provider.columns.arrow_arrays import binaries_of, mask_of, texts_of
from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import TailReader
from airflow_cdc_provider.core.codec import dumps, idle_range_to_json
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.sink.port import ChangeSink
from airflow_cdc_provider.engine.stream.stream_control import ERROR
from airflow_cdc_provider.engine.stream.stream_task import StreamTask, check_reached
from airflow_cdc_provider.spark.batch_codec import decode, encode, joined, parts_of

log = logging.getLogger(__name__)

LOG_SCHEMA = "kind string, last boolean, part binary"
APPLIED_SCHEMA = "kind string, body string"
_ARROW_LOG = pa.schema([("kind", pa.string()), ("last", pa.bool_()), ("part", pa.binary())])
_ARROW_APPLIED = pa.schema([("kind", pa.string()), ("body", pa.string())])
PART, APPLIED = "part", "applied"


@dataclass(frozen=True, slots=True)
class BatchNumber:
    """The number of a micro-batch in its run."""

    run: str
    number: int

    def follows(self, other: BatchNumber) -> bool:
        """Tell whether this is the micro-batch right after another."""
        return self == BatchNumber(other.run, other.number + 1)


class _Closeable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closeable)


@dataclass(slots=True)
class WorkerCache(Generic[T]):
    """One open object that a Spark worker keeps between micro-batches."""

    opened: T | None = None
    after: BatchNumber = field(default_factory=lambda: BatchNumber("", 0))

    def take(self, turn: BatchNumber) -> T | None:
        """Return the object that the last micro-batch kept; close any older one."""
        opened, self.opened = self.opened, None
        if opened is not None and not turn.follows(self.after):
            opened.close()
            return None
        return opened

    def keep(self, opened: T, turn: BatchNumber) -> None:
        """Keep an open object for the next micro-batch."""
        self.opened, self.after = opened, turn

    def close(self) -> None:
        """Close the object that is kept."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()


_log_reader: WorkerCache[TailReader] = WorkerCache()
_change_sink: WorkerCache[ChangeSink] = WorkerCache()


def is_first_attempt() -> bool:
    """Tell whether this task of Spark is its first attempt.

    What was kept before is no good for another attempt: the first may have committed a part.
    """
    context = TaskContext.get()
    return context is not None and context.attemptNumber() == 0


def read_log(
    task: StreamTask, turn: BatchNumber, end: LogPosition, *, keeps: bool
) -> Iterator[pa.RecordBatch]:
    """Read the log up to `end`; yield parts of encoded batches, or one row with an error.

    With `keeps` the connection of the micro-batch before is used, and kept for the next.
    """
    reader: TailReader | None = None
    is_whole = False
    try:
        reader = _log_reader.take(turn) if keeps else None
        if reader is not None and reader.position.server != end.server:
            reader.close()
            reader = None
        if reader is None:
            reader = task.open_log(end)
        if not reader.position.reaches(end):
            for batch in reader.read_up_to(end, batch_s=task.max_batch_s):
                yield from _part_rows(batch)
            check_reached(reader.position, end)
        is_whole = True
    except CdcError as error:
        yield _row(ERROR, dumps(error.to_json()).encode())
    finally:
        # also when Spark stops reading half-way: the connection is then ahead of the sink
        if reader is not None and is_whole and keeps:
            _log_reader.keep(reader, turn)
        elif reader is not None:
            reader.close()


def apply_changes(
    task: StreamTask,
    turn: BatchNumber,
    quiet: IdleRange | None,
    rows: Iterable[pa.RecordBatch],
    *,
    keeps: bool,
) -> Iterator[pa.RecordBatch]:
    """Apply the batches in `rows`; yield one row of counts, or one with an error.

    `quiet` is log that the micro-batches before this one have passed over.
    """
    sink: ChangeSink | None = None
    is_whole = False
    changes = 0
    coming: tuple[TableId, ...] = ()
    try:
        sink = (_change_sink.take(turn) if keeps else None) or task.open_changes()
        sink.quiet = quiet
        for encoded in joined(_parts(rows)):
            batch = decode(encoded)
            committed = sink.apply(batch)
            coming += batch.barrier.effect.coming if batch.barrier is not None else ()
            changes += committed.changes if committed is not None else 0
        is_whole = True
        log.debug("micro-batch applied: turn=%s changes=%d", turn, changes)
        told = {"quiet": idle_range_to_json(sink.quiet), "coming": [str(table) for table in coming]}
        yield _applied_row(APPLIED, {"changes": changes, **told})
    except CdcError as error:
        yield _applied_row(ERROR, error.to_json())
    finally:
        if sink is not None and is_whole and keeps:
            _change_sink.keep(sink, turn)
        elif sink is not None:
            sink.close()


def _part_rows(batch: ChangeBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows that carry one encoded batch."""
    for part, is_last in parts_of(encode(batch)):
        yield _row(PART, part, is_last=is_last)


def _row(kind: str, part: bytes, *, is_last: bool = True) -> pa.RecordBatch:
    """Return one row of the log reader's output."""
    return pa.RecordBatch.from_arrays(
        [texts_of([kind]), mask_of([is_last]), binaries_of([part])], schema=_ARROW_LOG
    )


def _parts(rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bool]]:
    """Yield the parts in `rows`, or raise the error that the log reader sent."""
    for batch in rows:
        for kind, is_last, part in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            if kind == ERROR:
                raise CdcError.from_json(json.loads(part))
            yield part, is_last


def _applied_row(kind: str, body: object) -> pa.RecordBatch:
    """Return one row of the log writer's output."""
    return pa.RecordBatch.from_arrays(
        [texts_of([kind]), texts_of([json.dumps(body)])], schema=_ARROW_APPLIED
    )
