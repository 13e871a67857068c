"""Notifying for as long as a run of the command line, or a task of Airflow, lasts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from airflow_cdc_provider.alerts.watch import NotifyingThread, Watched
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    LeaseHeldError,
    PausedError,
    StateMovedError,
)
from airflow_cdc_provider.pipeline.receivers import Receiver, Wrong, find_receivers
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.state.store import open_store

log = logging.getLogger(__name__)
_OF_OTHERS = (FencedError, LeaseHeldError, PausedError, StateMovedError)
"""Somebody else is at work, or wants a pause: the pipeline is as it should be."""
_INTERRUPTED_S = 2.0
"""Somebody waits for the process to end."""


@contextmanager
def notifying(
    run: Run,
    *,
    link: str = "",
    way: Callable[[str, str], str] | None = None,
    ends_run: Callable[[CdcError], bool] = lambda _: True,
    on_receivers: Callable[[Sequence[Receiver]], None] = lambda _: None,
) -> Iterator[None]:
    """Notify the receivers of the pipeline file, if it has any, until the block ends.

    `ends_run` says of an error whether the run ends with it, or is tried again. `on_receivers` is
    given those whose secrets may have to be hidden elsewhere.
    """
    notify = run.model.notify
    receivers, wrong = find_receivers(notify, run.connections)
    say_wrong(str(run.name), wrong)
    if notify is None or not receivers:
        yield
        return
    on_receivers(receivers)
    watched = Watched(run.name, notify.after_s, run.model.freshness.target_s, link, way)
    dsn = run.servers.state_dsn
    watch = NotifyingThread(watched, lambda: open_store(dsn), receivers)
    watch.start()
    try:
        yield
    except CdcError as error:
        is_failed = not isinstance(error, _OF_OTHERS) and ends_run(error)
        watch.end(ended_with=_scrubbed(run, error) if is_failed else None)
        raise
    except Exception:
        watch.end()
        raise
    except BaseException:  # interrupted, or a task that is deferred: its trigger watches
        watch.end(has_last_look=False, wait_s=_INTERRUPTED_S)
        raise
    else:
        watch.end()


def say_wrong(pipeline: str, wrong: Sequence[Wrong]) -> None:
    """Log which receivers cannot be found; preflight refuses a run for them."""
    for path, what, fix in wrong:
        key = ".".join(map(str, path))
        log.warning("%s: %s is not notified: %s. Fix: %s", pipeline, key, what, fix)


def _scrubbed(run: Run, error: CdcError) -> CdcError:
    """Return an error without the passwords of the run's servers."""
    # a run that ends well needs nothing of the engine
    from airflow_cdc_provider.pipeline.steps.last_try import scrubbed  # noqa: PLC0415

    return scrubbed(run, error)
