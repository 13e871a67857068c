"""Appending changes to a change log: whole source transactions, each change once.

A batch becomes a file for each table it changes and one for the transactions' markers. The files
are sealed, then one version of the manifest names them all together with the position behind the
batch (law 7). If the process dies in between, no manifest names the files, and the same changes
are read and written again.

What a batch holds is chosen by the manifest, exactly: nothing that a split has read, nothing that
comes with rows that are still to join, nothing that is behind the position. If a double of this
writer has moved the position on meanwhile, or rows have joined, this writer's files do not count,
and it looks again what is left to do.

A table that is isolated from the stream comes further by a writer of its own, which moves that
table's position only. Its transactions have had their markers, or will have them, without it.

A source transaction too large for memory comes in parts. Its files stay open from the first to
the last, and only the last one commits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.errors import (
    CdcError,
    SinkBusyError,
    SinkUnreachableError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_counts import RowCounts, added
from airflow_cdc_provider.core.statement_effect import StatementKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.state import no_stream
from airflow_cdc_provider.engine.sink.port import AppliedBatch, Owner
from airflow_cdc_provider.engine.sink.selection import CapturedTables, Selection
from airflow_cdc_provider.systems.file_log.events import (
    Passed,
    TableEvents,
    events_of,
    places_of,
)
from airflow_cdc_provider.systems.file_log.files import OpenFile, SealedFile
from airflow_cdc_provider.systems.file_log.layout import TRANSACTION, stream_file, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.markers import markers, open_at_end, tally
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.row_form import LogFiles, RowForm, TruncatedBy
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.transactions import Transactions
from airflow_cdc_provider.systems.file_log.turns import turn_at
from airflow_cdc_provider.systems.files.object_store import ObjectStore


@dataclass(slots=True)
class _Pending:
    """Files and counts of changes that are written and not committed yet."""

    position: LogPosition
    stream: StreamSplit
    basis: int
    """The version of the manifest by which the changes were chosen."""
    events: int
    """The log's events before the next one."""
    files: dict[tuple[str, TableId | None], OpenFile] = field(default_factory=dict)
    """By folder and source table: those that share a folder have columns of their own."""
    sealed: dict[str, list[SealedFile]] = field(default_factory=dict)
    passed: Passed = field(default_factory=Passed)
    has_parts: bool = False
    changes_of: dict[TableId, RowCounts] = field(default_factory=dict)
    transactions: int = 0
    committed_us: int = 0

    @property
    def changes(self) -> int:
        """Return the number of row changes that are not committed yet."""
        return sum(counts.total for counts in self.changes_of.values())

    def seal(self) -> None:
        """Seal all open files."""
        for (folder, _), file in self.files.items():
            self.sealed.setdefault(folder, []).append(file.seal())
        self.files = {}

    def delete_sealed(self, store: ObjectStore) -> None:
        """Delete sealed files that no manifest names, now or later."""
        for files in self.sealed.values():
            for file in files:
                store.delete(file.path)

    def discard(self) -> None:
        """Delete unfinished files; the next owner deletes sealed ones that may not count."""
        for file in self.files.values():
            file.discard()


class LogChangeSink:
    """Appends batches of changes to one pipeline's change log, of the stream or one table alone."""

    def __init__(
        self,
        files: LogFiles,
        owner: Owner,
        captured: CapturedTables,
        *,
        alone: TableId | None = None,
    ) -> None:
        """`alone`: the changes are those of one table that is isolated from the stream."""
        self._alone = alone
        self.quiet: IdleRange | None = None
        self._files, self._root, self._owner = files, files.store, owner
        self._manifest = Manifest(self._root, str(owner.pipeline))
        self._captured = captured
        plans = captured.plans.values()
        self._forms: dict[TableId, RowForm] = {}
        self._joined: dict[TableId, tuple[KeyRange, ...]] = {}
        self._folders = {plan.schema.table: table_folder(plan.sink_table) for plan in plans}
        self._pending: _Pending | None = None
        self._is_broken = False

    def close(self) -> None:
        """Delete unfinished files."""
        if self._pending is not None:
            self._pending.discard()
            self._pending = None

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, with each table's progress.

        None if not stored.
        """
        return self._manifest.read().stream_of(self._alone)

    def apply(self, batch: ChangeBatch) -> AppliedBatch | None:
        """Append one batch and commit its end with it; None while it is part of a transaction."""
        if self._is_broken:
            raise SinkUnreachableError(
                "this sink failed in the middle of a source transaction",
                where=str(self._root),
                risk="none: nothing of the transaction counts",
                remedy="open the sink again and read from the ledger's position",
            )
        with turn_at(self._root):
            is_alone = self._alone is not None
            selection = Selection(batch, self._captured, self.quiet, of_stopped_table=is_alone)
            return self._apply_anew(selection)

    def _apply_anew(self, selection: Selection) -> AppliedBatch | None:
        """Append a batch, and once more where the log has moved on meanwhile."""
        while True:
            pending, self._pending = self._pending or self._begin(), None
            self._is_broken = pending.has_parts  # unless it says otherwise
            selection.joined = self._joined
            done = False
            try:
                applied = self._apply(pending, selection)
                done, self._is_broken = True, False
                return applied
            except StateMovedError as error:
                pending.delete_sealed(self._root)
                if pending.has_parts:
                    raise SinkBusyError(error.what, error.where, error.risk) from error
            finally:
                if not done:
                    pending.discard()

    def _begin(self) -> _Pending:
        """Begin a commit at the manifest's position; an older owner is refused."""
        state = self._manifest.read()
        self._manifest.require_owner(state, self._owner.generation)
        stream = state.stream_of(self._alone)
        if stream is None:
            raise no_stream(self._manifest.place(state))
        state.require_form(self._files.form.value, str(self._root))
        self._forms = {
            plan.schema.table: self._files.rows_of(plan, state.types)
            for plan in self._captured.plans.values()
        }
        self._joined = {table: tuple(state.joins.ranges_of(table)) for table in stream.unread}
        return _Pending(stream.start, stream, state.basis, events=state.counts.events)

    def _apply(self, pending: _Pending, selection: Selection) -> AppliedBatch | None:
        """Write a batch's changes and commit them; None while it is part of a transaction."""
        is_new = not selection.is_contained(pending.position)
        if is_new:
            selection.check_follows(pending.position)
            passed_over = None if pending.has_parts else selection.passes_over(pending.stream)
            if passed_over is not None and self._alone is None:
                self.quiet = passed_over if self.quiet is None else self.quiet.then(passed_over)
                return AppliedBatch(pending.position, 0, 0, 0)
            self._write(pending, selection)
        if selection.batch.end is None:
            pending.has_parts = True
            self._pending = pending
            return None
        if not is_new:
            return AppliedBatch(pending.position, 0, 0, 0)
        end, stopped_by = self._end(pending, selection)
        pending.seal()
        self._commit(pending, end)
        self.quiet = None
        if stopped_by is not None:
            raise stopped_by
        return AppliedBatch(end, pending.changes, pending.transactions, pending.committed_us)

    def _commit(self, pending: _Pending, end: LogPosition) -> None:
        """Commit the sealed files and the position, unless another writer has moved it."""

        def judge(state: LogState) -> Record:
            self._manifest.require_owner(state, self._owner.generation)
            if not self._is_as_chosen(state, pending):
                raise StateMovedError(
                    "another writer of this generation has moved the stream, or rows have joined",
                    where=f"manifest {state.version} in {self._root}",
                    risk="none: what this one wrote does not count",
                )
            return {
                "do": "change",
                "position": position_to_json(end),
                "files": {
                    folder: [asdict(each) for each in files]
                    for folder, files in pending.sealed.items()
                },
                "changes": pending.changes,
                **({"events": pending.events} if self._files.counts_events else {}),
                "changes_of": {
                    str(table): counts.total for table, counts in sorted(pending.changes_of.items())
                },
                "rows_of": {
                    str(table): astuple(counts)
                    for table, counts in sorted(pending.changes_of.items())
                },
                "transactions": pending.transactions,
                "source_committed_us": pending.committed_us,
                **({} if self._alone is None else {"alone": str(self._alone)}),
            }

        self._manifest.commit(self._owner.generation, judge)

    def _is_as_chosen(self, state: LogState, pending: _Pending) -> bool:
        """Tell whether the log is as it was when the changes were chosen."""
        if self._alone is None:
            return state.basis == pending.basis
        is_numbered = self._files.counts_events
        return state.stream_of(self._alone) == pending.stream and (
            not is_numbered or state.basis == pending.basis
        )

    # --- events -------------------------------------------------------------------------------

    def _write(self, pending: _Pending, selection: Selection) -> None:
        """Write a batch's changes and transaction markers to the open files."""
        batch = selection.batch
        kept = selection.kept(pending.position, pending.stream)
        tells_before = self._files.tells_before
        tables = [
            events_of(changes, plan.target.primary_key, tells_before=tells_before)
            for plan, changes in kept
        ]
        points = selection.points_beyond(pending.position)
        for plan, changes in kept:
            counts = {plan.schema.table: changes.counts}
            pending.changes_of = added(pending.changes_of, counts)
        pending.transactions += len(points) - (1 if pending.has_parts and points else 0)
        pending.committed_us = max(pending.committed_us, points[-1].committed_us if points else 0)
        if not tables and not pending.passed.total:
            return
        transactions = Transactions(batch.transactions, batch.start.system)
        now_us = time.time_ns() // 1000
        places_by_table = places_of(tables, pending.passed, first=pending.events)
        for events, places in zip(tables, places_by_table, strict=True):
            table = events.changes.table
            rows = self._forms[table].changed(events, places, transactions, now_us)
            self._file(pending, batch, table).write(rows, len(events))
        pending.events += sum(map(len, tables))
        if self._files.has_markers and self._alone is None:
            self._write_markers(pending, batch, tables, transactions)

    def _write_markers(
        self,
        pending: _Pending,
        batch: ChangeBatch,
        tables: Sequence[TableEvents],
        transactions: Transactions,
    ) -> None:
        """Write where the batch's transactions begin and end, with their numbers of events."""
        counted = tally(tables, pending.passed)
        count = len(batch.transactions)
        is_part = batch.end is None
        rows, number = markers(
            counted,
            transactions,
            begun=pending.passed.total > 0,
            ends=count - 1 if is_part else count,
        )
        if number:
            self._file(pending, batch).write(rows, number)
        pending.passed = open_at_end(counted, count) if is_part else Passed()

    def _file(
        self, pending: _Pending, batch: ChangeBatch, table: TableId | None = None
    ) -> OpenFile:
        """Return the open file of a table's changes, or of markers, made on first use."""
        folder = TRANSACTION if table is None else self._folders[table]
        file = pending.files.get((folder, table))
        if file is None:
            name = stream_file(_first_place(batch), self._owner.generation, self._files.form.value)
            path = f"{folder}/{name}"
            file = OpenFile(self._root, path, self._files.form)
            pending.files[folder, table] = file
        return file

    # --- statements ---------------------------------------------------------------------------

    def _end(self, pending: _Pending, selection: Selection) -> tuple[LogPosition, CdcError | None]:
        """Return the position to commit, and the error if a statement stops the stream there."""
        emptied = self._emptied(pending, selection)
        end, stopped_by = selection.end_within(pending.stream)
        if emptied:
            end, stopped_by = selection.batch.end, None
            self._write_truncates(pending, selection.batch, emptied)
        if end is None:
            raise ValueError("a part of a transaction has no end")
        return end, stopped_by

    def _emptied(self, pending: _Pending, selection: Selection) -> list[TableId]:
        """Return the captured tables that the batch's TRUNCATE empties, if past their splits."""
        batch, barrier = selection.batch, selection.batch.barrier
        if barrier is None or batch.end is None:
            return []
        if barrier.effect.kind is not StatementKind.TRUNCATE:
            return []
        # as whoever follows the statement elsewhere finds it: what came before is committed then
        before = batch.start.before(barrier.point, batch.transactions, batch.end)
        stream = pending.stream.passed(before)
        tables = self._captured.concerned(barrier, stream)
        waiting = set(stream.inconsistent)
        return [] if waiting & set(tables) else tables

    def _write_truncates(
        self, pending: _Pending, batch: ChangeBatch, tables: Sequence[TableId]
    ) -> None:
        """Write the event of a TRUNCATE for each table."""
        if batch.barrier is None:
            return
        now_us = time.time_ns() // 1000
        by = Transactions([batch.barrier.point], batch.start.system)
        for table in tables:
            columns = self._captured.columns_of(table)
            truncated_by = TruncatedBy(by, pending.events)
            event = self._forms[table].truncated(columns, truncated_by, batch.barrier.facts, now_us)
            self._file(pending, batch, table).write(event, 1)
            pending.events += 1


def _first_place(batch: ChangeBatch) -> str:
    """Return a batch's first position in the log as text that sorts."""
    points = [*batch.transactions[:1], *([batch.barrier.point] if batch.barrier else [])]
    return points[0].sort_text
