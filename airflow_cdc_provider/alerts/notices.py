"""What receivers are notified of: the problems that a pipeline's status shows.

A pipeline that is paused on purpose has no new problem, and none of its problems is over. One that
failed says so, and its outages and what else the failure explains are not said beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from airflow_cdc_provider.core.errors import CdcError, RetryableError, TablesStoppedError
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, Phase, TablePhase, Wanted
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.views.freshness import late_error
from airflow_cdc_provider.views.status import PipelineStatus

_US = 1_000_000
_LEFT = StoredError.saying("its stream leaves it")
_AT_WORK = frozenset({Phase.PLANNING, Phase.SNAPSHOT, Phase.STREAMING})


class Kind(StrEnum):
    """The kinds of problem that receivers are notified of."""

    OUTAGE = "outage"
    """A server is away, or something else that is waited for."""
    FAILED = "failed"
    """The pipeline, or a run of it, failed."""
    REFUSED = "refused"
    """A run did not begin: preflight or planning refused it. A stream may go on meanwhile."""
    TABLE = "table"
    """A table is stopped while the others go on."""
    LAG = "lag"
    """The copy is older than `freshness.target`."""
    APPROVAL = "approval"
    """A request waits until somebody approves it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One problem of a pipeline; stored as JSON, so fields are only added."""

    kind: Kind
    subject: str
    """What tells it from others of its kind: a code, a table, the id of a request."""
    code: str
    what: str
    where: str = ""
    risk: str = ""
    remedy: str = ""
    since_us: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.subject}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        known = {name: form[name] for name in cls.__slots__ if name in form}
        return cls(**{**known, "kind": Kind(form["kind"])})


@dataclass(frozen=True, slots=True)
class Seen:
    """The problems that one check of a pipeline shows, and which of them are to be sent."""

    at_us: int
    notices: tuple[Notice, ...] = ()
    ripe: frozenset[str] = frozenset()
    """Keys of those that have lasted long enough to be news."""
    is_paused: bool = False
    is_well: bool = False
    """Somebody is at work, or the last run ended well, and nothing keeps it from going forward."""
    has_ended_well: bool = False

    @property
    def has_failed(self) -> bool:
        """Tell whether the pipeline has failed."""
        return any(notice.kind is Kind.FAILED for notice in self.notices)


def seen(
    status: PipelineStatus, *, after_s: float, begun_us: int = 0, ended_with: CdcError | None = None
) -> Seen:
    """Return the problems that a pipeline's status shows.

    `begun_us` is when the watch began: how an earlier run ended is not sent again, for this run
    comes after it. `ended_with` is the error with which the watching run ended.
    """
    now_us = status.at_us
    if status.state.wanted is Wanted.STOP:
        return Seen(now_us, is_paused=True)
    refused, failed = _refused(status), _failed(status, ended_with)
    outages = () if failed else tuple(_outages(status))
    others = (*_tables(status), *_lag(status), *_approvals(status))
    ends = tuple(notice for notice in (failed, refused) if notice is not None)
    old = {notice.key for notice in ends if notice.since_us < begun_us}
    if failed is not None and status.is_owned and not status.doubt:
        old.add(failed.key)  # a later run has begun, or this one is about to end
    young = {notice.key for notice in (*ends, *outages) if _is_young(notice, now_us, after_s)}
    if ended_with is not None:
        last = {notice.key for notice in (failed,) if notice}
        last.add(f"{Kind.REFUSED}:{ended_with.code}")
        old, young = old - last, young - last
    notices = (*ends, *outages, *others)
    paused = {
        f"{Kind.TABLE}:{table.source}"
        for table in status.tables
        if table.phase == TablePhase.PAUSED.value
    }
    ripe = frozenset(notice.key for notice in notices) - old - young - paused
    has_ended = status.state.phase is Phase.STOPPED and not failed
    is_well = not failed and not outages and (has_ended or _is_at_work(status))
    return Seen(now_us, notices, ripe, is_well=is_well, has_ended_well=has_ended)


def _is_young(notice: Notice, now_us: int, after_s: float) -> bool:
    """Tell whether a problem may pass by itself and has not lasted long enough to be sent."""
    may_pass = isinstance(CdcError.from_json({"code": notice.code}), RetryableError)
    return (may_pass or notice.kind is Kind.OUTAGE) and now_us - notice.since_us < after_s * _US


def _is_at_work(status: PipelineStatus) -> bool:
    """Tell whether a living owner works, and its stream beats under its own generation."""
    state, stream = status.state, status.stream
    if state.phase not in _AT_WORK or not status.is_owned or status.doubt:
        return False
    if state.phase is not Phase.STREAMING:
        return True
    is_heard = stream is not None and stream.generation == state.generation
    return is_heard and stream is not None and stream.heartbeat_us > 0


def _of(kind: Kind, subject: str, error: CdcError, since_us: int) -> Notice:
    """Make a problem from an error."""
    facts = (error.what, error.where, error.risk, error.remedy)
    return Notice(kind, subject, error.code, *facts, since_us)


def _refused(status: PipelineStatus) -> Notice | None:
    """Return a problem if the last try to begin was refused, else None."""
    error = status.refusal
    return None if error is None else _of(Kind.REFUSED, error.code, error, status.refused_us)


def _failed(status: PipelineStatus, ended_with: CdcError | None) -> Notice | None:
    """Return a problem if the pipeline or its run has failed, else None."""
    state, refusal = status.state, status.refusal
    error, since_us = ended_with, status.at_us
    if state.phase is Phase.FAILED:
        error, since_us = state.error.read(), state.updated_us
    elif error is not None and refusal is not None and refusal.code == error.code:
        return None
    if error is None or isinstance(error, TablesStoppedError):  # each table is a problem
        return None
    return _of(Kind.FAILED, error.code, error, since_us)


def _outages(status: PipelineStatus) -> Iterator[Notice]:
    """Yield a problem for each outage."""
    for outage in status.outages:
        yield _of(Kind.OUTAGE, outage.error.code, outage.error, outage.since_us)


def _tables(status: PipelineStatus) -> Iterator[Notice]:
    """Yield a problem for each table that is isolated from the stream."""
    for table in status.tables:
        if table.phase in LEFT_ALONE:
            error = (table.error or _LEFT).read()
            told = _of(Kind.TABLE, table.source, error, status.at_us)
            yield replace(told, what=f"{table.source} is stopped: {error.what}")


def _lag(status: PipelineStatus) -> Iterator[Notice]:
    """Yield a problem if the copy is older than allowed."""
    error, age_s = late_error(status), status.copy_age_s
    if error is not None and age_s is not None:
        # the copy's age now is no fact of the problem: it grows
        text = f"the copy is older than the target, {status.freshness_s} s"
        since_us = status.at_us - int((age_s - (status.freshness_s or 0)) * _US)
        yield _of(Kind.LAG, "freshness", error.saying(text), since_us)


def _approvals(status: PipelineStatus) -> Iterator[Notice]:
    """Yield a problem for each request that waits for approval."""
    for request in status.requests:
        if request.status is RequestStatus.WAITING:
            yield Notice(
                Kind.APPROVAL,
                f"{request.request_id}@{request.asked_us}",
                "",
                f"the request {request.request_id} ({request.kind.value} of {request.scope}) by "
                f"{request.asked_by} waits for approval",
                where=f"requests of {status.state.name}",
                risk="none: the stream goes on, the request does not begin",
                remedy="`approve` the request, or `cancel` it",
                since_us=request.asked_us,
            )
