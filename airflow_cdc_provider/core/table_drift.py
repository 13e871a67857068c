"""Tables of the sink that somebody else has changed since they were made, or looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import SinkTableChangedError
from airflow_cdc_provider.core.identifiers import TableId, table_option

_SHOWN_TABLES = 5
WAY_BACK_OF_NODES = (
    "make both nodes' tables alike, then `resume` it with --table; if rows came in between that it "
    "cannot take, the page 'Two nodes' says how a node is copied anew"
)


@dataclass(frozen=True, slots=True)
class TableDrift:
    """A table of the sink whose definition cannot take every row of the source as it is."""

    table: TableId
    """The source's."""
    sink_table: TableId
    text: str
    """What is so, in words that follow the table's name."""
    is_gone: bool = False
    is_shared: bool = False
    """Other tables of the source have rows in it."""

    @classmethod
    def gone(cls, table: TableId, sink_table: TableId) -> TableDrift:
        """Return the drift of a sink table that somebody dropped or renamed."""
        return cls(table, sink_table, "it is gone", is_gone=True)


def firing_text(names: Sequence[str]) -> str:
    """Return what is wrong with a table's triggers, in words that follow its name."""
    return "; ".join(
        f"it has a trigger {name}, which does not ask for @airflow_cdc" for name in names
    )


def drift_error(drifts: Sequence[TableDrift], where: str) -> SinkTableChangedError:
    """Return the error for tables whose definition was changed at the sink."""
    shown = "; ".join(f"{drift.sink_table}: {drift.text}" for drift in drifts[:_SHOWN_TABLES])
    more = f"; and {len(drifts) - _SHOWN_TABLES} tables more" if len(drifts) > _SHOWN_TABLES else ""
    gone = [drift.table for drift in drifts if drift.is_gone]
    shared = [drift.table for drift in drifts if drift.is_shared and not drift.is_gone]
    altered = [drift.table for drift in drifts if not (drift.is_gone or drift.is_shared)]
    risks = [_RISK_GONE] if gone else []
    risks += [_RISK_ALTERED] if altered or shared else []
    ways = [_way_back_of_gone(gone)] if gone else []
    ways += [_way_back_of_altered(altered)] if altered else []
    ways += [_way_back_of_shared(shared)] if shared else []
    return SinkTableChangedError(
        f"tables of the sink were changed there, and may alter or refuse rows: {shown}{more}",
        where,
        f"{'; '.join(risks)}; nothing more is written",
        "; ".join(ways),
    ).about(*(drift.table for drift in drifts))


_RISK_GONE = "the rows of a table that is gone are gone with it"
_RISK_ALTERED = (
    "values that were there may have been converted with the change, and rows written since it "
    "may have been altered"
)


def _way_back_of_gone(tables: Sequence[TableId]) -> str:
    """Return the remedy for tables that are gone at the sink."""
    arguments = _arguments(tables)
    return (
        f"`reset` with {arguments} and run: only that is made anew and read again; or bring it "
        f"back with its rows, and `resume` with {arguments}, or run where nothing streams"
    )


def _way_back_of_altered(tables: Sequence[TableId]) -> str:
    """Return the remedy for tables whose definition was altered at the sink."""
    arguments = _arguments(tables)
    return (
        f"change the table back and `resume` with {arguments}, or run where nothing streams: its "
        "rows are read again then, and put right; or drop it at the sink and `reset` with "
        f"{arguments}: only that is read again"
    )


def _way_back_of_shared(tables: Sequence[TableId]) -> str:
    """Return the remedy for tables whose sink table, which others share, was altered there."""
    arguments = _arguments(tables)
    return (
        f"change the table back and `resume` with {arguments}, or run where nothing streams: "
        f"their rows are read again then, and put right; or `reset` with {arguments}, all in one "
        "command: the table gets what it lacks, and only these rows are read again"
    )


def _arguments(tables: Sequence[TableId]) -> str:
    """Return the arguments of a command that names tables."""
    return " ".join(table_option(table) for table in tables)
