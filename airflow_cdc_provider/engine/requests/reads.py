"""Reading splits again, one ahead of the one that joins."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import count, cycle
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.source_port import SplitReader
from airflow_cdc_provider.core.errors import SplitTooBigError
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import KeyList, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.readings import split_reading
from airflow_cdc_provider.engine.requests.read_gate import ReadGate
from airflow_cdc_provider.engine.requests.side_by_side import ReaderRoom

if TYPE_CHECKING:
    import pyarrow as pa


LOOK_EVERY_S = 0.2
"""How often a request looks, while it waits for a read, whether it goes on."""


@dataclass(frozen=True, slots=True)
class Read:
    """A split's rows and report, and the reader that can still give its log."""

    reader: SplitReader
    split: SnapshotSplit
    rows: SplitRows
    report: SplitReport
    listed: pa.RecordBatch | None = None
    """The keys whose rows were read, where these are the split's."""


@dataclass(frozen=True, slots=True)
class HeldReads:
    """What holds up the reads of a request: the throttle, and a look whether it goes on."""

    gate: ReadGate
    look: Callable[[str], None]
    """Called in the request's own thread with why a split waits, empty if none does."""


class ReadAhead:
    """Reads splits in order, the next one in a thread while the caller joins this one.

    A reader still gives the log of the split it read, so the next is read by another reader.
    """

    def __init__(
        self,
        halves: Callable[[SnapshotSplit], Sequence[SnapshotSplit]],
        readers: Sequence[SplitReader],
        splits: Iterator[SnapshotSplit],
        number: int,
        held: HeldReads,
    ) -> None:
        """`halves` cuts a split that is too big in two."""
        self._halves_of = halves
        self._gate, self._look = held.gate, held.look
        self._closing = threading.Event()
        self._splits = splits
        self._numbers = count(number)
        self._halves: deque[SnapshotSplit] = deque()
        self._readers = readers
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cdc-reads-again")

    def close(self) -> None:
        """Close the readers' connections, after a read that is under way."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)
        for reader in self._readers:
            reader.close()

    def __iter__(self) -> Iterator[Read]:
        readers = cycle(self._readers)
        is_ahead = len(self._readers) > 1
        reading = self._begun(next(readers))
        while (read := self._result(reading)) is not None:
            if is_ahead:
                reading = self._begun(next(readers))
                yield read
            else:  # its log is read first
                yield read
                reading = self._begun(next(readers))

    def _result(self, reading: Future[Read | None]) -> Read | None:
        """Wait for a read, and meanwhile look whether the request goes on."""
        while not wait([reading], LOOK_EVERY_S).done:
            self._look(self._gate.why)
        return reading.result()

    def _begun(self, reader: SplitReader) -> Future[Read | None]:
        """Start to read the next split in the pool; its connections count as this thread's."""
        return self._pool.submit(copy_context().run, self._next, reader)

    def _next(self, reader: SplitReader) -> Read | None:
        """Read the next split, None if no split is left; one that is too big is cut in two."""
        while (split := self._take()) is not None:
            leave = self._gate.enter(split.table, self._pause)
            try:
                rows, report = reader.read(split)
                self._gate.read(leave, split.table, rows=report.rows, size=report.bytes)
                return Read(reader, split, rows, report)
            except SplitTooBigError:
                self._halves.extendleft(reversed(self._halves_of(split)))
        return None

    def _pause(self, seconds: float) -> None:
        """Wait for the throttle, unless the reads are closed meanwhile."""
        if self._closing.wait(seconds):
            raise CancelledError

    def _take(self) -> SnapshotSplit | None:
        """Return the next split with its number; numbers follow the order of ranges."""
        split = self._halves.popleft() if self._halves else next(self._splits, None)
        return None if split is None else replace(split, number=next(self._numbers))


def halves_of(
    job: Job, plan: TablePlan, split: SnapshotSplit
) -> tuple[SnapshotSplit, SnapshotSplit]:
    """Cut a split that is too big in two: its key list if it has one, else its range."""
    if isinstance(split.chosen, KeyList) and len(split.chosen.keys) > 1:
        keys, half = split.chosen.keys, len(split.chosen.keys) // 2
        one, other = (replace(split.chosen, keys=part) for part in (keys[:half], keys[half:]))
        return replace(split, chosen=one), replace(split, chosen=other)
    plan.require_cuttable()
    middle = job.source().middle_of(split)
    return (
        replace(split, keys=KeyRange(split.keys.start, middle)),
        replace(split, keys=KeyRange(middle, split.keys.end)),
    )


def open_readers(job: Job, schema: TableSchema, numbers: Sequence[int]) -> list[SplitReader]:
    """Open one split reader of a table for each of `numbers`."""
    schemas = {schema.table: schema}
    return [
        job.source().split_reader(split_reading(job.spec, schemas, reader=number, backfill=True))
        for number in numbers
    ]


def room_for_readers(job: Job) -> ReaderRoom:
    """Return the connections and readers that requests may have at the source."""
    source, spec = job.source(), job.spec
    most = source.most_readers(spec.source_options) - 1  # one is the stream's
    return ReaderRoom(spec.max_connections, most, source.connections_a_reader(backfill=True))
