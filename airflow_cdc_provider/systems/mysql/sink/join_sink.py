"""Rows that are read again join the stream, in one transaction that holds its positions still.

The stream's rows in the ledger are locked first, as each writer slot locks its own first: neither
can be the other's deadlock. All slots at one place P means that the sink is the source at P, but
for what has drifted. The split's rows are brought to P too, take the place of what is in the range,
are noted in the ledger, and all commits together. From P on the stream goes on as if it had written
them itself. Nobody sees a row go back, and a kill leaves either the old rows or the new ones.

Whoever carries the request out must be the one who began it last (`join_ledger`), and P must be, or
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
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.backfill import staying
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.sink_port import WHOLE_TABLE, JoinedRows, JoinedSplit, Owner
from airflow_cdc_provider.core.errors import RowRefusedError, SplitTooBigError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.state import Slot, stream_of_slots
from airflow_cdc_provider.engine.sink.split_sink import require_all
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate, split_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import change_counts, join_ledger, ledger
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.row_diff import row_diff_of
from airflow_cdc_provider.systems.mysql.sink.sink_keys import keys_where, no_keys
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import slot_rows
from airflow_cdc_provider.systems.mysql.sink.split_row_writer import LoadMethod, SplitRowWriter
from airflow_cdc_provider.systems.mysql.sink.unique_conflicts import free_unique_values

_MOST_KEYS = 1_000_000


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


class MySqlJoinSink:
    """Joins re-read splits to the stream, over one session to the sink."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        *,
        zero_dates: ZeroDates = ZeroDates.FAIL,
    ) -> None:
        self._session = session
        self._owner = owner
        self._rows = SplitRowWriter(session, owner, plans, zero_dates)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._rows.close()

    def freed_keys(self, request: str, table: TableId) -> pa.Table:
        """Return the keys of a table's rows that a request's joins deleted for unique values."""
        freed = join_ledger.freed_keys(self._session, self._owner, request, table)
        return pa.concat_tables([no_keys(self._rows.plan_of_table(table)), *freed])

    def begin(self, request: str, tables: Collection[TableId]) -> int:
        """Begin a request, or resume it, in a transaction; return the epoch for its joins."""

        def begin() -> int:
            epoch = join_ledger.begin_epoch(self._session, self._owner, request, tables)
            ledger.claim_commit(self._session, self._owner)
            return epoch

        return self._session.transaction(begin)

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits, of all tables, that have joined the stream for a request."""
        return join_ledger.joined_splits(self._session, self._owner, request)

    def forget(self, request: str) -> None:
        """Delete what the ledger holds of a request that is done."""

        def forget() -> None:
            join_ledger.forget_joined(self._session, self._owner, request)
            ledger.claim_commit(self._session, self._owner)

        self._session.transaction(forget)

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
            return self._session.transaction(lambda: self._join(joining, self._rows.first_method))
        except RowRefusedError:
            # by INSERT, which names the row, and with the unique values freed that it needs
            return self._session.transaction(lambda: self._join(joining, LoadMethod.AGAIN))

    def _look_ahead(self, joining: _Joining) -> bool:
        """Bring a split's rows to the stream's position, unlocked; False if too early.

        Slots that are apart are likely to come together: the lock waits for them.
        """
        slots = slot_rows(self._session, self._owner)
        if not all(self._may_join(joining, slots, slot.position) for slot in slots):
            return False
        if _are_together(slots):
            joining.at(slots[0].position)
        return bool(slots)

    def _join(self, joining: _Joining, way: LoadMethod) -> LogPosition | None:
        """Join a split within a transaction: lock the slots, write the rows, and store the join."""
        split = joining.split
        ledger.check_generation(self._session, self._owner)
        slots = slot_rows(self._session, self._owner, lock="FOR UPDATE")
        if (done := self._joined_at(joining)) is not None:
            return done
        if not _are_together(slots) or not self._may_join(joining, slots, slots[0].position):
            return None
        position = slots[0].position
        self._rows.require_as_planned(split.table)
        joined = joining.at(position)
        freed = self._replace(joining, joined, way)
        found = JoinedSplit(split, joined.rows.rows, position)
        join_ledger.store_joined(self._session, self._owner, joining.request, found, freed)
        counted = {split.table: max(joined.rows.rows, 1)}
        change_counts.count_changes(self._session, self._owner, counted, position)
        ledger.claim_commit(self._session, self._owner)
        return position

    def _joined_at(self, joining: _Joining) -> LogPosition | None:
        """Return the position at which the split joined, or None; refuse an older epoch."""
        request, split = joining.request, joining.split
        join_ledger.require_epoch(self._session, self._owner, request, split, joining.epoch)
        return join_ledger.joined_at(self._session, self._owner, request, split)

    def _may_join(self, joining: _Joining, slots: Sequence[Slot], position: LogPosition) -> bool:
        """Tell whether the stream has the table and is past the split's high watermark."""
        stream = stream_of_slots(slots)
        table = joining.split.table
        progress = None if stream is None else stream.passed(position).progress_of(table)
        if progress is None or not ledger.stream_owns(self._session, self._owner, table):
            return False
        return (
            position.covers(joining.high)
            and position.covers(progress.applied_through)
            and not progress.consistent_at
        )

    def _replace(
        self, joining: _Joining, joined: JoinedRows, way: LoadMethod
    ) -> Sequence[pa.Table]:
        """Make the joined rows the only ones in the split's range and of the touched keys.

        Returns the keys of rows elsewhere that had to go for their unique values.
        """
        split, plan = joining.split, self._rows.plan_of(joining.split)
        if not split.is_whole_range:
            return self._replace_keys(joining, joined, way)
        writer = self._rows.writer_of(split)
        condition = range_predicate(plan.split_at_sink(split).key_columns, split.keys)
        if way is not LoadMethod.AGAIN and joined.touched is None:
            unlike = row_diff_of(self._session, plan, condition, joined.rows, self._rows.zero_dates)
            if unlike is not None:
                writer.delete_keys(unlike.stale)
                writer.write([unlike.missing], WriteMode.INSERT, load=way is LoadMethod.LOAD)
                return ()
        writer.delete_where(condition)
        if joined.touched is not None:
            writer.delete_keys(joined.touched)
        freed = self._free(joining, joined, split.keys) if way is LoadMethod.AGAIN else ()
        self._write(joining, joined, way)
        return freed

    def _write(self, joining: _Joining, joined: JoinedRows, way: LoadMethod) -> None:
        """Write all of the joined rows, none of which meets an old one."""
        stored = self._rows.write(joining.split, joined.rows, way)
        require_all(joining.split, joined.rows, stored, where=self._session.where)

    def _free(self, joining: _Joining, joined: JoinedRows, *kept: KeyRange) -> Sequence[pa.Table]:
        """Delete rows elsewhere that hold unique values of the joined rows; return their keys."""
        ranges = [*kept, *self._joined_ranges(joining)]
        plan = self._rows.plan_of(joining.split)
        return free_unique_values(
            self._session, plan, joined.rows, within=joining.within, kept=ranges
        )

    def _replace_keys(
        self, joining: _Joining, joined: JoinedRows, way: LoadMethod
    ) -> Sequence[pa.Table]:
        """Make the joined rows the only ones of their keys and of the touched keys."""
        split, plan = joining.split, self._rows.plan_of(joining.split)
        writer, key = self._rows.writer_of(split), list(plan.target.primary_key)
        if joined.touched is not None:  # first: what is deleted here may be another spelling
            writer.delete_keys(_without(joined.touched, joined.rows, key))
        unlike = None
        if way is not LoadMethod.AGAIN and not split.listed:
            condition = split_predicate(plan.split_at_sink(split))
            unlike = row_diff_of(self._session, plan, condition, joined.rows, self._rows.zero_dates)
        if unlike is not None:
            writer.delete_keys(unlike.missing.select(key))
            writer.write([unlike.missing], WriteMode.INSERT, load=way is LoadMethod.LOAD)
            return ()
        for batch in joined.rows.batches():
            writer.delete_keys(batch.select(key))
        freed = self._free(joining, joined) if way is LoadMethod.AGAIN else ()
        self._write(joining, joined, way)
        return freed

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys of a split's rows in the sink; too many raise `SplitTooBigError`."""
        plan = self._rows.plan_of(split)
        condition = f"{split_predicate(plan.split_at_sink(split))} LIMIT {_MOST_KEYS + 1}"
        keys = keys_where(self._session, plan, condition)
        if keys.num_rows > _MOST_KEYS:
            raise SplitTooBigError(
                f"the sink holds more than {_MOST_KEYS:,} rows of split {split.split_id}",
                where=f"table {plan.sink_table} on {self._session.where}",
                risk="none: what was read is dropped",
                remedy="the split is cut in two",
            )
        return keys

    def _joined_ranges(self, joining: _Joining) -> Iterator[KeyRange]:
        """Yield the key ranges of the table's splits that have joined for the same request."""
        for each in self.joined(joining.request):
            if each.split.table == joining.split.table and each.split.is_whole_range:
                yield each.split.keys


def _without(keys: pa.RecordBatch, rows: SplitRows, key: list[str]) -> pa.RecordBatch:
    """Return the keys that are not among the rows."""
    written = pa.Table.from_batches(rows.batches(), rows.schema).select(key).combine_chunks()
    stays = staying(pa.Table.from_batches([keys]), written.to_batches(), key)
    return keys.filter(mask_of(stays))


def _are_together(slots: Sequence[Slot]) -> bool:
    """Tell whether all writer slots are at one position."""
    return bool(slots) and all(slot.position == slots[0].position for slot in slots)
