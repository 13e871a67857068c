"""What a watch over a stream writes into its task's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, TablePhase
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.reader import SqlStateReader
from airflow_cdc_provider.views.error_lines import error_lines
from airflow_cdc_provider.views.in_airflow import way_in_airflow

_SILENT_S = 10.0
"""A heartbeat comes every two seconds; after so many its lag and position are not of today."""
_MOST_NAMED = 20


def stream_text(stream: StreamState, now_us: int) -> str:
    """Return a stream's lag, changes and position as text; if it is silent, for how long."""
    lag = "unknown" if stream.lag_us is None else f"{stream.lag_us / 1e6:.1f} s"
    parts = [f"lag {lag}", f"{stream.changes:,} changes", f"at {stream.position.short}"]
    silence_s = (now_us - stream.heartbeat_us) / 1e6 if stream.heartbeat_us else 0.0
    if silence_s > _SILENT_S:
        parts[0] = f"not heard of for {silence_s:.0f} s, last {parts[0]}"
    return ", ".join(parts)


def standing_tables(
    reader: SqlStateReader, name: PipelineName, now_us: int
) -> tuple[int, Mapping[str, StoredError]]:
    """Return how many tables are isolated from the stream, and up to a thousand of their errors.

    For a pipeline without isolated tables its tables are not read one by one.
    """
    for seen in reader.overviews((name,), now_us):
        count = sum(seen.tables.get(phase, 0) for phase in LEFT_ALONE)
        if not count or not seen.tables.get(TablePhase.CHANGED):
            return count, dict(seen.troubles) if count else {}
    tables = [each for each in reader.tables(name) if each.phase in LEFT_ALONE]
    return len(tables), {str(each.table): each.error for each in tables}


def standing_text(count: int) -> str:
    """Return how many tables are isolated, as text; empty if none is."""
    return f"{count} {'table stands' if count == 1 else 'tables stand'} still" if count else ""


def codes_of(standing: Mapping[str, StoredError]) -> dict[str, str]:
    """Return the error code of each isolated table; empty if a person paused it.

    The caller keeps these codes, and not the long texts.
    """
    return {table: error.read().code if error else "" for table, error in standing.items()}


def standing_lines(standing: Mapping[str, StoredError], told: Mapping[str, str]) -> Iterator[str]:
    """Yield log lines on newly isolated tables: why, and how each comes back.

    `told` are the codes logged before; a table is logged again for another error.
    """
    news = [table for table, code in codes_of(standing).items() if told.get(table) != code]
    for table in news[:_MOST_NAMED]:
        yield from _lines_of(table, standing[table])
    if (more := len(news) - _MOST_NAMED) > 0:
        yield f"{more} more tables stand still: the CDC page and `airflow cdc status` name them"


def _lines_of(table: str, error: StoredError) -> Iterator[str]:
    """Yield the log lines on one isolated table."""
    first, *rest = error_lines(error.read()) if error else ("a person paused it",)
    yield f"{table} stands still while the other tables flow on: {first}"
    yield from rest
    yield f"    to have it back, {way_in_airflow('`resume`', table=table)}"
