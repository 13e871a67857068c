"""Rows of `cdc_request`: records from them and back, and looks within the caller's transaction."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update

from airflow_cdc_provider.core.codec import dumps, position_from_json, position_to_json
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.requests import (
    Request,
    RequestKind,
    RequestStatus,
    scope_from_json,
    scope_to_json,
)
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.rows import Values
from airflow_cdc_provider.state.tables import NAME, requests

CLOSED_KEPT = 1000
"""Older requests of a pipeline that are closed are dropped when another one is closed."""
OVERTAKEN = StoredError.saying(
    "a new plan was made since: the next run reads every row of its tables"
)
OPEN = [status.value for status in RequestStatus if status.is_open]
_REQUESTS = (
    select(requests)
    .where(requests.c.pipeline == NAME)
    .order_by(requests.c.asked_us, requests.c.request_id)
)
_OPEN_REQUESTS = _REQUESTS.where(requests.c.status.in_(OPEN))


def request_of(row: Row[Any]) -> Request:
    """Make a request from a row of `cdc_request`."""
    return Request(
        pipeline=PipelineName(row.pipeline),
        request_id=row.request_id,
        kind=RequestKind(row.kind),
        scope=scope_from_json(json.loads(row.scope)),
        asked_by=row.asked_by,
        asked_us=row.asked_us,
        status=RequestStatus(row.status),
        is_cancel_wanted=bool(row.cancel_wanted),
        estimated_rows=row.estimated_rows,
        splits=row.split_count,
        rows=row.row_count,
        left=row.left_count,
        tables_done=row.tables_done,
        position=None if row.position is None else position_from_json(json.loads(row.position)),
        error=StoredError(row.error),
        changed_us=row.changed_us,
    )


def request_values(request: Request) -> Values:
    """Return a request as a row of `cdc_request`."""
    return {
        "pipeline": str(request.pipeline),
        "request_id": request.request_id,
        "kind": request.kind.value,
        "scope": dumps(scope_to_json(request.scope)),
        "arguments": request.arguments_hash,
        "asked_by": request.asked_by[:255],
        "asked_us": request.asked_us,
        "status": request.status.value,
        "cancel_wanted": request.is_cancel_wanted,
        "estimated_rows": request.estimated_rows,
        **progress_values(request),
    }


def progress_values(request: Request) -> Values:
    """Return the columns of a request's progress."""
    position = request.position
    return {
        "split_count": request.splits,
        "row_count": request.rows,
        "left_count": request.left,
        "tables_done": request.tables_done,
        "position": None if position is None else dumps(position_to_json(position)),
        "error": request.error.text,
        "changed_us": request.changed_us,
    }


def is_request(name: PipelineName, request_id: str) -> ColumnElement[bool]:
    """Return the SQL condition that picks one request."""
    return (requests.c.pipeline == str(name)) & (requests.c.request_id == request_id)


def find_request(connection: Connection, name: PipelineName, request_id: str) -> Request | None:
    """Read one request, None if there is none of this id."""
    row = connection.execute(select(requests).where(is_request(name, request_id))).first()
    return None if row is None else request_of(row)


def find_requests(
    connection: Connection, name: PipelineName, *, only_open: bool
) -> tuple[Request, ...]:
    """Read a pipeline's requests, oldest first."""
    mine = _OPEN_REQUESTS if only_open else _REQUESTS
    return tuple(request_of(row) for row in connection.execute(mine, {"name": str(name)}))


def last_done_us(connection: Connection, name: PipelineName, kind: RequestKind) -> int:
    """Return when a request of a kind was last done, 0 if none was."""
    done = requests.c.kind == kind.value, requests.c.status == RequestStatus.DONE.value
    mine = select(func.max(requests.c.changed_us)).where(requests.c.pipeline == str(name), *done)
    return int(connection.execute(mine).scalar() or 0)


def cancel_open(connection: Connection, name: PipelineName, now_us: int) -> None:
    """Cancel a pipeline's open requests, because a new plan reads every row anyway."""
    mine = requests.c.pipeline == str(name), requests.c.status.in_(OPEN)
    change = update(requests).where(*mine)
    values = {
        "status": RequestStatus.CANCELLED.value,
        "error": OVERTAKEN.text,
        "changed_us": now_us,
    }
    connection.execute(change.values(values))


def drop_old(connection: Connection, name: PipelineName) -> None:
    """Delete a pipeline's closed requests, except the newest."""
    closed = requests.c.pipeline == str(name), requests.c.status.not_in(OPEN)
    newest_first = requests.c.asked_us.desc(), requests.c.request_id.desc()
    too_many = select(requests.c.request_id).where(*closed).order_by(*newest_first)
    # a row each, and not what was asked before some time: of one time there may be several
    for (request_id,) in connection.execute(too_many.offset(CLOSED_KEPT).limit(CLOSED_KEPT)).all():
        connection.execute(delete(requests).where(is_request(name, request_id)))
