"""The folder of jobs' files, and the end of a job's log for whoever may see it.

A log is read only where a job can have written it: in the pipeline's own folder, under a name of
the pipeline's jobs, as a file of this user. The path itself comes from a database.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError

_NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def default_folder() -> Path:
    """Return the folder of this user's job files, by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not Path(base).is_absolute():
        try:
            base = str(Path.home() / ".local" / "state")
        except RuntimeError:
            raise unusable(Path(base), "this user has no home directory") from None
    return Path(base) / "airflow-provider-cdc" / "jobs"


def unusable(path: Path, why: str) -> RefusedError:
    """Return the error for a folder that cannot keep a job's files."""
    return RefusedError(
        f"the folder {path} cannot hold a job's files: {why}",
        where="job files",
        risk=NOTHING_STARTED,
        remedy="remove it, or name another folder: --log-folder, under Airflow [cdc] "
        "job_log_folder, or XDG_STATE_HOME in the environment",
    )


def end_of_log(log: Path, folder: Path, pipeline: str, *, most_bytes: int) -> bytes | None:
    """Return the last bytes of a job's log, from a line's start; None if it is not here.

    `folder` has a folder for each pipeline.
    """
    is_log = log.name.startswith(f"{pipeline}-") and log.suffix == ".log"
    if log.parent != folder / pipeline or not is_log:
        return None
    try:
        with os.fdopen(os.open(log, _NO_LINK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                return None
            file.seek(max(0, found.st_size - most_bytes))
            end = file.read(most_bytes)
    except OSError:
        return None
    return end if found.st_size <= most_bytes else end[end.find(b"\n") + 1 :]
