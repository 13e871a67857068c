"""The log of a pipeline's newest job, where this machine has its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import conf

from airflow_cdc_provider.pipeline.job_logs import default_folder, end_of_log

_MOST_BYTES = 1 << 20


def with_place(told: dict[str, Any] | None, pipeline: str, *, may_read: bool) -> Any:
    """Return where the newest job's log is as JSON, with whether it can be read from here."""
    if told is None:
        return None
    is_here = may_read and log_text(told, pipeline, most_bytes=0) is not None
    return {**told, "is_here": is_here}


def log_text(
    told: dict[str, Any] | None, pipeline: str, *, most_bytes: int = _MOST_BYTES
) -> bytes | None:
    """Return the end of the newest job's log, None if it is not known or not on this machine."""
    if told is None:
        return None
    folder = conf.get("cdc", "job_log_folder", fallback="")
    base = Path(folder) if folder else default_folder()
    return end_of_log(Path(told["path"]), base, pipeline, most_bytes=most_bytes)
