"""Tables that the stream leaves alone for a while, so that all others flow on.

A table stops where it stands: at an error that only it has, or because a person paused it. All that
the sink has of it is then the source's at one position, and the ledger keeps that position for the
table alone. It comes back by the log from there on, read beside the stream; where the log does not
bring it back, its rows are read again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import (
    RESET,
    CdcError,
    RetryableError,
    SplitOutdatedError,
    ValueRefusedError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress


@dataclass(frozen=True, slots=True)
class StoppedTable:
    """One table that is isolated from the stream, with its own position and its error."""

    stream: StreamSplit
    """Of this table alone: where it stands, and where it goes on."""
    error: StoredError
    """What stopped it; empty if a person did."""
    since_us: int

    @property
    def table(self) -> TableId:
        return self.stream.tables[0].table

    @property
    def is_paused(self) -> bool:
        """Tell whether a person paused the table: it has no error."""
        return not self.error


def with_way_back(stored: StoredError, table: TableId | str) -> CdcError:
    """Return the error of an isolated table, with the command that brings it back."""
    error = stored.read()
    risk = error.risk or "its rows stand still at the sink until it comes back"
    remedy = error.remedy
    if not any(f"`{command}`" in remedy for command in ("resume", "reset", "run")):
        back = f"`resume` with {table_option(table)}"
        remedy = f"{remedy}; then {back}" if remedy else back
    return type(error)(error.what, error.where, risk, remedy).about(*error.tables)


def read_again_by_reset(error: CdcError, tables: Collection[TableId | str]) -> CdcError:
    """Return an error that concerns tables alone, with the command that mends just these.

    For a sink that takes rows beside its stream. The log keeps a value that has no place, or rows
    that are not whole, for good, so nothing goes on behind it; the rows have to be read again.
    """
    if not tables:
        return error
    named = " ".join(table_option(table) for table in tables)
    alone = f"`reset` it with {named}: only that is read again"
    if isinstance(error, ValueRefusedError):
        return error.with_remedy(f"correct the value at the source, then {alone}")
    return error.with_remedy(error.remedy.replace(RESET, alone)) if error.tables else error


def stopped_in(stream: StreamSplit, tables: Collection[TableId]) -> tuple[StreamSplit, ...]:
    """Return a stream of its own for each of these tables, at the stream's position."""
    passed = stream.passed(stream.start)
    return tuple(
        StreamSplit(stream.start, None, (progress,), began=stream.began)
        for progress in passed.tables
        if progress.table in tables
    )


def rejoined(stream: StreamSplit, stopped: StreamSplit) -> StreamSplit:
    """Return the stream with a table added that has come to the stream's position or further.

    Changes that the table has beyond the stream's position are left out when the stream comes
    there.
    """
    here = stopped.start
    if not here.covers(stream.start):
        raise SplitOutdatedError(
            f"{stopped.tables[0].table} stands at {here}, and the stream is at {stream.start}",
            where="coming back to the stream",
            risk="none: nothing was changed",
            remedy="nothing: it is brought further",
        )
    progress = _behind(stopped.passed(here).tables[0], here)
    if not stream.start.covers(here):
        progress = replace(progress, consistent_at=(*progress.consistent_at, here))
    others = (each for each in stream.tables if each.table != progress.table)
    tables = sorted((*others, progress), key=lambda each: each.table)
    return replace(stream, tables=tuple(tables))


def stops_alone(
    error: CdcError, tables: Collection[TableId], *, or_all: bool = False
) -> tuple[TableId, ...]:
    """Return the tables that an error concerns alone; none if it is of the whole stream.

    It is if no other table would flow, unless the stream may be left without one (`or_all`).
    """
    if isinstance(error, RetryableError):
        return ()
    named = tuple(table for table in tables if str(table) in error.tables)
    leaves_some = or_all or len(named) < len(tables)
    return named if len(named) == len(error.tables) and leaves_some else ()


def _behind(progress: TableProgress, position: LogPosition) -> TableProgress:
    """Return a table's progress as applied through a position at least."""
    return replace(progress, applied_through=progress.applied_through.join(position))
