"""What is said of a pipeline beside where it is: why it did not begin, and who reads its rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.records import Note
from airflow_cdc_provider.views.freshness import late_lines
from airflow_cdc_provider.views.started import FOLLOWING

if TYPE_CHECKING:
    from airflow_cdc_provider.views.status import PipelineStatus, TableStatus

_UNREAD = frozenset(
    each.value
    for each in (TablePhase.PLANNED, TablePhase.SNAPSHOT, TablePhase.READ, TablePhase.CHANGED)
)


def refusal_of(note: Note | None) -> CdcError | None:
    """Return the error that ended the last try to begin, None if a later try got past it."""
    if note is None or not note.form["error"]:
        return None
    at = datetime.fromtimestamp(note.at_us / 1e6, UTC)
    error = CdcError.from_json(note.form["error"])
    return error.located(f"the last {note.form['step']}, {at:%Y-%m-%d %H:%M:%S} UTC")


def overrides_of(note: Note | None) -> tuple[Mapping[str, Any], ...]:
    """Return the decisions that persons took against refusals, oldest first."""
    return () if note is None else tuple(note.form["made"])


def conflicts_of(note: Note | None) -> int | None:
    """Return how many conflicts an edge has settled, None if it never told."""
    return None if note is None else int(note.form["count"])


def published_of(note: Note | None) -> int | None:
    """Return when tables that follow a log had last all of it, None where none do."""
    return None if note is None else int(note.form["at_us"])


def remark_lines(status: PipelineStatus) -> list[str]:
    """Return lines on the last try's error, decisions against refusals, and requests' rows."""
    lines = [f"  problem: {status.nobody}"] if status.nobody else []
    lines += [] if status.refusal is None else [f"  problem: {status.refusal}"]
    lines += [f"  problem: {text}" for text in late_lines(status)]
    if status.conflicts:
        settled = counted(status.conflicts, "conflict was", "conflicts were")
        lines.append(f"  {settled} settled: `conflicts` lists them")
    for made in status.overrides:
        at = datetime.fromtimestamp(made["at_us"] / 1e6, UTC)
        lines.append(
            f"  {made['command']} by {made['by']}, {at:%Y-%m-%d %H:%M} UTC: {made['what']}; "
            f"reason: {made['reason']}"
        )
    return lines + [
        f"  {table.source}: {awaited}"
        for table in status.tables
        if table.by_request and table.phase != FOLLOWING and (awaited := _awaited_rows(table))
    ]


def _awaited_rows(table: TableStatus) -> str:
    """Say which requests read a table that has no splits of a snapshot; empty once it has rows."""
    if table.requests:
        return f"its rows are read by {', '.join(table.requests)}"
    if table.phase in _UNREAD:
        return "its rows wait for a request that reads them"
    return ""
