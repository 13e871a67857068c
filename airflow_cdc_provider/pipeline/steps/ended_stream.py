"""A stream that ended for good: nothing that only goes on may start.

The log will always hold what such a stream ended with, so each new one would end at the same
place, and until then look alive: tasks would be green, and assets told, on a sink that stands
still. So every step that goes on asks here first. What a person may mend at a server, such as a
missing privilege, is not met with this: there a new run simply tries again.
"""

from __future__ import annotations

from airflow_cdc_provider.core.errors import LogPurgedError, StreamEndedError, TableChangedError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import PipelineState
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.state.desired_state import is_to_be_tried_again, set_aside, what_of

_WAYS_ON = frozenset({RequestKind.REMOVE, RequestKind.DROP, RequestKind.RESET})


def ended_with(run: Run) -> StoredError:
    """Return the error with which the stream ended for good, empty if it did not."""
    state = run.store.pipeline(run.name)
    if state is None or not _is_final(state) or not run.store.is_handed_off(run.name):
        return NO_ERROR
    if is_to_be_tried_again(run.store, state) or _is_to_be_mended(run):
        return NO_ERROR
    return state.error


def require_not_ended(run: Run) -> None:
    """Raise `StreamEndedError` if the stream ended for good: it would end there again."""
    error = ended_with(run)
    if error:
        raise StreamEndedError(
            f"the stream of {run.name} ended, and would end there again: {what_of(error)}",
            where=f"state of {run.name}",
            risk="none: nothing was started; the sink stands still at its last commit",
            remedy=way_on(run),
        )


def set_aside_as_wanted(run: Run) -> None:
    """Set a failure aside if a person wants it to be tried again: a run begins now."""
    state = run.store.pipeline(run.name)
    if state is not None and is_to_be_tried_again(run.store, state):
        set_aside(run.store, run.name)


def way_on(run: Run) -> str:
    """Return the advice to a person whose stream ended for good."""
    told = ended_with(run).read()
    if isinstance(told, TableChangedError | LogPurgedError) and told.remedy:
        return told.remedy
    return (
        f"`reset` {run.loaded.path}, and the next run reads all tables again. If its cause is "
        "gone, by a newer release of this product for instance, `resume` lets the next run go on "
        "from the last commit"
    )


def _is_to_be_mended(run: Run) -> bool:
    """Tell whether an open request removes or restarts tables: the next run does that first."""
    return any(
        request.kind in _WAYS_ON and not request.is_cancel_wanted
        for request in run.store.table_requests(run.name)
    )


def _is_final(state: PipelineState) -> bool:
    """Tell whether the pipeline failed with an error that ends the stream for good."""
    return state.phase is Phase.FAILED and state.error.read().ends_the_stream
