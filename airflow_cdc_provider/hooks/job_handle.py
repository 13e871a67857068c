"""What a task remembers of the Spark job it started, so that a later try finds it.

Airflow kills a task's process and not what it started: a job lives on after its task was killed,
on the same machine, in a process group of its own. It cannot do harm, because the next try takes
a new generation, but it holds cores and connections. So a try first ends what an earlier one
left. A process is known by its number and the moment it started, because numbers come again.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks the name

from airflow_cdc_provider.core.jobspec import JobSpec

_KEY = "job"
_POLL_S = 0.1
_STARTED_FIELD = 19
"""Of /proc/<pid>/stat, counted behind the program's name: when it started, in clock ticks."""


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The id, log and arguments' hash of a started job, as the task's next try finds it.

    Stored as JSON, so fields are only added, with defaults.
    """

    job_id: str
    """`<host>:<process>:<moment it started>`."""
    generation: int
    args_hash: str
    """Of the job's arguments, without its generation."""
    log: str = ""

    @classmethod
    def of(cls, spec: JobSpec, pid: int, log: Path) -> JobHandle:
        """Make the handle of a job that was just started on this machine."""
        return cls(
            job_id=f"{socket.gethostname()}:{pid}:{_started(pid)}",
            generation=spec.generation,
            args_hash=args_hash(spec),
            log=str(log),
        )

    @classmethod
    def from_payload(cls, payload: object) -> JobHandle | None:
        """Read a handle from its stored form; None if there is none."""
        if not isinstance(payload, Mapping) or "job_id" not in payload:
            return None
        return cls(
            job_id=str(payload["job_id"]),
            generation=int(payload.get("generation", 0)),
            args_hash=str(payload.get("args_hash", "")),
            log=str(payload.get("log", "")),
        )

    def to_payload(self) -> dict[str, Any]:
        """Return the handle as JSON values."""
        return asdict(self)

    @property
    def pid(self) -> int | None:
        """Return the job's process id, None if it does not run on this machine."""
        host, _, process = self.job_id.rpartition(":")[0].rpartition(":")
        started = self.job_id.rpartition(":")[2]
        here = host == socket.gethostname() and process.isdigit()
        if not here or started in {"", "0"} or _started(int(process)) != started:
            return None
        return int(process)

    def does_the_same_as(self, other: JobHandle) -> bool:
        """Tell whether both jobs have the same arguments; True if these are not stored."""
        return not self.args_hash or self.args_hash == other.args_hash

    def stop(self, *, patience_s: float) -> bool:
        """Stop the job's process group if it is on this machine; False if there is none.

        It is asked to end first, so that it closes its connections, and then killed.
        """
        pid = self.pid
        if pid is None:
            return False
        stop_group(pid, patience_s=patience_s)
        return True


class TaskStateStore(Protocol):
    """The part of Airflow's `task_state_store` that is used; it lasts over a task's tries."""

    def get(self, key: str, default: Any = None) -> Any: ...

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None: ...


def remember(store: TaskStateStore, handle: JobHandle) -> None:
    """Store the handle for the task's next tries."""
    store.set(_KEY, handle.to_payload(), retention=NEVER_EXPIRE)


def end_earlier_job(store: TaskStateStore, *, patience_s: float) -> JobHandle | None:
    """Stop a job that an earlier try left on this machine; return its handle, or None."""
    left = JobHandle.from_payload(store.get(_KEY))
    return left if left is not None and left.stop(patience_s=patience_s) else None


def stop_group(pid: int, *, patience_s: float) -> None:
    """Ask the leader of a process group to end, and kill the group after a while."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while _started(pid) != "0" and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def args_hash(spec: JobSpec) -> str:
    """Return a short hash of a job's specification, without the generation."""
    text = replace(spec, generation=0).to_json()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    """Return when a process started, as the kernel's text; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "0"
    fields = stat.rpartition(")")[2].split()
    return "0" if fields[0] == "Z" else fields[_STARTED_FIELD]
