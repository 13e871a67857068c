"""How far a row change reaches that the log holds as text, and the errors where it is too far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_cdc_provider.core.errors import (
    SEE_LOG,
    CdcError,
    RowsNotLoggedError,
    UnknownEventError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition


@dataclass(frozen=True, slots=True)
class Reach:
    """The tables whose rows a statement logged as text may have changed."""

    tables: frozenset[TableId] = frozenset()
    is_any: bool = False
    """It may be any table, named or not."""
    why: str = ""
    """Why it is more than the table that the statement writes, or why it cannot be told."""
    remedy: str = ""
    """What would tell it, if anything does."""


ANY_TABLE = Reach(is_any=True)


class TextReach(Protocol):
    """Finds out which tables a row change that was logged as text may have changed."""

    def of(self, statement: LoggedStatement, since: BinlogPosition) -> Reach:
        """Return the tables that a statement may have changed.

        Its transaction begins at `since`.
        """

    def heed(self, statement: LoggedStatement) -> None:
        """Take note of any statement in the log: it may change what was found out before."""


class UnknownReach:
    """A `TextReach` without a catalogue: a row change as text may have changed any table."""

    def of(self, statement: LoggedStatement, since: BinlogPosition) -> Reach:  # noqa: ARG002
        """Return a reach of any table."""
        return ANY_TABLE

    def heed(self, statement: LoggedStatement) -> None:
        """Do nothing: no knowledge is kept."""


@dataclass(frozen=True, slots=True)
class Unlogged:
    """A statement that may have changed captured tables in rows that are not logged."""

    effect: StatementEffect
    refusal: CdcError


def unlogged(
    readings: Iterable[LoggedStatement],
    reach: TextReach,
    captured: Callable[[TableId], bool],
    since: BinlogPosition,
) -> Unlogged | None:
    """Return the effect and error of a statement that may have changed captured rows, or None.

    Each reading of its text must be harmless.
    """
    for statement in readings:
        effect = statement.effect
        is_known = effect.kind is StatementKind.ROWS
        found = reach.of(statement, since) if is_known else ANY_TABLE
        if found.is_any or any(map(captured, found.tables)):
            tables = tuple(sorted({*effect.tables, *found.tables}))
            effect = replace(effect, tables=tables, reaches_all=found.is_any)
            return Unlogged(effect, _refusal_of(statement, found))
    return None


def _refusal_of(statement: LoggedStatement, reach: Reach) -> CdcError:
    """Return the error for a statement whose changed rows are not in the log."""
    where = f"database {statement.database or '(none)'}"
    if statement.effect.kind is StatementKind.UNKNOWN:
        return UnknownEventError(
            f"the log holds a statement that is not understood: {statement.verb} ...",
            where=where,
            risk="it could change captured tables",
            remedy=f"{SEE_LOG} and report it",
        )
    written = statement.rows.writes
    why = f"; {reach.why}" if reach.why else ""
    advice = (reach.remedy, "SET GLOBAL binlog_format = 'ROW' and reconnect the writers")
    return RowsNotLoggedError(
        f"the log holds {statement.verb} as a statement, not as rows{why}",
        where=where if written is None else str(written),
        risk="rows it changed are not in the log, nor are those that triggers and foreign keys "
        "of its table changed elsewhere",
        remedy="; ".join(filter(None, advice)),
    )
