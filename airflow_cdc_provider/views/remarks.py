"""What is said of a pipeline beside where it is: why it did not begin, and who reads its rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.records import Note

if TYPE_CHECKING:
    from airflow_cdc_provider.views.status import PipelineStatus

_READ = frozenset({TablePhase.CATCHING_UP.value, TablePhase.CONSISTENT.value})


def refusal_of(note: Note | None) -> CdcError | None:
    """Return what the last try to begin ended with, None if it got past that, or there was none."""
    if note is None or not note.form["error"]:
        return None
    at = datetime.fromtimestamp(note.at_us / 1e6, UTC)
    error = CdcError.from_json(note.form["error"])
    return error.located(f"the last {note.form['step']}, {at:%Y-%m-%d %H:%M:%S} UTC")


def remark_lines(status: PipelineStatus) -> list[str]:
    """Write what ended the last try to begin, and which tables have their rows from a request."""
    lines = [] if status.refusal is None else [f"  problem: {status.refusal}"]
    for table in status.tables:
        if table.by_request:
            are = "were" if table.phase in _READ else "are"
            lines.append(f"  {table.source}: its rows {are} read by a request, not in splits")
    return lines
