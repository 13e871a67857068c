"""The end of a job's log, shown where somebody looks for it: the log is a file on the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.errors import CdcError

_LINES = 20


@contextmanager
def log_shown_on_failure(path: Path | None, log: Logger | Any) -> Iterator[None]:
    """Write the last lines of a job's log to the task's log if the block fails."""
    try:
        yield
    except CdcError:
        for line in _tail(path):
            log.error("job log: %s", line)
        if path is not None:
            log.error("job log: all of it is in %s on this worker", path)
        raise


def _tail(path: Path | None) -> list[str]:
    """Return the last lines of a job's log."""
    # as in `steps`, what is heavy is imported when a task runs
    from airflow_cdc_provider.pipeline.steps.jobs import log_tail  # noqa: PLC0415

    if path is None or not path.exists():
        return []
    return log_tail(path)[-_LINES:]
