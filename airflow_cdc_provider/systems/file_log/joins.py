"""Rows that are read beside the stream join a log: each once, at the stream's position.

What joins is a table that is new, or one that begins again, range by range: `join_state` says which
changes it has meanwhile. The rows of a range are
written as they are at the stream's position P, sealed, and named by one manifest together with the
join. If the stream has moved on, that manifest is not created, and the rows are asked for at its
new position. From P on the stream writes the range's changes itself.

A log alone has no rows that could be replaced. Where readers make tables of it, rows that these
have can be read again, too: what is written then is what a table lacks of them at P.

If the log has a table's events from before, the first join of a request begins with an event that
says that all of them are void, in the form of a TRUNCATE. So rows that are gone at the source
without an event are gone from whatever a reader makes of the log, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.core.codec import position_to_json, split_to_json
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    IntegrityError,
    RefusedError,
    SplitOutdatedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.sink.port import WHOLE_TABLE, JoinedRows, JoinedSplit, Owner
from airflow_cdc_provider.systems.file_log.files import OpenFile, SealedFile
from airflow_cdc_provider.systems.file_log.layout import joined_file, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.row_form import JoinedRowForm, LogFiles
from airflow_cdc_provider.systems.file_log.rows_again import JoinPlace, RowsAgain, SplitLook
from airflow_cdc_provider.systems.file_log.splits import chunks, is_whole_table, rows_of_nulls
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.turns import turn_at

if TYPE_CHECKING:
    from airflow_cdc_provider.core.keys import KeyRange


_MOST_TRIES = 5
"""How often a split is written anew because another process has moved the stream."""


class _MovedError(Exception):
    """The log is not as it was when the rows were written."""


@dataclass(slots=True)
class _Joining:
    """One split of a request that is to join, and its rows at a position."""

    request: str
    epoch: int
    split: SnapshotSplit
    high: LogPosition
    rows_at: Callable[[LogPosition], JoinedRows]
    look: SplitLook | None = None
    """At what a table holds of the split, if that is read again."""
    _at: tuple[LogPosition, JoinedRows] | None = field(default=None)

    def at(self, position: LogPosition) -> JoinedRows:
        """Return the split's rows brought to a position; the last result is kept."""
        if self._at is None or self._at[0] != position:
            self._at = None  # not held beside the new ones
            self._at = position, self.rows_at(position)
        return self._at[1]


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of a join, and what of the log they were written for."""

    files: tuple[SealedFile, ...]
    rows: int
    position: LogPosition
    basis: int
    begins: bool
    events: int
    """The log's events behind them."""
    again: bool = False
    """The table had these rows before."""


class LogJoinSink:
    """Joins splits to one pipeline's log: of unread tables, and where tables take rows again."""

    def __init__(
        self,
        files: LogFiles,
        owner: Owner,
        plans: Sequence[TablePlan],
        again: RowsAgain | None = None,
    ) -> None:
        """`again`: the tables that are made of the log; None for a log alone."""
        self._files, self._root, self._owner = files, files.store, owner
        self._again = again
        self._manifest = Manifest(self._root, str(owner.pipeline))
        self._plans = {plan.schema.table: plan for plan in plans}

    def close(self) -> None:
        """Do nothing: a folder needs no connection."""

    def begin(self, request: str, tables: Collection[TableId]) -> int:
        """Begin or resume a request; return the epoch for its joins."""
        epoch = 0

        def judge(state: LogState) -> Record:
            nonlocal epoch
            self._manifest.require_owner(state, self._owner.generation)
            epoch = state.joins.next_epoch(request)
            form = {"do": "begin joins", "request": request, "epoch": epoch}
            read = [table for table in sorted(tables) if _is_read(state, table)]
            again = {"again": [str(table) for table in read]} if read else {}
            return {**form, "tables": [str(table) for table in sorted(tables)], **again}

        self._manifest.commit(self._owner.generation, judge)
        return epoch

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits, of all tables, that have joined for a request."""
        return self._manifest.read().joins.joined(request)

    def forget(self, request: str) -> None:
        """Forget a request that is done."""

        def judge(state: LogState) -> Record | None:
            self._manifest.require_owner(state, self._owner.generation)
            if request not in state.joins.requests:
                return None
            return {"do": "forget joins", "request": request}

        self._manifest.commit(self._owner.generation, judge)

    def freed_keys(self, request: str, table: TableId) -> pa.Table:  # noqa: ARG002 - the port's
        """Return no keys: a log has no unique values that could be in another row's way."""
        plan = self._plans.get(table)
        key = () if plan is None else plan.target.primary_key
        return pa.table({name: pa.array([], pa.string()) for name in key})

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys of a table's rows in a split; a log alone does not know its rows."""
        if self._again is None:
            raise self._refusal(split.table)
        return self._again.held_keys(split)

    def join(
        self,
        request: str,
        split: SnapshotSplit,
        report: SplitReport,
        rows_at: Callable[[LogPosition], JoinedRows],
        *,
        epoch: int,
        within: Sequence[KeyRange] = WHOLE_TABLE,  # noqa: ARG002 - nothing is in their way
    ) -> LogPosition | None:
        """Write a split's rows at the stream's position; None if it is too early for that."""
        joining = _Joining(request, epoch, split, report.high, rows_at)
        state = self._manifest.read()
        if (done := self._joined_at(state, joining)) is not None:
            return done
        position = self._position(state, joining)
        if position is None:
            return None
        rows = joining.at(position)  # most of the log is read before the stream has to wait
        if self._again is not None and _is_read(state, split.table):
            joining.look = self._again.look(split)
            joining.look.ahead(rows)
        with turn_at(self._root):
            for _ in range(_MOST_TRIES):
                with suppress(_MovedError):
                    return self._join(joining)
        return None

    def _join(self, joining: _Joining) -> LogPosition | None:
        """Write and commit a split's rows, or raise `_MovedError` if the log has moved."""
        state = self._manifest.read()
        if (done := self._joined_at(state, joining)) is not None:
            return done
        position = self._position(state, joining)
        if position is None:
            return None
        written = self._write(state, joining, position)

        def judge(state: LogState) -> Record | None:
            if self._joined_at(state, joining) is not None:
                return None
            if state.basis != written.basis:
                raise _MovedError
            return self._record(joining, written)

        try:
            state = self._manifest.commit(self._owner.generation, judge)
        except _MovedError:
            for file in written.files:  # nothing names them, now or later
                self._root.delete(file.path)
            raise
        return self._joined_at(state, joining)

    def _record(self, joining: _Joining, written: _Written) -> Record:
        """Return the manifest's record of a join."""
        plan = self._plans[joining.split.table]
        return {
            "do": "join again" if written.again else "join",
            "request": joining.request,
            "split": split_to_json(joining.split),
            "rows": written.rows,
            "position": position_to_json(written.position),
            "begins": written.begins,
            **({"shard": True} if plan.shard is not None else {}),
            "folder": table_folder(plan.sink_table),
            "files": [asdict(each) for each in written.files],
            **({"events": written.events} if self._files.counts_events else {}),
        }

    # --- when a split may join ----------------------------------------------------------------

    def _joined_at(self, state: LogState, joining: _Joining) -> LogPosition | None:
        """Return where the split has joined, or None; refuse an older owner or epoch.

        Another range under its number is an error, and so is a table that has begun again.
        """
        self._manifest.require_owner(state, self._owner.generation)
        state.require_form(self._files.form.value, str(self._root))
        request, split = joining.request, joining.split
        where = f"manifest {state.version} in {self._root}, split {split.split_id}"
        now = state.joins.epoch(request, split.table)
        if now != joining.epoch:
            raise StateMovedError(
                f"request {request} was begun again, or ended, since this split was read: its "
                f"epoch is {now}, not {joining.epoch}",
                where=where,
                risk=NOTHING_CHANGED,
                remedy="nothing: whoever began it last goes on with it",
            )
        is_unread = not _is_read(state, split.table)
        if is_unread and state.joins.is_again(request, split.table):
            raise _begun_anew(joining, str(self._root))
        if is_unread and state.joins.has_lost(request, split.table):
            raise SplitOutdatedError(
                f"{split.table} has begun again since request {request} began to read it",
                where=where,
                risk="none: nothing of this split was written",
                remedy="nothing: the table is read by another request",
            )
        for found in state.joins.joined(request):
            other = found.split
            if (other.table, other.number) != (split.table, split.number):
                continue
            if other != split:
                raise SplitOutdatedError(
                    f"split {split.split_id} of request {request} has joined as {other.keys}, "
                    f"and this is {split.keys}",
                    where=where,
                    risk="none: nothing of this one was written",
                    remedy="nothing: the request goes on behind the splits that have joined",
                )
            return found.position
        return None

    def _position(self, state: LogState, joining: _Joining) -> LogPosition | None:
        """Return the position at which the split may join now; None if it is too early.

        A log alone has each row of a table already, unless that is unread.
        """
        split, stream = joining.split, state.stream
        progress = None if stream is None else stream.passed(stream.start).progress_of(split.table)
        if stream is None or progress is None:
            return None
        is_new = progress.is_unread and split.is_whole_range
        if not is_new and (self._again is None or progress.is_unread):
            raise self._refusal(split.table)
        position = stream.start
        is_past = position.covers(joining.high) and position.covers(progress.applied_through)
        return position if is_past and not progress.consistent_at else None

    def _refusal(self, table: TableId) -> RefusedError:
        """Return the error for rows that the log has already."""
        return RefusedError(
            f"the log has each change of {table} already, and takes no rows in the place of others",
            where=str(self._root),
            risk=NOTHING_CHANGED,
            remedy=f"`reset` with {table_option(table)}: the table then begins again in the log",
        ).about(table)

    # --- rows ---------------------------------------------------------------------------------

    def _write(self, state: LogState, joining: _Joining, position: LogPosition) -> _Written:
        """Write a split's rows at a position to a file; no file for nothing."""
        if _is_read(state, joining.split.table):
            return self._write_again(state, joining, position)
        split, rows = joining.split, joining.at(position).rows
        plan = self._plans[split.table]
        folder = table_folder(plan.sink_table)
        is_first = not state.joins.is_begun(joining.request, split.table)
        voids = is_first and state.holds(folder)
        wanted, first = rows.rows + voids, state.counts.events
        written = _Written(
            (), rows.rows, position, state.basis, begins=is_first, events=first + wanted
        )
        if not wanted and not (self._files.tells_columns and is_first and is_whole_table(split)):
            return written
        form = self._files.rows_of(plan, state.types)
        if not isinstance(form, JoinedRowForm):
            raise self._refusal(split.table)
        file = self._file(split)
        now_us, sealed = time.time_ns() // 1000, None
        try:
            if voids:
                file.write(form.voided(rows.schema, position, now_us, number=first), 1)
            batches = chunks(rows.batches()) if wanted else iter([rows_of_nulls(rows.schema, 0)])
            for batch, number in _numbered(batches, first + voids):
                file.write(form.joined(batch, position, now_us, first=number), batch.num_rows)
            sealed = file.seal()
        finally:
            if sealed is None:
                file.discard()
        if sealed.rows != wanted:
            raise IntegrityError(
                f"{sealed.rows} of {wanted} rows of split {split.split_id} were written",
                where=f"joining in {self._root}",
                risk="none: the file does not count",
                remedy="read the split again; if it stays, report this",
            )
        return replace(written, files=(sealed,))

    def _write_again(self, state: LogState, joining: _Joining, position: LogPosition) -> _Written:
        """Write what the table lacks of a split's rows at a position; no file for nothing."""
        split, joined = joining.split, joining.at(position)
        if self._again is None:
            raise self._refusal(split.table)
        if joining.look is None:  # all rows of the table have come since
            joining.look = self._again.look(split)
        place = JoinPlace(state, position, time.time_ns() // 1000)
        taken = dict(state.taken)  # the state is brought to what is read next
        try:
            lacking = joining.look.changes(joined, place)
        except IntegrityError:
            if self._manifest.read().taken == taken:
                raise
            raise _MovedError from None  # the table has the log's files by now
        files: tuple[SealedFile, ...] = ()
        if lacking.count:
            file, sealed = self._file(split), None
            try:
                file.write(lacking.members, lacking.count)
                sealed = file.seal()
            finally:
                if sealed is None:
                    file.discard()
            files = (sealed,)
        return _Written(
            files,
            joined.rows.rows,
            position,
            state.basis,
            begins=False,
            events=lacking.events,
            again=True,
        )

    def _file(self, split: SnapshotSplit) -> OpenFile:
        """Open a file for a split's rows."""
        folder = table_folder(self._plans[split.table].sink_table)
        name = joined_file(split.number, self._owner.generation, self._files.form.value)
        return OpenFile(self._root, f"{folder}/{name}", self._files.form)


def _is_read(state: LogState, table: TableId) -> bool:
    """Tell whether the stream follows a table, and all of its rows are in the log."""
    progress = None if state.stream is None else state.stream.progress_of(table)
    return progress is not None and not progress.is_unread


def _begun_anew(joining: _Joining, where: str) -> StateMovedError:
    """Return the error for a table that has begun again while a part of it was read again."""
    return StateMovedError(
        f"{joining.split.table} has begun again, and is read as a whole first",
        where=f"{where}, request {joining.request}",
        risk="none: nothing of this split was written",
        remedy="nothing: the request goes on once the table is read",
    )


def _numbered(
    batches: Iterator[pa.RecordBatch], first: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches, each with the number of its first row."""
    for batch in batches:
        yield batch, first
        first += batch.num_rows
