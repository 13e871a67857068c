"""Errors that say what to do are shown without a stack.

Airflow logs the stack of whatever ends a task. Of an error with a code that is some twenty frames
around the one line that helps, which the UI then cuts off at its right edge. So the error's parts
are logged, a line each, and the stack of these errors, and of no other, is left out.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException

log = logging.getLogger(__name__)


class CdcTaskError(AirflowException):
    """Fails a task with an error that a retry may mend; the log has the details."""


class CdcTaskFailure(AirflowFailException):
    """Fails a task with an error that needs a person; the log has the details."""


def failure(text: str, *, told: Sequence[str] = ()) -> CdcTaskFailure:
    """Log why a task fails, and return the error to raise, whose stack is not logged.

    With `told` these lines are logged instead.
    """
    leave_out_stacks()
    for line in told or (text,):
        log.error("%s", line)
    return CdcTaskFailure(text)


def leave_out_stacks() -> None:
    """Have this process log the task errors above without their stacks."""
    # the list itself: loggers that are bound already hold it
    processors = structlog.get_config()["processors"]
    if _without_stack not in processors:
        processors.insert(0, _without_stack)


def _without_stack(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Drop the stack from a log event of a task error; a structlog processor."""
    if event.get("exc_info") and isinstance(sys.exc_info()[1], (CdcTaskError, CdcTaskFailure)):
        del event["exc_info"]
    return event
