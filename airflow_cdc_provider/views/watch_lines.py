"""What a task that watches a stream logs each time it has a worker.

Airflow begins the log of a trigger anew with each deferral, and keeps the worker's. So what
happened while the task waited is said there, or it would be in no log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from airflow_cdc_provider.core.records import OUTAGE_OVER, PipelineEvent
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.status import PipelineStatus

_MOST = 20
_LEVELS = {"warning": logging.WARNING, "error": logging.ERROR}


def watch_lines(
    status: PipelineStatus, events: Sequence[PipelineEvent], since_us: int
) -> Iterator[tuple[int, str]]:
    """Yield log levels and lines: what went wrong since a time and what of it is over, and now.

    `events` are the pipeline's latest, newest first.
    """
    wanted = [each for each in events if each.at_us > since_us and _is_news(each)]
    if len(wanted) > _MOST:
        yield logging.INFO, f"{len(wanted) - _MOST} more events are on the CDC page"
    for event in reversed(wanted[:_MOST]):
        at = datetime.fromtimestamp(event.at_us / 1e6, UTC)
        yield _LEVELS.get(event.level, logging.INFO), f"{at:%H:%M:%S} UTC: {event.text}"
    yield logging.WARNING if status.outages else logging.INFO, f"watched {progress_line(status)}"


def _is_news(event: PipelineEvent) -> bool:
    """Tell whether an event is of something that went wrong, or is over."""
    return event.level in _LEVELS or event.text.startswith(OUTAGE_OVER)
