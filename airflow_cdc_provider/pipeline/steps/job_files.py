"""The files of one job: its specification and its log, in a folder that is nobody else's.

A name is used once. It carries the pipeline, the kind of job, the generation and a random word,
and each file is created exclusively: two runs that share a folder, also two pipelines of one name,
never write to each other's files. The job is told the specification's digest on its command line
and refuses any other one.

The folder belongs to this user, nobody else may write to it, and it is no symbolic link: whoever
else could put files there could have a job read his specification, or have it write through his
link. It has to be right already or can be made; it is never mended.

A run whose jobs share one process has one log for them and no specification in a file: it tells
its jobs over a pipe.

The log is locked, shared, as long as a process has it open. Files that nobody has open and that
nobody has written to for 30 days are removed when the pipeline's next job starts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.pipeline.job_logs import unusable

MadeT = TypeVar("MadeT")
KEEP_DAYS = 30
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The paths of one job's specification and log, and the specification's checksum."""

    spec: Path
    digest: str
    """Of the specification; the job refuses a file with another one."""
    log: Path


def make_job_files(folder: Path, spec: JobSpec) -> tuple[JobFiles, BinaryIO]:
    """Create a job's files in the pipeline's folder below `folder`; the log is open to write."""
    return _in_private(folder, spec, _make_files)


def make_run_log(folder: Path, spec: JobSpec) -> tuple[Path, BinaryIO]:
    """Create the log of a run whose first job is `spec`; the log is open to write."""

    def make(private: Path, spec: JobSpec) -> tuple[Path, BinaryIO]:
        log = private / f"{_stem(spec, 'run')}.log"
        return log, _created_log(log)

    return _in_private(folder, spec, make)


def _in_private(folder: Path, spec: JobSpec, make: Callable[[Path, JobSpec], MadeT]) -> MadeT:
    """Create files in the pipeline's private folder, after deleting old ones."""
    private = folder / str(spec.pipeline)
    try:
        _make_private(private)
        _remove_old(private)
        return make(private, spec)
    except OSError as error:
        raise unusable(private, error.strerror or str(error)) from error


def _make_files(folder: Path, spec: JobSpec) -> tuple[JobFiles, BinaryIO]:
    """Create the files of one job."""
    stem = _stem(spec, spec.kind.value)
    text = spec.to_json().encode()
    files = JobFiles(
        folder / f"{stem}.json", hashlib.sha256(text).hexdigest(), folder / f"{stem}.log"
    )
    with created_private(files.spec) as written:
        written.write(text)
    return files, _created_log(files.log)


def _stem(spec: JobSpec, what: str) -> str:
    """Return the name of a job's files, without suffix."""
    return f"{spec.pipeline}-{what}-{spec.generation}-{secrets.token_hex(4)}"


def _created_log(path: Path) -> BinaryIO:
    """Create a log and lock it while the job has it open."""
    log = created_private(path)
    with suppress(OSError):  # a file system without locks: what cannot be locked is not removed
        fcntl.flock(log, fcntl.LOCK_SH)  # goes when the last process that has the log open ends
    return log


def created_private(path: Path) -> BinaryIO:
    """Create a file that only this user may read, and open it for writing."""
    return os.fdopen(os.open(path, _NEW, 0o600), "wb")


def _make_private(private: Path) -> None:
    """Create a folder that only this user can write to; raise if that is not so."""
    private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        private.mkdir(mode=0o700)
    _require_private(private, private.lstat())
    for parent in private.resolve().parents:
        _require_safe(parent, parent.stat())


def _require_private(path: Path, found: os.stat_result) -> None:
    """Refuse a folder that another user owns or can write to; others may read it."""
    if not stat.S_ISDIR(found.st_mode):
        raise unusable(path, "it is not a directory, or a symbolic link")
    if found.st_uid != os.getuid():
        raise unusable(path, f"it belongs to user {found.st_uid}, not to {os.getuid()}")
    if found.st_mode & _OTHERS_WRITE:
        raise unusable(path, f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})")


def _require_safe(path: Path, found: os.stat_result) -> None:
    """Refuse a parent folder in which other users could rename this user's folder."""
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise unusable(path, f"anyone may rename what is in it ({found.st_mode & 0o7777:04o})")


def _remove_old(folder: Path) -> None:
    """Delete the files of jobs that ended long ago."""
    for servers in folder.glob("*.servers"):  # with passwords; of a job whose starter was killed
        with suppress(OSError):
            if _is_left(servers.with_suffix(".log")):
                servers.unlink()
    before = time.time() - KEEP_DAYS * 24 * 3600  # noqa: TID251 - files carry this clock's time
    for log in folder.glob("*.log"):
        with suppress(OSError):  # another run may be removing it too
            if log.lstat().st_mtime < before and _is_left(log):
                log.unlink()
                log.with_suffix(".json").unlink()


def _is_left(log: Path) -> bool:
    """Tell whether no process has the log open, by its lock."""
    with log.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
