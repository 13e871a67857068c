"""Whether a pipeline is as it should be, from the state store alone, and in words for people."""

from __future__ import annotations

from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.views.freshness import late_lines
from airflow_cdc_provider.views.outages import outage_text
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.status import PipelineStatus

_AT_REST = frozenset({Phase.HANDED_OFF, Phase.STOPPED})


def problems(
    status: PipelineStatus,
    *,
    max_lag_s: float | None = None,
    max_silence_s: float | None = None,
    is_bounded: bool = False,
) -> tuple[str, ...]:
    """Return a pipeline's problems as texts; none if it is paused on purpose.

    `is_bounded`: the pipeline rests between its runs, and has no lag to judge then.
    """
    if status.state.wanted is Wanted.STOP:
        return ()
    found = [f"the pipeline failed: {status.state.error}"] if _has_failed(status) else []
    found += [] if status.refusal is None else [f"its last try to begin failed: {status.refusal}"]
    found += [outage_text(outage, status.at_us) for outage in status.outages]
    found += [
        f"{table.source} stands alone: {table.error or 'its stream leaves it'}"
        for table in status.tables
        if table.phase == TablePhase.FAILED.value
    ]
    found += late_lines(status)
    found += [f"{table} is not copied: it came after the plan" for table in status.not_copied]
    found += [
        f"request {request.request_id} waits for `approve`, a button on the CDC page"
        for request in status.requests
        if request.status is RequestStatus.WAITING
    ]
    if status.ended is not None:
        return tuple(found)  # there is no stream to judge
    rests = is_bounded and status.state.phase in _AT_REST and status.last_lag_s is not None
    return (*found, *_of_the_stream(status, None if rests else max_lag_s, max_silence_s))


def status_text(status: PipelineStatus) -> str:
    """Return a pipeline's progress and problems as a few lines."""
    return "\n".join([progress_line(status), *(f"- {each}" for each in problems(status))])


def _has_failed(status: PipelineStatus) -> bool:
    """Tell whether the pipeline has failed."""
    return status.state.phase is Phase.FAILED


def _of_the_stream(
    status: PipelineStatus, max_lag_s: float | None, max_silence_s: float | None
) -> list[str]:
    """Return the problems of lag and silence of the stream."""
    age_s, found = status.heartbeat_age_s, []
    if max_lag_s is not None:
        if status.lag_s is None:
            found.append("its lag is not known")
        elif status.lag_s > max_lag_s:
            found.append(f"it lags {status.lag_s:.1f} s behind, more than {max_lag_s:.0f} s")
    if max_silence_s is not None and (age_s is None or age_s > max_silence_s):
        heard = "never" if age_s is None else f"{age_s:.0f} s ago"
        found.append(f"its stream was heard of {heard}, longer than {max_silence_s:.0f} s")
    return found
