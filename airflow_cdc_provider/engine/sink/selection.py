"""What of one batch a writer slot has to apply, from the position the slot is at. No I/O.

A batch may come again, or lie partly behind what is committed: then what is contained is left
out, transaction by transaction. A batch that begins behind the committed position would leave a
gap, and is refused. Of what remains, the split filter takes what snapshots already hold (law 5),
and the merge leaves the last change of each key: one sink transaction holds many whole source
transactions, so the states between them are never seen.

A barrier is a statement of the log behind the batch's rows. If it changes no captured table, by the
definition the table was planned with, it is passed. Otherwise what came before it is committed, up
to the place before the statement, and the table's change is an error. A barrier may be in the
middle of a transaction: then the batch ends before that transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.changes import (
    DEFINED_OTHERWISE,
    ChangeBatch,
    Statement,
    TableChanges,
)
from airflow_cdc_provider.columns.few_changes import FewMerged, FewTables, merge_few
from airflow_cdc_provider.columns.merge import MergedChanges, merge
from airflow_cdc_provider.columns.multiset import net_rows
from airflow_cdc_provider.columns.row_stamps import stamps_of
from airflow_cdc_provider.columns.shaping import copied_changes, shaped_changes, shaped_columns
from airflow_cdc_provider.columns.split_filter import filtered, within
from airflow_cdc_provider.columns.transactions import TransactionIndex, transactions_of
from airflow_cdc_provider.core.errors import (
    CdcError,
    IncomparablePositionsError,
    IntegrityError,
    PositionWentBackError,
    TableChangedError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.keys import KeyRange, comparable
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_counts import RowCounts, added
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.sink.port import SinkAbilities
from airflow_cdc_provider.engine.sink.remedies import to_begin_again

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST = SinkAbilities(
    transactional=False,
    upserts=False,
    needs_exact_filter=True,
    takes_native_chunks=False,
    verifiable=False,
    joins=False,
)


@dataclass(frozen=True, slots=True)
class TableWork:
    """One table's merged changes, to be applied."""

    plan: TablePlan
    merged: MergedChanges


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The changes of a batch to be applied from one position, and their counts."""

    tables: tuple[TableWork, ...]
    changes_of: Mapping[TableId, RowCounts]
    """Each table's row changes before they were merged; tables without any are left out."""
    transactions: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class FewTableWork:
    """One table's few merged changes, as Python values."""

    plan: TablePlan
    schema: pa.Schema
    """The columns of the rows."""
    merged: FewMerged


@dataclass(frozen=True, slots=True)
class FewWork:
    """The few changes of a batch where all are to be applied, and their counts."""

    tables: tuple[FewTableWork, ...]
    changes_of: Mapping[TableId, RowCounts]
    transactions: int
    committed_us: int


class CapturedTables:
    """The plans of a pipeline's tables, and the columns their changes must have."""

    def __init__(
        self,
        plans: Sequence[TablePlan],
        columns: Mapping[TableId, pa.Schema],
        abilities: SinkAbilities = _LEAST,
    ) -> None:
        self.plans: Mapping[TableId, TablePlan] = {plan.schema.table: plan for plan in plans}
        self.abilities = abilities
        """What their sink can do, which errors advise by."""
        self._schemas = columns

    @property
    def followed(self) -> tuple[TablePlan, ...]:
        """Return the plans of the tables whose changes are read."""
        return tuple(self.plans[table] for table in self._schemas if table in self.plans)

    def plan_of(self, table: TableId, found: pa.Schema, *, is_early: bool) -> TablePlan:
        """Return the plan of a table; refuse changes whose columns are not the planned ones.

        `is_early`: nothing but the log says how the table was defined.
        """
        plan = self.plans.get(table)
        if plan is None:
            raise IntegrityError(
                f"the log brought changes of {table}, which is not in the plan",
                where="batch of changes",
                risk="they would be lost",
                remedy="report this; the reader and the sink must have the same tables",
            )
        wanted = self._schemas[table]
        if not is_as_planned(wanted, found, is_early=is_early):
            raise TableChangedError(
                f"the log's columns of {table} are not the planned ones: "
                f"{_difference(wanted, found)}",
                where=f"table {table}",
                risk="values could land in the wrong column; nothing of the batch was kept",
                remedy=to_begin_again([table], self.abilities),
            ).about(table)
        return plan

    @staticmethod
    def difference(wanted: pa.Schema, found: pa.Schema) -> str:
        """Return how the planned columns and those found differ, for people."""
        return _difference(wanted, found)

    def columns_of(self, table: TableId) -> pa.Schema:
        """Return the columns that a table's rows have at the sink."""
        return shaped_columns(self._schemas[table], self.plans[table])

    def concerned(self, barrier: Statement, stream: StreamSplit) -> list[TableId]:
        """Return the tables that a DDL statement may change and whose position is before it."""
        effect = barrier.effect
        return [
            progress.table
            for progress in stream.tables
            if self._changes(effect, progress.table)
            and not progress.applied_through.contains(barrier.point)
        ]

    def _changes(self, effect: StatementEffect, table: TableId) -> bool:
        """Tell whether a statement's effect changes a captured table."""
        plan = self.plans.get(table)
        if plan is None:
            return effect.concerns(table, ignore_case=True)
        return effect.changes(plan.schema, ignore_case=True)


@dataclass(slots=True)
class Selection:
    """One batch, and which of its changes a writer at a given position has to apply."""

    batch: ChangeBatch
    captured: CapturedTables
    quiet: IdleRange | None = None
    """Log that was passed over before the batch."""
    of_stopped_table: bool = False
    """It is for one table alone, which the stream leaves alone."""
    joined: Mapping[TableId, Sequence[KeyRange]] | None = None
    """Of unread tables, the ranges that the sink has: other changes come with the rows.

    None for a sink that applies all changes of unread tables.
    """
    _index: TransactionIndex | None = None
    _stamped: pa.RecordBatch | None = None
    _works: dict[LogPosition, tuple[StreamSplit, TableBatch]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def knew(self) -> KnownLog | None:
        """Return what the source knew of the sink's log, None if that is as it was committed."""
        quiet, batch = self.quiet, self.batch
        if batch.knew is not None or quiet is None:
            return batch.knew
        return quiet.knew if quiet.leads(quiet.start, batch.start) else None

    def is_contained(self, position: LogPosition) -> bool:
        """Tell whether all of the batch is committed already, including its barrier."""
        end, barrier = self.batch.end, self.batch.barrier
        if end is None or not (end == position or position.covers(end)):
            return False
        return barrier is None or position.contains(barrier.point)

    def follows(self, position: LogPosition) -> bool:
        """Tell whether no log is missing between the committed position and the batch."""
        start = self.batch.start
        if start == position or position.covers(start):
            return True
        return self.quiet is not None and self.quiet.leads(position, start)

    def check_follows(self, position: LogPosition) -> None:
        """Raise `PositionWentBackError` if log is missing between the position and the batch."""
        if self.follows(position):
            return
        raise PositionWentBackError(
            f"the batch starts at {self.batch.start}, the sink is at {position}",
            where="applying changes",
            risk="the changes in between would be lost; nothing was applied",
            remedy="read the log again from the sink's position",
        )

    def passes_over(self, stream: StreamSplit) -> IdleRange | None:
        """Return the batch as idle log if it needs no commit, else None.

        A commit is needed where a table waits for its consistent point, or a part of a transaction
        for the rest of it.
        """
        batch = self.batch
        if batch.end is None or batch.changes or stream.waits_for_positions:
            return None
        if self.end_within(stream)[1] is not None:
            return None
        return IdleRange(batch.start, batch.end, batch.only_ledgers, batch.knew)

    def end_within(self, stream: StreamSplit) -> tuple[LogPosition | None, CdcError | None]:
        """Return the position to commit, and the error if a barrier stops the stream there."""
        barrier, end = self.batch.barrier, self.batch.end
        if barrier is None or end is None:
            return end, None
        tables = self.captured.concerned(barrier, stream)
        if not tables:
            return end, None
        before = self.batch.start.before(barrier.point, self.batch.transactions, end)
        if barrier.refusal is not None:
            others_flow = self.of_stopped_table or len(tables) < len(stream.tables)
            return before, _refused(barrier.refusal, barrier, tables, others_flow=others_flow)
        names = ", ".join(str(table) for table in tables)
        plans = [self.captured.plans[table] for table in tables]
        hides = any(plan.shape.hides for plan in plans)
        first = "see that the file still hides what it is to hide of it; then " if hides else ""
        is_shared = any(plan.shard for plan in plans)
        dropped = "" if is_shared else ", or drop its table there, as after a RENAME"
        by_hand = f"make the same change at the sink{dropped}"
        return before, TableChangedError(
            f"a statement changed {names}: {barrier.sql[:300]}",
            where=barrier.point.where,
            risk="none yet: what came before the statement is committed, nothing behind it",
            remedy=first + to_begin_again(tables, self.captured.abilities, by_hand=by_hand),
        ).about(*tables)

    def work(self, position: LogPosition, stream: StreamSplit) -> TableBatch:
        """Return the changes to be applied by a writer that is at `position`."""
        with self._lock:  # slots at one position share one merge
            found = self._works.get(position)
            if found is None or found[0] is not stream:  # a table may have left it meanwhile
                found = self._works[position] = stream, self._select(position, stream)
            return found[1]

    def few_work(self, position: LogPosition, stream: StreamSplit) -> FewWork | None:
        """Return `work` for few changes; None if there are more, or some are left out.

        Nothing is left out where the position is the batch's start and its tables are pure.
        """
        tables = self.batch.tables
        if not isinstance(tables, FewTables) or position != self.batch.start:
            return None
        works: list[FewTableWork] = []
        counts: dict[TableId, RowCounts] = {}
        for few in tables.few:
            progress = stream.progress_of(few.table)
            if progress is None:
                continue  # it is being read again; its hand-off brings the stream back here
            if progress.finished or not _covers(position, progress.applied_through):
                return None
            plan = self.captured.plan_of(few.table, few.schema, is_early=stream.is_early)
            if not (plan.shape.is_identity and plan.schema.has_key):
                return None
            places = [few.schema.get_field_index(name) for name in plan.schema.primary_key]
            merged = merge_few(few.changes, places)
            if merged is None:
                return None
            works.append(FewTableWork(plan, few.schema, merged))
            counts = added(counts, {few.table: few.counts})
        points = self.batch.transactions
        works.sort(key=lambda work: work.plan.schema.table)
        last_us = points[-1].committed_us if points else 0
        return FewWork(tuple(works), counts, len(points), last_us)

    def kept(
        self, position: LogPosition, stream: StreamSplit
    ) -> list[tuple[TablePlan, TableChanges]]:
        """Return the changes of the sink's rows to be applied from a position, not merged."""
        return self._shaped(self._copied(position, stream))

    def _shaped(
        self, parts: Sequence[tuple[TablePlan, TableChanges]]
    ) -> list[tuple[TablePlan, TableChanges]]:
        """Return changes of copied rows as those of the sink's rows."""
        return [(plan, shaped_changes(each, plan, self._stamps(plan))) for plan, each in parts]

    def _stamps(self, plan: TablePlan) -> pa.RecordBatch | None:
        """Return what a table's metadata says of the batch's transactions; None if it has none."""
        if not plan.shape.metadata.named:
            return None
        if self._stamped is None:
            batch = self.batch
            self._stamped = stamps_of(batch.transactions, batch.start.system)
        return self._stamped

    def _copied(
        self, position: LogPosition, stream: StreamSplit
    ) -> list[tuple[TablePlan, TableChanges]]:
        """Return the changes of copied rows to be applied from a position, as the source has them.

        Not merged.
        """
        behind = position != self.batch.start
        parts: list[tuple[TablePlan, TableChanges]] = []
        for changes in self.batch.tables:
            progress = stream.progress_of(changes.table)
            if progress is None:
                continue  # it is being read again; its hand-off brings the stream back here
            if progress.is_unread and self._comes_with_rows(changes.table):
                continue  # what they change is not there yet, and may be defined otherwise
            kept = self._owned(changes, progress, position, behind=behind)
            if progress.is_unread:
                kept = self._of_joined_ranges(kept)
            if not len(kept):
                continue
            plan = self.captured.plan_of(kept.table, kept.after.schema, is_early=stream.is_early)
            kept = copied_changes(kept, plan)
            if len(kept):  # none of those that were may be left by the shape's filter
                parts.append((plan, kept))
        return parts

    def _of_joined_ranges(self, changes: TableChanges) -> TableChanges:
        """Return the changes of an unread table that do not come with its rows."""
        plan = self.captured.plans.get(changes.table)
        if self.joined is None or plan is None or not comparable(plan.schema.key_kinds):
            return (
                changes  # where keys cannot be told apart, rows that come later take their places
            )
        return within(changes, self.joined.get(changes.table, ()), plan.schema.primary_key)

    def _comes_with_rows(self, table: TableId) -> bool:
        """Tell whether an unread table has none of the rows that its changes are about.

        A sink that has `joined` ranges has none before the first; of another one, a table without
        a key in the plan has none before all are read.
        """
        if self.joined is not None:
            return not self.joined.get(table)
        plan = self.captured.plans.get(table)
        return plan is not None and not plan.schema.has_key

    def _owned(
        self, changes: TableChanges, progress: TableProgress, position: LogPosition, *, behind: bool
    ) -> TableChanges:
        """Return the changes that neither a snapshot nor an earlier commit has in the sink."""
        key = _key_names(changes, progress)
        if behind:
            committed = TableProgress(changes.table, applied_through=position)
            changes = filtered(changes, self._transactions(), committed, key)
        if not progress.finished and _covers(position, progress.applied_through):
            return changes  # the usual case: the table is pure, and nothing of it lies ahead
        return filtered(changes, self._transactions(), progress, key)

    def _transactions(self) -> TransactionIndex:
        """Return an index of the batch's transactions, made once for all tables."""
        if self._index is None:
            batch = self.batch
            self._index = transactions_of(batch.start.system).index_of(batch.transactions)
        return self._index

    def points_beyond(self, position: LogPosition) -> Sequence[TransactionPoint]:
        """Return the batch's transactions that a position does not contain."""
        points = self.batch.transactions
        if position == self.batch.start:
            return points
        return tuple(point for point in points if not position.contains(point))

    def _select(self, position: LogPosition, stream: StreamSplit) -> TableBatch:
        """Select the changes to be applied from a position, merge and count them."""
        parts = self._copied(position, stream)
        points = self.points_beyond(position)
        counts: dict[TableId, RowCounts] = {}
        for plan, kept in parts:
            counts = added(counts, {plan.schema.table: kept.counts})
        return TableBatch(
            tables=_merged(self._shaped(parts)),
            changes_of=counts,
            transactions=len(points),
            committed_us=points[-1].committed_us if points else 0,
        )


def _refused(
    refusal: CdcError, barrier: Statement, tables: Sequence[TableId], *, others_flow: bool
) -> CdcError:
    """Return the error of a statement that may not be passed, with the command that skips it."""
    if not others_flow:
        way = f"`skip` with --at {barrier.point.name} goes past it and reads the tables again"
        return refusal.with_remedy(f"{refusal.remedy}; {way}")
    names = " ".join(table_option(table) for table in tables)
    way = f"`resume` with {names} reads it again"
    return refusal.with_remedy(f"{refusal.remedy}; {way}").about(*tables)


def _key_names(changes: TableChanges, progress: TableProgress) -> Sequence[str]:
    """Return the key columns of changes, or one column where no split is to be filtered."""
    if progress.finished:
        return progress.finished[0].split.key_columns
    names: list[str] = changes.after.schema.names
    return names[:1]  # not looked at where there are no splits


def _covers(position: LogPosition, other: LogPosition) -> bool:
    """Tell whether a position covers another; False if the two cannot be compared."""
    try:
        return position.covers(other)
    except IncomparablePositionsError:
        return False  # then each transaction is asked about


def _merged(parts: Sequence[tuple[TablePlan, TableChanges]]) -> tuple[TableWork, ...]:
    """Merge the changes of each table; one table may come in several pieces, in log order."""
    ordered = sorted(parts, key=lambda part: (part[0].schema.table, part[1].ordinal[0].as_py()))
    return tuple(
        TableWork(plan, _merged_table(plan, [changes for _, changes in pieces]))
        for plan, pieces in groupby(ordered, key=lambda part: part[0])
    )


def _merged_table(plan: TablePlan, changes: Sequence[TableChanges]) -> MergedChanges:
    """Merge one table's changes: by its key, or without one by whole rows."""
    key = plan.target.primary_key
    return merge(changes, key) if key else net_rows(changes)


def is_as_planned(wanted: pa.Schema, found: pa.Schema, *, is_early: bool) -> bool:
    """Tell whether the log's columns are the planned ones.

    `is_early`: also as what they were defined, for no statement in the log has said so.
    """
    otherwise = (found.metadata or {}).get(DEFINED_OTHERWISE)
    return found.equals(wanted) and not (is_early and otherwise)


def _difference(wanted: pa.Schema, found: pa.Schema) -> str:
    """Return how the planned columns and those found differ."""
    otherwise = (found.metadata or {}).get(DEFINED_OTHERWISE)
    if otherwise:
        return str(otherwise.decode())
    if wanted.names != found.names:
        return f"planned {wanted.names}, found {found.names}"
    differing = [
        f"{one.name} planned {one.type}, found {other.type}"
        for one, other in zip(wanted, found, strict=True)
        if one.type != other.type
    ]
    return "; ".join(differing) or "they differ in what may be NULL"
