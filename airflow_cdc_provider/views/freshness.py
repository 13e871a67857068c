"""How old a copy is against what its pipeline file allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError, RetryableError

if TYPE_CHECKING:
    from airflow_cdc_provider.views.status import PipelineStatus

_SIZES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def late_error(status: PipelineStatus) -> CdcError | None:
    """Return the error that the copy is older than the file allows, None if it is not."""
    age_s = status.copy_age_s
    if not status.is_late or age_s is None or status.freshness_s is None:
        return None
    return RetryableError(
        f"the copy is {span(age_s)} old, and may be {span(status.freshness_s)}",
        where=f"freshness of {status.state.name}",
        risk="the sink answers with rows of then; nothing is lost",
        remedy="see that a stream or the next run is at work; if it cannot keep up, give it more "
        "writers, or raise freshness.target in the pipeline file",
    )


def late_lines(status: PipelineStatus) -> list[str]:
    """Return the line that the copy is too old, none if it is not."""
    error = late_error(status)
    return [] if error is None else [error.what]


def span(seconds: float) -> str:
    """Return a span of time in its two largest units."""
    left = int(seconds)
    parts: list[str] = []
    for size, name in _SIZES:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts) or "0 s"
