"""What is asked of a pipeline: anyone may ask and cancel, only the owner moves a request on.

Every change names the status it moves from in its own statement, so a person who cancels and an
owner who begins at the same moment never both win.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, update
from sqlalchemy.exc import IntegrityError as DuplicateRowError

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError, StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.requests import Request, RequestStatus, check_request_move
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.state.request_rows import (
    OPEN,
    drop_old,
    find_request,
    is_request,
    progress_values,
    request_values,
)
from airflow_cdc_provider.state.rows import Values
from airflow_cdc_provider.state.sampling import SampledStore
from airflow_cdc_provider.state.tables import requests


class RequestStore(SampledStore):
    """The part of the state store that keeps requests."""

    def ask(self, request: Request) -> Request:
        """Store a new request; one of the same id and arguments is returned as it is.

        The same id with other arguments is refused.
        """
        known = self.request(request.pipeline, request.request_id)
        if known is not None:
            return _same(known, request)
        values = {**request_values(request), "changed_us": self._clock()}
        try:
            with self._writing() as connection:
                connection.execute(insert(requests).values(values))
                return _known(connection, request.pipeline, request.request_id)
        except DuplicateRowError:
            return self.ask(request)  # another one was faster

    def approve_request(self, name: PipelineName, request_id: str) -> Request:
        """Let a request begin that waits for approval; any other open or done one is returned."""
        approved: Values = {"status": RequestStatus.ASKED.value, "changed_us": self._clock()}
        with self._writing() as connection:
            _change(connection, name, request_id, RequestStatus.WAITING, approved)
            found = _known(connection, name, request_id)
        if found.status in {RequestStatus.CANCELLED, RequestStatus.FAILED}:
            raise RefusedError(
                f"request {request_id} has {found.status} and is not begun any more",
                where=f"state of {name}",
                risk=NOTHING_CHANGED,
                remedy="ask again under another id",
            )
        return found

    def cancel_request(self, name: PipelineName, request_id: str) -> Request:
        """Ask the owner to cancel a request; one that has not begun is cancelled at once."""
        cancelled: Values = {"status": RequestStatus.CANCELLED.value}
        changes = {
            RequestStatus.WAITING: cancelled,
            RequestStatus.ASKED: cancelled,
            RequestStatus.READING: Values(),
        }
        with self._writing() as connection:
            for status, more in changes.items():
                values = {**more, "cancel_wanted": True, "changed_us": self._clock()}
                _change(connection, name, request_id, status, values)
            return _known(connection, name, request_id)

    def move_request(
        self,
        name: PipelineName,
        generation: int,
        request_id: str,
        *,
        expected: RequestStatus,
        to: RequestStatus,
        error: StoredError = NO_ERROR,
    ) -> Request:
        """Move a request from `expected` to another status; `StateMovedError` if it has another."""
        check_request_move(expected, to)
        values: Values = {"status": to.value, "error": error.text, "changed_us": self._clock()}
        with self._fenced(name, generation) as connection:
            is_moved = _change(connection, name, request_id, expected, values)
            found = _known(connection, name, request_id)
            if not is_moved:
                raise _moved(found, expected)
            if not to.is_open:
                drop_old(connection, name)
            return found

    def note_request(self, generation: int, request: Request) -> Request:
        """Store a request's counts, position and error; return the request as it is stored then.

        One that is closed by now stays as it is.
        """
        values = {**progress_values(request), "changed_us": self._clock()}
        name, request_id = request.pipeline, request.request_id
        with self._fenced(name, generation) as connection:
            before = _known(connection, name, request_id).rows
            mine = is_request(name, request_id), requests.c.status.in_(OPEN)
            connection.execute(update(requests).where(*mine).values(values))
            self._sample_rows(connection, name, max(0, request.rows - before), is_last=True)
            return _known(connection, name, request_id)


def _change(
    connection: Connection,
    name: PipelineName,
    request_id: str,
    expected: RequestStatus,
    values: Values,
) -> bool:
    """Update a request that has the expected status; False if it has another."""
    mine = is_request(name, request_id), requests.c.status == expected.value
    return connection.execute(update(requests).where(*mine).values(values)).rowcount > 0


def _same(known: Request, asked: Request) -> Request:
    """Return the known request if the new one has the same arguments, else refuse."""
    if known.arguments_hash == asked.arguments_hash:
        return known
    raise RefusedError(
        f"request {known.request_id} is a {known.kind} of {known.scope}, "
        f"not a {asked.kind} of {asked.scope}",
        where=f"state of {known.pipeline}",
        risk=NOTHING_CHANGED,
        remedy="ask under another id, or under none",
    )


def _known(connection: Connection, name: PipelineName, request_id: str) -> Request:
    """Read a request in the caller's transaction; refuse if there is none."""
    found = find_request(connection, name, request_id)
    if found is None:
        raise RefusedError(
            f"{name} has no request {request_id!r}",
            where=f"state of {name}",
            risk=NOTHING_CHANGED,
            remedy="`requests` lists those it has",
        )
    return found


def _moved(found: Request, expected: RequestStatus) -> StateMovedError:
    """Return the error for a request that has another status than expected."""
    return StateMovedError(
        f"request {found.request_id} of {found.pipeline} is {found.status}, not {expected}",
        where=f"state of {found.pipeline}",
        risk=NOTHING_CHANGED,
        remedy="read the request again and decide anew",
    )
