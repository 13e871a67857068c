"""Tables of the sink that somebody else has changed since they were made, or looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import SinkTableChangedError
from airflow_cdc_provider.core.identifiers import TableId

_SHOWN_TABLES = 5


@dataclass(frozen=True, slots=True)
class TableDrift:
    """A table of the sink whose definition cannot take every row of the source as it is."""

    table: TableId
    """The source's."""
    sink_table: TableId
    text: str
    """What is so, in words that follow the table's name."""


def drift_error(drifts: Sequence[TableDrift], where: str) -> SinkTableChangedError:
    """Return the error for tables whose definition was changed at the sink."""
    shown = "; ".join(f"{drift.sink_table}: {drift.text}" for drift in drifts[:_SHOWN_TABLES])
    more = f"; and {len(drifts) - _SHOWN_TABLES} tables more" if len(drifts) > _SHOWN_TABLES else ""
    arguments = " ".join(f"--table {drift.table}" for drift in drifts)
    return SinkTableChangedError(
        f"tables of the sink were changed there, and may alter or refuse rows: {shown}{more}",
        where,
        "values that were there may have been converted with the change, and rows written since "
        "it may have been altered; nothing more is written",
        f"change the table back and `resume` with {arguments}, or run where nothing streams: its "
        "rows are read again then, and put right; or drop it at the sink and `reset` with "
        f"{arguments}: only that is read again",
    ).about(*(drift.table for drift in drifts))
