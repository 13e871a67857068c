"""Requests as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.codec import interval_to_json, key_to_json
from airflow_cdc_provider.core.requests import Request

Form = dict[str, Any]


def request_form(request: Request) -> Form:
    """Return one request for `--json`; the form only grows."""
    scope, position = request.scope, request.position
    return {
        "id": request.request_id,
        "kind": request.kind.value,
        "status": request.status.value,
        "tables": [str(table) for table in scope.tables],
        "from_key": key_to_json(scope.parts[0].start),
        "to_key": key_to_json(scope.parts[-1].end),
        "ranges": len(scope.ranges),
        "interval": None if scope.interval is None else interval_to_json(scope.interval),
        "asked_by": request.asked_by,
        "asked_us": request.asked_us,
        "cancel_wanted": request.is_cancel_wanted,
        "estimated_rows": request.estimated_rows,
        "splits": request.splits,
        "rows": request.rows,
        "tables_done": request.tables_done,
        "position": None if position is None else str(position),
        "error": request.error,
        "changed_us": request.changed_us,
    }


def request_line(request: Request) -> str:
    """Say in one line what is asked, and how far it is."""
    status = request.status.value
    if request.is_cancel_wanted and request.status.is_open:
        status = f"{status}, to be cancelled"
    asked = datetime.fromtimestamp(request.asked_us / 1e6, UTC)
    parts = [
        f"{request.request_id}: {request.kind.value} of {request.scope}, {status}",
        progress_text(request),
        f"asked by {request.asked_by} at {asked:%Y-%m-%d %H:%M:%S}",
    ]
    return "; ".join(filter(None, [*parts, request.error]))


def progress_text(request: Request) -> str:
    """Say how many rows are read of how many."""
    about = "" if request.estimated_rows is None else f" of about {request.estimated_rows:,}"
    tables = len(request.scope.tables)
    done = f", {request.tables_done}/{tables} tables" if tables > 1 else ""
    return f"{request.rows:,}{about} rows in {request.splits} splits{done}"


def in_order(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return the open ones as they will be done, then the others, newest first."""
    oldest_first = tuple(requests)
    closed = [each for each in reversed(oldest_first) if not each.status.is_open]
    return (*(each for each in oldest_first if each.status.is_open), *closed)
