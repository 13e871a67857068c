"""The end of a job's log, shown where somebody looks for it: the log is a file on the worker."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from logging import Logger
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.errors import CdcError

_LINES = 20
_LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
}
_BEGINNING = re.compile(r"\d\S* \d\S* ([A-Z]+) ")
"""Of a line of Python's log or of Spark's: date, time and level."""


@contextmanager
def log_shown_on_failure(path: Path | None, log: Logger | Any) -> Iterator[None]:
    """Write the last lines of a job's log to the task's log, by their level, if the block fails."""
    try:
        yield
    except CdcError:
        for line in _tail(path):
            log.log(_level_of(line), "job log: %s", line)
        if path is not None:
            log.info("job log: all of it is in %s on this worker", path)
        raise


def _level_of(line: str) -> int:
    """Return a line's level; one without, such as a stack's, is an error's."""
    found = _BEGINNING.match(line)
    return logging.ERROR if found is None else _LEVELS.get(found[1], logging.ERROR)


def _tail(path: Path | None) -> list[str]:
    """Return the last lines of a job's log."""
    # as in `steps`, what is heavy is imported when a task runs
    from airflow_cdc_provider.pipeline.steps.jobs import log_tail  # noqa: PLC0415

    if path is None or not path.exists():
        return []
    return log_tail(path)[-_LINES:]
