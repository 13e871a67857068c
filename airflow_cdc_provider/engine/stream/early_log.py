"""Log from before the tables' definitions are known, of a stream that began without a snapshot.

The plan has each table as the source had it when the plan was made. Between the place where the
stream began and the log's end of then, a table may have been another one. Nothing says what, but
the columns that the log gives with its rows. So rows are applied where these are the columns of the
plan, of types that say the same of their values, and a statement is passed only where it leaves no
doubt about them: a table that was made there, and one that was truncated. Whatever else changed a
table stops it, with its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.changes import ChangeBatch, Statement
from airflow_cdc_provider.columns.row_stamps import stamp_of
from airflow_cdc_provider.core.errors import TableChangedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_metadata import Operation, RowStamp
from airflow_cdc_provider.core.schema_changes import Difference, Policy, SchemaChange, SchemaPolicy
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.selection import CapturedTables, is_as_planned

if TYPE_CHECKING:
    import pyarrow as pa

_RISK = "none: what came before is committed, and nothing of the table from here on"


def is_in_step(stream: StreamSplit, table: TableId) -> bool:
    """Tell whether the sink has each row of a table as it is at the stream's position."""
    progress = stream.progress_of(table)
    if progress is None or progress.is_unread:
        return False
    return not progress.finished and not progress.consistent_at


@dataclass(frozen=True, slots=True)
class EarlyLog:
    """Judges what the log says of tables whose definitions of then are not known."""

    captured: CapturedTables
    columns: Mapping[TableId, pa.Schema]
    """The columns of each table's changes, by the plan."""
    policy: SchemaPolicy

    def require_known_columns(self, batch: ChangeBatch, stream: StreamSplit) -> None:
        """Refuse rows to be applied that have other columns than the plan has."""
        for changes in batch.tables:
            wanted, found = self.columns[changes.table], changes.after.schema
            progress = stream.progress_of(changes.table)
            if progress is None or not len(changes) or is_as_planned(wanted, found, is_early=True):
                continue
            for number in changes.transaction.unique().to_pylist():
                point = batch.transactions[number]
                if not progress.applied_through.contains(point):
                    raise _not_as_now(
                        changes.table, CapturedTables.difference(wanted, found), point.where
                    )

    def changes(
        self,
        statement: Statement,
        end: LogPosition,
        tables: Collection[TableId],
        stream: StreamSplit,
    ) -> tuple[SchemaChange, ...]:
        """Return the changes by a statement that leaves no doubt about the tables; raise else.

        Nothing is returned where the tables' rows are to be read again anyway. `end` is the place
        behind the statement.
        """
        doubtful = [table for table in tables if is_in_step(stream, table)]
        if not doubtful:
            return ()
        effect = statement.effect
        if len(tables) == 1 and _says_all(effect, tables) and end.contains(statement.point):
            truncates = effect.kind is StatementKind.TRUNCATE
            policy = self.policy.truncate if truncates else Policy.APPLY
            if policy is not Policy.STOP:
                plan = self.captured.plans[doubtful[0]]
                applies = truncates and policy is Policy.APPLY
                return (
                    SchemaChange(
                        plan,
                        plan,
                        Difference(),
                        end,
                        statement.sql[:300],
                        truncates=applies,
                        stamp=truncation(statement, end) if applies else None,
                    ),
                )
        raise _changed_before(doubtful, statement)


def truncation(statement: Statement, through: LogPosition) -> RowStamp:
    """Return what is said of the rows that a TRUNCATE takes away."""
    return stamp_of(statement.point, through.system, Operation.TRUNCATE)


def _says_all(effect: StatementEffect, tables: Collection[TableId]) -> bool:
    """Tell whether a statement itself says what became of its one table."""
    is_plain = effect.creates or effect.kind is StatementKind.TRUNCATE
    return (
        is_plain
        and not effect.is_doubtful
        and len(effect.tables) == 1
        and all(map(effect.names, tables))
    )


def _changed_before(tables: Sequence[TableId], statement: Statement) -> TableChangedError:
    """Return the error for a statement before which a table was another one."""
    names = ", ".join(map(str, tables))
    return TableChangedError(
        f"a statement changed {names} between stream.start and the plan, and what it was before is "
        f"not known: {statement.sql[:300]}",
        where=statement.point.where,
        risk=_RISK,
        remedy=_remedy(tables),
    ).about(*tables)


def _not_as_now(table: TableId, difference: str, where: str) -> TableChangedError:
    """Return the error for rows that were logged with other columns than the plan has."""
    return TableChangedError(
        f"the log has rows of {table} with other columns than it has now: {difference}",
        where=where,
        risk=_RISK,
        remedy=_remedy([table]),
    ).about(table)


def _remedy(tables: Sequence[TableId]) -> str:
    """Return the advice for tables that were others when the log was written."""
    names = " ".join(table_option(table) for table in tables)
    return (
        f"`reset` with {names}, where the sink takes rows beside its stream: these are read as "
        "they are now; or write a stream.start behind the change, or after_snapshot, and `reset` "
        "the pipeline"
    )
