"""Events of a source's log as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_cdc_provider.core.logged_events import LoggedEvent, LogView
from airflow_cdc_provider.core.plurals import counted


def log_lines(view: LogView) -> list[str]:
    """Return log events as lines, with a mark at the position."""
    lines = [f"log of {view.server}, up to {view.log_end}"]
    mark = f"=> {view.file}:{view.offset}"
    for event in view.events:
        if mark and (event.file, event.start) >= (view.file, view.offset):
            lines.append(mark)
            mark = ""
        lines += _event_lines(event)
    return [*lines, mark] if mark else lines


def _event_lines(event: LoggedEvent) -> Iterator[str]:
    """Yield one log event as lines."""
    time = datetime.fromtimestamp(event.time_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    place = "    packed in it" if event.compressed else f"{event.file}:{event.start}-{event.end}"
    parts = [place, time, event.kind, f"{event.bytes} bytes"]
    if event.rows is not None:
        parts.append(counted(event.rows, "row"))
    told = (event.statement, ", ".join(event.tables), event.transaction, event.problem)
    yield "  ".join([*parts, *filter(None, told)])
    for row in event.values:
        yield f"    {json.dumps(row, ensure_ascii=False)}"
