"""Rows that are read again join the stream, in one transaction that holds its positions still.

The stream's rows in the ledger are locked first, as each writer slot locks its own first: neither
can be the other's deadlock. All slots at one place P means that the sink is the source at P, but
for what has drifted. The split's rows are brought to P too, take the place of what is in the range,
are noted in the ledger, and all commits together. From P on the stream goes on as if it had written
them itself. Nobody sees a row go back, and a kill leaves either the old rows or the new ones.

Whoever carries the request out must be the one who began it last (its *epoch*), and P must be, or
the rows do not join yet:

- the place of all slots;
- at or past H, for the log tells what happened from a place on, and takes nothing back;
- at or past the table's consistent point and the place up to which the stream leaves its changes
  out, for what lies between would never come to the rows.

Most of the log up to P is replayed before the lock is taken. So the stream is held up for the rest
of it, and for the writing of one split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of, one_batch
from airflow_cdc_provider.columns.backfill import staying
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    RowRefusedError,
    SinkBusyError,
    SplitOutdatedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.state import Slot, stream_of_slots
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.guarded_joins import (
    FreedRowTakenError,
    JoinLook,
    OvertakenError,
)
from airflow_cdc_provider.engine.sink.held_keys import MOST_HELD_KEYS, too_many_keys
from airflow_cdc_provider.engine.sink.port import WHOLE_TABLE, JoinedRows, JoinedSplit
from airflow_cdc_provider.engine.sink.row_identity import Weights
from airflow_cdc_provider.engine.sink.session import Session
from airflow_cdc_provider.engine.sink.split_sink import require_all

_MOST_LOOKS = 20
"""How often a split is joined anew because others have changed its rows meanwhile."""


@dataclass(frozen=True, slots=True)
class RowDiff:
    """The rows to delete and to insert, which make the sink's rows equal to the wanted rows."""

    stale: pa.RecordBatch
    """Keys of rows that are not to be there, or not like that."""
    missing: pa.RecordBatch
    """Whole rows that are not there like that."""


class JoinLedger(Protocol):
    """What the ledger keeps of joins, in the transaction of the rows."""

    def begin_epoch(self, request: str, tables: Collection[TableId]) -> int:
        """Begin a request, or resume it; return the new epoch. Joins under way come first."""

    def held_epoch(self, request: str, table: TableId) -> int:
        """Return a request's epoch, 0 for none; a new one waits for the commit."""

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits that have joined for a request."""

    def joined_as(self, request: str, split: SnapshotSplit) -> JoinedSplit | None:
        """Return what has joined under a split's table and number for a request."""

    def freed_keys(self, request: str, table: TableId) -> Iterator[pa.Table]:
        """Yield the keys of rows that a request's joins deleted to free unique values."""

    def forget(self, request: str) -> None:
        """Delete what is kept of a request."""

    def slots(self, *, hold: bool = False) -> Sequence[Slot]:
        """Return the stream's writer slots.

        `hold`: none moves until the commit, and an older owner is refused.
        """

    def knew(self) -> KnownLog | None:
        """Return what an edge's source knew of the sink's log at the stream's position, if known.

        The slots are held.
        """

    def owns(self, table: TableId) -> bool:
        """Tell whether the stream owns a table."""

    def store_joined(self, request: str, joined: JoinedSplit, freed: Sequence[pa.Table]) -> None:
        """Store a split as joined, with the keys of rows deleted for it, and count its rows."""

    def store_read(self, table: TableId, slots: Sequence[Slot]) -> None:
        """Store that all rows of a table are in the sink; `slots` are the stream's, held."""

    def claim(self) -> None:
        """Refuse an older owner, as the last act before the commit."""


class JoinRowStore(Protocol):
    """The rows that joins replace, in the session's transaction."""

    def plan_of(self, table: TableId) -> TablePlan:
        """Return a table's plan."""

    def require_as_planned(self, table: TableId) -> None:
        """Refuse to write to a table whose definition has drifted; it stays so until the commit."""

    def difference(self, split: SnapshotSplit, wanted: SplitRows) -> RowDiff | None:
        """Compare the split's rows with the wanted ones; None if all are to be written."""

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        """Delete all rows in the split's range, or mark them where the table keeps deleted rows.

        Marked rows give way to those of `rows` with their keys. `stamp` is the read's.
        """

    def take_away(self, table: TableId, keys: pa.RecordBatch, stamp: RowStamp) -> None:
        """Delete the rows with these keys, or mark them where the table keeps deleted rows."""

    def delete_keys(self, table: TableId, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys, marked ones too."""

    def insert(self, table: TableId, rows: pa.RecordBatch) -> None:
        """Write rows, none of which meets an old one but one that is marked as deleted."""

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        """Write a split's rows, none of which meets an old one; return their number.

        `again`: they were refused before. Now write them so that a refusal names the row.
        """

    def free_unique_values(
        self,
        table: TableId,
        rows: SplitRows,
        *,
        within: Sequence[KeyRange],
        kept: Sequence[KeyRange],
    ) -> Sequence[pa.Table]:
        """Delete rows in the ranges `within` that hold unique values of `rows`; return their keys.

        A holder elsewhere, or in one of the ranges that are to be `kept`, is an error.
        """

    def keys_in(self, split: SnapshotSplit, most: int) -> pa.Table:
        """Return the keys of at most so many rows of a split."""

    def no_keys(self, table: TableId) -> pa.Table:
        """Return an empty table with the columns of a table's key."""


class JoinStore(Protocol):
    """One session to a sink, for the joins of one pipeline."""

    @property
    def session(self) -> Session:
        """Return the session that all of it is done over."""

    @property
    def ledger(self) -> JoinLedger:
        """Return what the ledger keeps of joins."""

    @property
    def rows(self) -> JoinRowStore:
        """Return the rows of tables."""

    def mark(self) -> None:
        """Mark the transaction, before its first row, as its topology wants it."""

    def text_weights(self) -> Weights:
        """Return what asks the server which texts are equal, over the same session."""

    def close(self) -> None:
        """Close the session; an open transaction is rolled back."""


@dataclass(slots=True)
class _Joining:
    """One split of a request that is being joined to the stream, and its rows at a position."""

    request: str
    epoch: int
    split: SnapshotSplit
    high: LogPosition
    rows_at: Callable[[LogPosition], JoinedRows]
    within: Sequence[KeyRange]
    _at: tuple[LogPosition, JoinedRows] | None = field(default=None)

    def at(self, position: LogPosition) -> JoinedRows:
        """Return the split's rows brought to a position; the last result is kept."""
        if self._at is None or self._at[0] != position:
            self._at = None  # not held beside the new ones
            self._at = position, self.rows_at(position)
        return self._at[1]

    @property
    def stamp(self) -> RowStamp:
        """Return what is said of rows that are not there any more at the position."""
        position = self.high if self._at is None else self._at[0]
        return RowStamp.of_read(position, self.high)


class StreamJoinSink:
    """Joins re-read splits to the stream of a sink whose ledger has writer slots."""

    def __init__(self, store: JoinStore, guard: Guard | None = None) -> None:
        """`guard` knows what others change at the sink; it is closed with the sink."""
        self._store = store
        self._guard = guard
        self._ledger = store.ledger
        self._rows = store.rows

    def close(self) -> None:
        """Close the session; an open transaction is rolled back."""
        if self._guard is not None:
            self._guard.close()
        self._store.close()

    def freed_keys(self, request: str, table: TableId) -> pa.Table:
        """Return the keys of a table's rows that a request's joins deleted for unique values."""
        freed = self._ledger.freed_keys(request, table)
        return pa.concat_tables([self._rows.no_keys(table), *freed])

    def begin(self, request: str, tables: Collection[TableId]) -> int:
        """Begin a request, or resume it, in a transaction; return the epoch for its joins."""

        def begin() -> int:
            epoch = self._ledger.begin_epoch(request, tables)
            self._ledger.claim()
            return epoch

        return self._store.session.transaction(begin)

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits, of all tables, that have joined the stream for a request."""
        return self._ledger.joined(request)

    def forget(self, request: str) -> None:
        """Delete what the ledger holds of a request that is done."""

        def forget() -> None:
            self._ledger.forget(request)
            self._ledger.claim()

        self._store.session.transaction(forget)

    def join(
        self,
        request: str,
        split: SnapshotSplit,
        report: SplitReport,
        rows_at: Callable[[LogPosition], JoinedRows],
        *,
        epoch: int,
        within: Sequence[KeyRange] = WHOLE_TABLE,
    ) -> LogPosition | None:
        """Replace the sink's rows of a split by its rows at the stream's position.

        None if it is too early: the split cannot join yet.
        """
        joining = _Joining(request, epoch, split, report.high, rows_at, within)
        if (done := self._joined_at(joining)) is not None:
            return done
        if not self._look_ahead(joining):
            return None
        try:
            return self._in_a_transaction(joining, again=False)
        except RowRefusedError:
            # so that the row is named, and with the unique values freed that it needs
            return self._in_a_transaction(joining, again=True)

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys of a split's rows in the sink; too many raise `SplitTooBigError`."""
        keys = self._rows.keys_in(split, MOST_HELD_KEYS + 1)
        if keys.num_rows > MOST_HELD_KEYS:
            table = self._rows.plan_of(split.table).sink_table
            raise too_many_keys(split, table, self._store.session.where)
        return keys

    # --- when a split may join ----------------------------------------------------------------

    def _look_ahead(self, joining: _Joining) -> bool:
        """Bring a split's rows to the stream's position, unlocked; False if too early.

        Slots that are apart are likely to come together: the lock waits for them.
        """
        slots = self._ledger.slots()
        if not all(self._may_join(joining, slots, slot.position) for slot in slots):
            return False
        if _are_together(slots):
            joining.at(slots[0].position)
        return bool(slots)

    def _in_a_transaction(self, joining: _Joining, *, again: bool) -> LogPosition | None:
        """Join a split in a transaction, and anew where others have changed its rows meanwhile."""
        for _ in range(_MOST_LOOKS):
            try:
                return self._store.session.transaction(lambda: self._join(joining, again=again))
            except OvertakenError:
                pass
        raise _others_change(joining.split, self._store.session.where)

    def _join(self, joining: _Joining, *, again: bool) -> LogPosition | None:
        """Join a split within a transaction: hold the slots, write the rows, and store the join."""
        slots = self._ledger.slots(hold=True)
        if (done := self._joined_at(joining)) is not None:
            return done
        if not _are_together(slots) or not self._may_join(joining, slots, slots[0].position):
            return None
        position = slots[0].position
        self._rows.require_as_planned(joining.split.table)
        rows = joining.at(position)
        left = 0
        if self._guard is None:
            self._store.mark()
            freed = self._replace(joining, rows, again=again)
        else:
            freed, left = self._replace_guarded(self._guard, joining, rows, again=again)
        joined = JoinedSplit(joining.split, rows.rows.rows, position, left)
        self._ledger.store_joined(joining.request, joined, freed)
        table = joining.split.table
        is_unread = any(table in slot.stored.unread for slot in slots)
        if is_unread and not self._rows.plan_of(table).schema.has_key:
            # until here the stream has left its changes out, from here on none may be
            self._ledger.store_read(table, slots)
        self._ledger.claim()
        return position

    def _joined_at(self, joining: _Joining) -> LogPosition | None:
        """Return the position at which the split joined, or None; refuse an older epoch.

        A number says nothing of which rows these were: another range under it is an error.
        """
        request, split = joining.request, joining.split
        now = self._ledger.held_epoch(request, split.table)
        if now != joining.epoch:
            raise StateMovedError(
                f"request {request} was begun again, or ended, since this split was read: its "
                f"epoch is {now}, not {joining.epoch}",
                where=f"ledger on {self._store.session.where}, split {split.split_id}",
                risk=NOTHING_CHANGED,
                remedy="nothing: whoever began it last goes on with it",
            )
        found = self._ledger.joined_as(request, split)
        if found is None:
            return None
        other = found.split
        if (other.keys, other.listed, other.chosen) != (split.keys, split.listed, split.chosen):
            raise SplitOutdatedError(
                f"split {split.split_id} of request {request} has joined as {other.keys}, "
                f"and this is {split.keys}",
                where=f"ledger on {self._store.session.where}",
                risk="none: nothing of this one was written",
                remedy="nothing: the request goes on behind the splits that have joined",
            )
        return found.position

    def _may_join(self, joining: _Joining, slots: Sequence[Slot], position: LogPosition) -> bool:
        """Tell whether the stream has the table and is past the split's high watermark."""
        stream = stream_of_slots(slots)
        table = joining.split.table
        progress = None if stream is None else stream.passed(position).progress_of(table)
        if progress is None or not self._ledger.owns(table):
            return False
        return (
            position.covers(joining.high)
            and position.covers(progress.applied_through)
            and not progress.consistent_at
        )

    # --- rows ---------------------------------------------------------------------------------

    def _replace(self, joining: _Joining, joined: JoinedRows, *, again: bool) -> Sequence[pa.Table]:
        """Make the joined rows the only ones in the split's range and of the touched keys.

        Returns the keys of rows elsewhere that had to go for their unique values.
        """
        split, table = joining.split, joining.split.table
        if not split.is_whole_range:
            return self._replace_keys(joining, joined, again=again)
        if not again and joined.touched is None:
            difference = self._rows.difference(split, joined.rows)
            if difference is not None:
                self._rows.take_away(table, difference.stale, joining.stamp)
                self._rows.insert(table, difference.missing)
                return ()
        self._rows.clear_range(split, joined.rows, joining.stamp)
        if joined.touched is not None:
            self._rows.take_away(table, joined.touched, joining.stamp)
        return self._write(joining, joined, again=again, kept=[split.keys])

    def _replace_guarded(
        self, guard: Guard, joining: _Joining, joined: JoinedRows, *, again: bool
    ) -> tuple[Sequence[pa.Table], int]:
        """Make the joined rows the sink's, but for those that its node has changed by itself.

        Returns the keys of rows elsewhere that had to go for their unique values, and how many rows
        were left alone.
        """
        split, table = joining.split, joining.split.table
        plan = self._rows.plan_of(table)
        known = guard.required(self._ledger.knew())
        look = JoinLook(guard, plan, known, self._store.text_weights)
        look.begin()
        wanted, left = look.without_theirs(self._differing(split, joined, look))
        freed: Sequence[pa.Table] = ()
        if not len(wanted):
            return freed, left
        self._store.mark()
        self._rows.delete_keys(table, wanted.deletes)
        self._rows.delete_keys(table, wanted.upserts.select(list(plan.target.primary_key)))
        if not again:
            self._rows.insert(table, wanted.upserts)
        else:
            only = replace(joined, rows=ArrowRows(pa.Table.from_batches([wanted.upserts])))
            kept = [split.keys] if split.is_whole_range else []
            try:
                freed = self._write(joining, only, again=True, kept=kept)
            except RowRefusedError as refused:
                if look.others_have_changes():  # theirs may be the row that is in its way
                    raise _others_change(split, self._store.session.where, refused) from refused
                raise
        try:
            look.require_not_overtaken(wanted, freed)
        except FreedRowTakenError as taken:
            raise _others_change(split, self._store.session.where, taken) from taken
        return freed, left

    def _differing(self, split: SnapshotSplit, joined: JoinedRows, look: JoinLook) -> MergedChanges:
        """Return what makes the joined rows the only ones in a split: keys to delete, and rows.

        Of a split that is no whole range, the only ones of their keys and of the touched keys.
        """
        key = list(self._rows.plan_of(split.table).target.primary_key)
        difference = None if split.listed else self._rows.difference(split, joined.rows)
        if difference is None:
            rows = pa.Table.from_batches(joined.rows.batches(), joined.rows.schema)
            held = (
                self.held_keys(split) if split.is_whole_range else self._rows.no_keys(split.table)
            )
            stale, missing = one_batch(held), one_batch(rows)
        else:
            stale, missing = difference.stale, difference.missing
            stale = stale if split.is_whole_range else stale.slice(0, 0)
        stale = stale.cast(missing.select(key).schema)
        if joined.touched is not None:
            rows = pa.Table.from_batches(joined.rows.batches(), joined.rows.schema)
            there = one_batch(rows.select(key).cast(stale.schema))
            gone = look.keys_of_no_row(joined.touched.cast(stale.schema), there)
            stale = one_batch(pa.Table.from_batches([stale, gone]))
        return MergedChanges(stale, missing)

    def _replace_keys(
        self, joining: _Joining, joined: JoinedRows, *, again: bool
    ) -> Sequence[pa.Table]:
        """Make the joined rows the only ones of their keys and of the touched keys."""
        split, table = joining.split, joining.split.table
        key = list(self._rows.plan_of(table).target.primary_key)
        if joined.touched is not None:  # first: what is deleted here may be another spelling
            gone = _keys_without_rows(joined.touched, joined.rows, key)
            self._rows.take_away(table, gone, joining.stamp)
        if not again and not split.listed:
            difference = self._rows.difference(split, joined.rows)
            if difference is not None:
                self._rows.delete_keys(table, difference.missing.select(key))
                self._rows.insert(table, difference.missing)
                return ()
        for batch in joined.rows.batches():
            self._rows.delete_keys(table, batch.select(key))
        return self._write(joining, joined, again=again, kept=[])

    def _write(
        self, joining: _Joining, joined: JoinedRows, *, again: bool, kept: Sequence[KeyRange]
    ) -> Sequence[pa.Table]:
        """Write all joined rows, none of which meets an old one of its key.

        Where they were refused before, rows elsewhere that hold their unique values are deleted,
        but for those in ranges that are `kept` or have joined; returns the keys of these rows.
        """
        split, rows = joining.split, joined.rows
        freed: Sequence[pa.Table] = ()
        if again and split.key_columns:  # without a key all of the table's rows have gone
            ranges = [*kept, *self._joined_ranges(joining)]
            freed = self._rows.free_unique_values(
                split.table, rows, within=joining.within, kept=ranges
            )
        stored = self._rows.write(split, rows, again=again)
        require_all(split, rows, stored, where=self._store.session.where)
        return freed

    def _joined_ranges(self, joining: _Joining) -> Iterator[KeyRange]:
        """Yield the key ranges of the table's splits that have joined for the same request."""
        for each in self.joined(joining.request):
            if each.split.table == joining.split.table and each.split.is_whole_range:
                yield each.split.keys


def _others_change(split: SnapshotSplit, where: str, held: Exception | None = None) -> CdcError:
    """Return the error for a split whose rows the sink's node changes while they are to join.

    `held` is how it was met that another row has a unique value of the split's.
    """
    what = "changes its rows all the time"
    if held is not None:
        what = "has changed a row that has a unique value of its rows"
        what += f"; {held.what}" if isinstance(held, CdcError) else ""
    return SinkBusyError(
        f"split {split.split_id} cannot join yet: the sink's node {what}",
        where=where,
        risk="none: the transaction was rolled back",
        remedy="see that the edge back runs: it brings that change to the source; then ask again, "
        "if the request has failed meanwhile",
    )


def _keys_without_rows(keys: pa.RecordBatch, rows: SplitRows, key: list[str]) -> pa.RecordBatch:
    """Return the keys that no row has."""
    written = pa.Table.from_batches(rows.batches(), rows.schema).select(key).combine_chunks()
    stays = staying(pa.Table.from_batches([keys]), written.to_batches(), key)
    return keys.filter(mask_of(stays))


def _are_together(slots: Sequence[Slot]) -> bool:
    """Tell whether all writer slots are at one position."""
    return bool(slots) and all(slot.position == slots[0].position for slot in slots)
