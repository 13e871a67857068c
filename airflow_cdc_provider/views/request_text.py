"""Requests as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.codec import chosen_to_json, key_to_json
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.requests import MOST_COUNTED, Request
from airflow_cdc_provider.core.splits import KeyList

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.costing import TableCost
    from airflow_cdc_provider.pipeline.steps.estimating import Estimate

_MOST = 200
"""Tables that a summary names one by one."""
Form = dict[str, Any]


def request_form(request: Request) -> Form:
    """Return a request as JSON; later releases only add fields."""
    scope, position = request.scope, request.position
    return {
        "id": request.request_id,
        "kind": request.kind.value,
        "reads_rows": request.kind.reads_rows,
        "status": request.status.value,
        "tables": [str(table) for table in scope.tables],
        "from_key": key_to_json(scope.parts[0].start),
        "to_key": key_to_json(scope.parts[-1].end),
        "ranges": len(scope.ranges),
        "interval": None,
        "condition": None,
        **chosen_to_json(scope.chosen),
        "keys": len(scope.chosen.keys) if isinstance(scope.chosen, KeyList) else None,
        "asked_by": request.asked_by,
        "asked_us": request.asked_us,
        "cancel_wanted": request.is_cancel_wanted,
        "estimated_rows": request.estimated_rows,
        "splits": request.splits,
        "rows": request.rows,
        "left": request.left,
        "tables_done": request.tables_done,
        "position": None if position is None else str(position),
        "error": str(request.error),
        "changed_us": request.changed_us,
    }


def request_line(request: Request) -> str:
    """Return a request and its progress as one line."""
    status = request.status.value
    if request.is_cancel_wanted and request.status.is_open:
        status = f"{status}, to be cancelled"
    asked = datetime.fromtimestamp(request.asked_us / 1e6, UTC)
    parts = [
        f"{request.request_id}: {request.kind.value} of {request.scope}, {status}",
        progress_text(request) if request.kind.reads_rows else "",
        f"asked by {request.asked_by} at {asked:%Y-%m-%d %H:%M:%S}",
    ]
    return "; ".join(filter(None, [*parts, str(request.error)]))


def progress_text(request: Request) -> str:
    """Return how many rows of a request are read, and of how many."""
    is_known = request.estimated_rows is not None and request.status.is_open
    whole = counted(request.estimated_rows or 0, "row") if is_known else ""
    rows = f"{request.rows:,} of about {whole}" if whole else counted(request.rows, "row")
    tables = len(request.scope.tables)
    done = f", {request.tables_done}/{tables} tables" if tables > 1 else ""
    splits = counted(request.splits, "split")
    return f"{rows} in {splits}{done}{request.left_text}"


def standing_text(request: Request) -> str:
    """Return a request's status and progress, and what it waits for or why it ended, as text."""
    text = f"{request.status.value}, {progress_text(request)}"
    return f"{text}; {request.error}" if request.error else text


def in_order(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Sort requests: open ones in the order of their work, then closed ones, newest first."""
    oldest_first = tuple(requests)
    closed = [each for each in reversed(oldest_first) if not each.status.is_open]
    return (*(each for each in oldest_first if each.status.is_open), *closed)


def request_summary(request: Request) -> Form:
    """Return a request's summary for other tasks: ids and counts, no keys or conditions."""
    tables = request.scope.tables
    return {
        "pipeline": str(request.pipeline),
        "request": request.request_id,
        "kind": request.kind.value,
        "status": request.status.value,
        "tables": [str(table) for table in tables[:_MOST]],
        "tables_done": request.tables_done,
        "rows": request.rows,
        "left": request.left,
        "ranges": request.splits,
        "position": "" if request.position is None else str(request.position),
    }


def estimate_lines(found: Estimate) -> list[str]:
    """Return the row counts of both sides, a line for each table."""
    return [
        f"{each.table}: {_rows(each.source_rows)} at the source, "
        f"{_rows(each.sink_rows)} at the sink"
        for each in found.tables
    ]


def estimate_form(found: Estimate) -> list[Form]:
    """Return an estimate as JSON; later releases only add fields."""
    return [
        {"table": str(each.table), "source_rows": each.source_rows, "sink_rows": each.sink_rows}
        for each in found.tables
    ]


def _rows(rows: int | None) -> str:
    """Return a row count as text."""
    return f"more than {MOST_COUNTED:,} rows" if rows is None else f"about {counted(rows, 'row')}"


def cost_form(cost: TableCost) -> Form:
    """Return one table's estimated cost as JSON; later releases only add fields."""
    return {
        "table": str(cost.table),
        "source_rows": cost.source_rows,
        "sink_rows": cost.sink_rows,
        "deletes": cost.deletes,
        "bytes": cost.bytes,
        "seconds": None if cost.seconds is None else round(cost.seconds, 1),
    }


def cost_lines(cost: TableCost) -> list[str]:
    """Return one table's estimated cost as short lines."""
    sink = _rows(cost.sink_rows)
    found = [f"{_rows(cost.source_rows)} at the source, {sink} at the sink"]
    if cost.deletes:
        found.append(f"about {counted(cost.deletes, 'row')} more at the sink, to be deleted")
    if cost.bytes is not None and cost.seconds is not None:
        time = f"about {cost.seconds:,.0f} s" if cost.seconds >= 1 else "less than a second"
        found.append(
            f"about {cost.bytes / 1e6:,.1f} MB, {time} for one reader as fast as the snapshot's"
        )
    return found
