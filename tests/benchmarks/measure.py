"""Measure a subject from its `ready` to its `done`, in a process of its own.

A subject is a Python process that gets ready (imports, JVM, connections), says so, waits for
`go`, does the work, and says `done` with the number of rows. Between the two the wall clock, the
CPU of its whole process tree and that of the servers are taken from outside. Interpreter and
JVM start are not counted for anyone; the peak of the tree's resident memory is.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil

READY = "benchmark ready"
DONE = "benchmark done"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one subject."""

    rows: int
    wall_s: float
    cpu_s: float
    """User and system, the subject's process tree."""
    server_cpu_s: float
    """User and system, all servers of the benchmark."""
    rss_mb: float
    """Peak of the summed resident memory of the subject's process tree."""


@dataclass(frozen=True, slots=True)
class Result:
    """The medians of a subject's runs."""

    work: str
    subject: str
    rows_per_s: float
    cpu_s_per_m: float
    server_cpu_s_per_m: float
    rss_mb: float
    n: int


class SubjectFailedError(Exception):
    """A subject ended before it was done; the message has the end of what it wrote."""


def summarised(work: str, subject: str, samples: Sequence[Sample]) -> Result:
    """Return the medians of `samples`."""
    return Result(
        work=work,
        subject=subject,
        rows_per_s=statistics.median(s.rows / s.wall_s for s in samples),
        cpu_s_per_m=statistics.median(s.cpu_s / s.rows * 1e6 for s in samples),
        server_cpu_s_per_m=statistics.median(s.server_cpu_s / s.rows * 1e6 for s in samples),
        rss_mb=statistics.median(s.rss_mb for s in samples),
        n=len(samples),
    )


def measured(module: str, arguments: dict[str, object], server_pids: Iterable[int]) -> Sample:
    """Run `python -m module` with JSON arguments and measure its work."""
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    servers = [psutil.Process(pid) for pid in server_pids]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as subject:
        try:
            return _measured(subject, servers)
        finally:
            _end(subject)


def _measured(subject: subprocess.Popen[str], servers: list[psutil.Process]) -> Sample:
    tree = _Tree(subject.pid)
    _wait_for(subject, READY)
    with _PeakMemory(tree) as peak:
        cpu, server_cpu = tree.cpu_s(), sum(map(_own_cpu_s, servers))
        began = time.perf_counter()
        _say(subject, "go")
        rows = int(_wait_for(subject, DONE))
        wall_s = time.perf_counter() - began
        cpu, server_cpu = tree.cpu_s() - cpu, sum(map(_own_cpu_s, servers)) - server_cpu
    _say(subject, "bye")
    return Sample(rows, wall_s, cpu, server_cpu, peak.mb)


def _wait_for(subject: subprocess.Popen[str], mark: str) -> str:
    """Read up to the line that begins with `mark`; give the rest of it."""
    if subject.stdout is None:
        raise SubjectFailedError("the subject has no output to read")
    tail: list[str] = []
    for line in subject.stdout:
        if line.startswith(mark):
            return line.removeprefix(mark).strip() or "0"
        tail = [*tail[-30:], line]
    raise SubjectFailedError(f"{subject.args!r} ended before {mark!r}:\n{''.join(tail)}")


def _say(subject: subprocess.Popen[str], word: str) -> None:
    if subject.stdin is not None:
        subject.stdin.write(word + "\n")
        subject.stdin.flush()


def _end(subject: subprocess.Popen[str]) -> None:
    children = []
    try:
        children = psutil.Process(subject.pid).children(recursive=True)
        subject.wait(5)
    except psutil.NoSuchProcess:
        return
    except subprocess.TimeoutExpired:
        subject.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


class _Tree:
    """A process with all it started."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def _members(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        """Return what the living members used, and what those they waited for used."""
        total = 0.0
        for member in self._members():
            try:
                times = member.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def rss(self) -> int:
        """Return the summed resident memory, bytes."""
        total = 0
        for member in self._members():
            try:
                total += member.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total


class _PeakMemory:
    """Watches a tree's memory ten times a second."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self._over = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.is_set():
            self._peak = max(self._peak, self._tree.rss())
            self._over.wait(0.1)

    def __enter__(self) -> _PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def mb(self) -> float:
        return self._peak / 1e6


def _own_cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
