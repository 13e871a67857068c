"""Reading the rows again that are chosen by their values, while their table flows on.

A column of theirs lies in an interval, or they meet a condition. Either is said below of an
interval. A row is in it by its values, which may change at any moment, and the sink's may have
drifted. So nothing is written or deleted because of where a value lies: **each key is made what the
source has of it** at the place where it joins. The interval only says which keys are looked at:

1. the keys of rows that the sink has in the interval;
2. the keys of rows that the source has in it, when they are read behind L;
3. every key of the table that the log has changed behind L.

Of the first, those that are not among the second are read too, by their keys, behind an L of their
own: the source has no such row, then the sink's is deleted; or has it with a value outside, then
that row is written. What the log has changed since L stands as the log left it (`joined_rows`).

Why these are enough, at the stream's position P, which is past H:

- A row that the source has in the interval at P was so at L and is read, for nothing has changed it
  since; or it was changed, and is among those that the log has touched. It does not matter whether
  that moved it in, out and in again, or to another key.
- A row that the sink has in the interval, and the source has not at P, was there when the sink was
  looked at. Then its key is among the first, and if it was read and has moved out since, among the
  third. Or it has come since: the stream brought it, and then it is the source's; or somebody else
  did, and the next backfill finds it.

So the same interval twice, and several at once, end the same: each join writes what the source has
at the stream's own position, and nobody sees an older state.

A condition must say the same of the same row each time, for the second line speaks of L and of P:
`NOW()` or another table's rows would not. Where the two servers judge a row differently, as by
another collation, that is about who is found at the sink alone, and nothing wrong is written.

An interval is read in pieces: of its column where an index finds them, else of the key, and then
every row of the table is looked at. What meets a condition is one piece where an index finds its
few rows. Listed keys join before the piece that they were found in, so a
piece that is in the ledger is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.backfill import staying
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.shaping import shaped_rows, source_keys
from airflow_cdc_provider.columns.source_port import Boundaries, Cuts, SplitReader
from airflow_cdc_provider.core.errors import SplitTooBigError
from airflow_cdc_provider.core.keys import KeyPart, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.splits import (
    Chosen,
    Condition,
    Interval,
    KeyList,
    SnapshotSplit,
)
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.ranges import left_of, splits_of
from airflow_cdc_provider.engine.requests.reads import HeldReads, Read, halves_of
from airflow_cdc_provider.engine.sink.port import JoinSink

_LISTED_AT_ONCE = 2_000
"""More would leave the optimizer's memory for ranges, and it would read the whole table."""
_WHOLE = KeyRange()


class ChosenReads:
    """Reads splits of rows chosen by value, one by one; first the rows that only the sink has."""

    def __init__(
        self,
        job: Job,
        readers: Sequence[SplitReader],
        sink: JoinSink,
        plan: TablePlan,
        pieces: tuple[Iterator[SnapshotSplit], int],
        held: HeldReads,
    ) -> None:
        self._job = job
        self._sink = sink
        self._plan = plan
        self._pieces, number = pieces
        self._gate, self._look = held.gate, held.look
        self._numbers = count(number)
        self._readers = readers

    def close(self) -> None:
        """Close the readers' connections."""
        for reader in self._readers:
            reader.close()

    def __iter__(self) -> Iterator[Read]:
        for piece in self._pieces:
            waiting = deque([piece])
            while waiting:
                first = waiting.popleft()
                try:
                    yield from self._read(first)
                except SplitTooBigError:
                    waiting.extendleft(reversed(halves_of(self._job, self._plan, first)))

    def _read(self, piece: SnapshotSplit) -> Iterator[Read]:
        """Read one split: first its keys that only the sink has, then its rows."""
        leave = self._gate.enter(piece.table, self._pause)
        piece = replace(piece, number=next(self._numbers))
        held = self._sink.held_keys(piece)
        reader, other = self._readers[0], self._readers[-1]
        rows, report = reader.read(piece)
        self._gate.read(leave, piece.table, rows=report.rows, size=report.bytes)
        at_sink = shaped_rows(rows, self._plan)
        only_held = missing_from(held, at_sink, self._plan.target.primary_key)
        # these do not wait: the piece was read, and the log since then is to stay short
        for read in listed_reads(other, piece, source_keys(only_held, self._plan), self._numbers):
            self._gate.charge(piece.table, rows=read.report.rows, size=read.report.bytes)
            yield read
        yield Read(reader, piece, rows, report)

    def _pause(self, seconds: float) -> None:
        """Wait for the throttle, and look whether the request goes on."""
        self._look(self._gate.why)
        time.sleep(seconds)


def missing_from(held: pa.Table, rows: SplitRows, key: Sequence[str]) -> pa.Table:
    """Return the keys that the sink has and that were not read at the source."""
    keys = held.select(list(key)).cast(pa.schema([rows.schema.field(name) for name in key]))
    keys = keys.combine_chunks()
    read = [batch.select(list(key)) for batch in rows.batches()]
    return keys.filter(mask_of(staying(keys, read, key)))


def listed_reads(
    reader: SplitReader, like: SnapshotSplit, keys: pa.Table, numbers: Iterator[int]
) -> Iterator[Read]:
    """Read the rows that have one of `keys`, in slices."""
    for listed in _in_slices(keys):
        split = replace(like, number=next(numbers), listed=True)
        rows, report = reader.read(split, listed)
        yield Read(reader, split, rows, report, listed)


def _in_slices(keys: pa.Table) -> Iterator[pa.RecordBatch]:
    """Cut a table of keys into batches that fit one query."""
    for batch in keys.combine_chunks().to_batches():
        for at in range(0, batch.num_rows, _LISTED_AT_ONCE):
            yield batch.slice(at, _LISTED_AT_ONCE)


def pieces_of(
    schema: TableSchema,
    scope: Scope,
    joined: Sequence[SnapshotSplit],
    find: tuple[Cuts, Boundaries],
) -> Iterator[SnapshotSplit]:
    """Yield splits for the chosen rows that have not joined the sink yet."""
    cuts, boundaries = find
    done = sorted((each for each in joined if not each.listed), key=lambda split: split.number)
    by_index = None
    if isinstance(scope.chosen, Interval):
        by_index = _by_column(schema, scope.chosen, done, cuts)
    elif isinstance(scope.chosen, KeyList):
        by_index = _by_list(schema, scope.chosen, done)
    elif scope.chosen is not None and not (done or scope.ranges):
        by_index = _at_once(schema, scope.chosen, cuts)
    yield from _by_key(schema, scope, done, boundaries) if by_index is None else by_index


def _by_column(
    schema: TableSchema, interval: Interval, done: Sequence[SnapshotSplit], cuts: Cuts
) -> Iterator[SnapshotSplit] | None:
    """Return splits by values of a column, None if the rows are read by ranges of the key."""
    left = _rest_of(interval, done)
    by_column = any(split.chosen != interval for split in done)
    values = cuts(schema, left) if left is not None and (by_column or not done) else None
    if not by_column and values is None:
        return None
    return _of_column(schema, left, done, values or ())


def _at_once(
    schema: TableSchema, condition: Condition, cuts: Cuts
) -> Iterator[SnapshotSplit] | None:
    """Return one split for a condition, None if no index finds the few rows that meet it."""
    if cuts(schema, condition) is None:
        return None
    return iter([_piece(schema, _WHOLE, condition)])


def _by_list(
    schema: TableSchema, listed: KeyList, done: Sequence[SnapshotSplit]
) -> Iterator[SnapshotSplit]:
    """Yield one split for the listed keys that have not joined yet, if any are left.

    A split that was too big has joined as parts of its list.
    """
    joined = {key for s in done if isinstance(s.chosen, KeyList) for key in s.chosen.keys}
    left = tuple(key for key in listed.keys if key not in joined)
    if left:
        yield _piece(schema, _WHOLE, replace(listed, keys=left))


def _by_key(
    schema: TableSchema, scope: Scope, done: Sequence[SnapshotSplit], boundaries: Boundaries
) -> Iterator[SnapshotSplit]:
    """Yield splits by ranges of the key, each with the condition that chooses its rows."""
    for keys in left_of(scope.parts, done):
        for split in splits_of(schema, keys, boundaries(schema, keys.start)):
            yield replace(split, chosen=scope.chosen)


def _piece(schema: TableSchema, keys: KeyRange, chosen: Chosen) -> SnapshotSplit:
    """Make a split of a key range and a condition."""
    return SnapshotSplit(schema.table, 0, schema.primary_key, schema.key_kinds, keys, chosen)


def _rest_of(interval: Interval, done: Sequence[SnapshotSplit]) -> Interval | None:
    """Return the part of a column's interval after the last joined split; None if none is left."""
    last = done[-1].chosen if done else None
    if not isinstance(last, Interval):
        return interval
    return None if last.end == interval.end else replace(interval, start=last.end)


def _of_column(
    schema: TableSchema,
    left: Interval | None,
    done: Sequence[SnapshotSplit],
    cuts: Iterable[KeyPart],
) -> Iterator[SnapshotSplit]:
    """Yield splits of a column's interval; first the rest of the last split, if that was cut."""
    if done and done[-1].keys.end is not None:  # more rows than a piece may have had one value
        yield replace(done[-1], keys=KeyRange(done[-1].keys.end, None))
    if left is None:
        return
    start = left.start
    for end in chain(cuts, [left.end]):
        part = replace(left, start=start, end=end)
        yield _piece(schema, _WHOLE, part)
        start = end
