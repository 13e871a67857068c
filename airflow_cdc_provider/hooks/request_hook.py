"""What is asked of a pipeline, as operators and sensors ask it.

As in `steps`, what is heavy is imported when a task runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.requests import Request, RequestStatus, Scope
from airflow_cdc_provider.core.windows import Window
from airflow_cdc_provider.hooks.steps import CdcSteps

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.costing import TableCost
    from airflow_cdc_provider.pipeline.steps.estimating import Estimate

_HEARD_US = 10_000_000
"""A stream is heard of every two seconds."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who makes a request, under which id, and up to how many rows without approval."""

    request_id: str
    asked_by: str
    approve_above_rows: int | None = None
    """Beside the file's own limit; None adds none."""
    approved_by: str = ""
    """Who approved it before it was asked."""


class CdcRequests:
    """Makes, finds and cancels requests of one open pipeline."""

    def __init__(self, steps: CdcSteps) -> None:
        self._steps = steps
        self._run = steps.run

    @property
    def name(self) -> PipelineName:
        return self._run.name

    @property
    def state_dsn(self) -> str:
        return self._run.servers.state_dsn

    def resync_scope(
        self,
        tables: Sequence[str],
        *,
        from_key: str | None = None,
        to_key: str | None = None,
        where: str | None = None,
    ) -> Scope:
        """Return the scope of a request to read rows again; all tables if none are named."""
        from airflow_cdc_provider.pipeline.steps.range_requests import (  # noqa: PLC0415 - see above
            resync_scope,
        )

        return resync_scope(self._run, tables, from_key=from_key, to_key=to_key, where=where)

    def window_scope(
        self,
        table: str,
        window: Window,
        *,
        column: str = "",
        timezone: str | None = None,
        epoch: str | None = None,
    ) -> Scope:
        """Return the scope of rows whose column, or the file's, is in a window of time."""
        from airflow_cdc_provider.pipeline.steps.windows import (  # noqa: PLC0415 - see above
            file_column,
            time_column,
            window_scope,
        )

        by = time_column(column, timezone, epoch) if column else file_column(self._run, table)
        return window_scope(self._run, table, by, window)

    def estimate(self, scope: Scope) -> Estimate:
        """Count the scope's rows at source and sink."""
        from airflow_cdc_provider.pipeline.steps.estimating import (  # noqa: PLC0415 - see above
            estimate,
        )

        return estimate(self._run, scope)

    def costs(self, found: Estimate) -> tuple[TableCost, ...]:
        """Estimate what reading these rows again would cost, by how the snapshot went."""
        from airflow_cdc_provider.pipeline.steps.costing import costs  # noqa: PLC0415 - see above

        return costs(self._run, found)

    def most_unasked(self, *more: int | None) -> int | None:
        """Return how many rows may be read without approval, by the file and the caller."""
        from airflow_cdc_provider.pipeline.steps.range_requests import (  # noqa: PLC0415 - see above
            smallest,
        )

        return smallest(self._run.model.requests.approve_above_rows, *more)

    def ask(self, scope: Scope, asking: Asking, estimated: Estimate | None = None) -> Request:
        """Store a request; one that was approved before need not wait for approval."""
        from airflow_cdc_provider.pipeline.steps.range_requests import (  # noqa: PLC0415 - see above
            approve,
            ask_resync,
        )

        asked = ask_resync(
            self._run,
            scope,
            request_id=asking.request_id,
            asked_by=asking.asked_by,
            estimated=estimated,
            approve_above_rows=asking.approve_above_rows,
        )
        if asked.status is RequestStatus.WAITING and asking.approved_by:
            return approve(self._run, asked.request_id, by=asking.approved_by)
        return asked

    def find(self, request_id: str) -> Request | None:
        """Return a request, None if there is none."""
        return self._run.store.request(self.name, request_id)

    def known(self, request_id: str) -> Request:
        """Return a request; refuse if there is none."""
        from airflow_cdc_provider.pipeline.steps.range_requests import known  # noqa: PLC0415 - see above

        return known(self._run, request_id)

    def cancel(self, request_id: str) -> Request:
        """Cancel a request."""
        return self._run.store.cancel_request(self.name, request_id)

    def who(self, request: Request) -> str:
        """Describe which process carries a request out, or what it waits for."""
        state = self._run.store.ensure(self.name)
        if request.status is RequestStatus.WAITING:
            return "it waits for Approve on the CDC page, or `approve`, to let it begin"
        if state.wanted is Wanted.STOP:
            paused = f"it is stored, and {self.name} is paused"
            return f"{paused}: it begins after Resume on the CDC page, or `resume`"
        if self.is_others():
            return f"{state.owner} is at work and carries it out"
        return "nobody is at work"

    def may_begin(self, request: Request) -> bool:
        """Tell whether this task could carry the request out now."""
        is_to_do = request.status.is_to_do and not self._steps.is_paused
        return is_to_do and not self.is_others()

    def is_others(self) -> bool:
        """Tell whether another process owns the pipeline."""
        from airflow_cdc_provider.pipeline.steps.range_requests import (  # noqa: PLC0415 - see above
            is_owned,
        )

        owner = self._run.store.ensure(self.name).owner
        return owner != self._run.owner and is_owned(self._run)

    def is_streamed(self) -> bool:
        """Tell whether a stream has beaten just now; it carries out open requests."""
        store = self._run.store
        state, stream = store.ensure(self.name), store.stream(self.name)
        if state.phase is not Phase.STREAMING or state.wanted is not Wanted.RUN or stream is None:
            return False
        is_heard = stream.heartbeat_us > store.now_us() - _HEARD_US
        return is_heard and stream.generation == state.generation

    def require_done(self, request: Request) -> None:
        """Raise the error of a closed request that is not done."""
        from airflow_cdc_provider.pipeline.steps.range_requests import ended  # noqa: PLC0415 - see above

        if request.status is not RequestStatus.DONE:
            raise ended(request)

    def left(self, request: Request) -> RetryableError:
        """Return the error for a request that this task could not carry out."""
        from airflow_cdc_provider.pipeline.steps.range_requests import left  # noqa: PLC0415 - see above

        return left(request)


def cancel_request(dsn: str, name: PipelineName, request_id: str) -> Request:
    """Cancel a request through the state store alone, without the pipeline's file."""
    from airflow_cdc_provider.state.store import open_store  # noqa: PLC0415 - see above

    store = open_store(dsn)
    try:
        return store.cancel_request(name, request_id)
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class Choice:
    """A person's choice in the form of a resync, as tasks hand it on."""

    tables: tuple[str, ...] = ()
    """None means all."""
    from_key: str | None = None
    to_key: str | None = None
    where: str | None = None
    dry_run: bool = False
    ask_above_rows: int | None = None

    def scope(self, requests: CdcRequests) -> Scope:
        """Return the scope of the chosen rows; refuse what cannot be read again."""
        return requests.resync_scope(
            self.tables, from_key=self.from_key, to_key=self.to_key, where=self.where
        )

    def to_payload(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return asdict(self) | {"tables": list(self.tables)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Choice:
        """Read the choice, also from another release."""
        known = {each.name: payload[each.name] for each in fields(cls) if each.name in payload}
        return cls(**known | {"tables": tuple(payload.get("tables") or ())})
