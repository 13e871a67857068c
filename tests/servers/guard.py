"""A command that ends with its owner, and all that it ever started with it.

Airflow's services and tasks, and the jobs of tasks, leave the groups and sessions of their parents,
and write their titles over their environment: neither tells whose they are. Their descent does. The
guard is a process between the owner and the command. The kernel gives it whatever loses its parent
below it, so all that lives there is found by going down from the guard. It holds the other end of a
pipe: when the owner closes it, or dies, the guard ends the command, kills the rest, and goes.

Over the pipe go lines of JSON: the words of one more command to start, or none at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 20.0
_POLL_S = 0.1


class Guarded:
    """A command under a guard; what it needs is a folder of its own, which goes with it."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: IO[bytes]
    ) -> None:
        """Start it; `folder` is where it works, and is removed if the owner dies."""
        self._guard = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).resolve()), str(folder), *command],
            env=dict(env),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """Tell whether the command has not ended."""
        return self._guard.poll() is None

    def processes(self) -> list[psutil.Process]:
        """Return all that the command started and that lives, whoever its parent is by now."""
        return living_below(psutil.Process(self._guard.pid))

    def start(self, command: Sequence[str]) -> None:
        """Start one more command beside it, in the same environment."""
        self._say(command)

    def end(self) -> None:
        """End the command and all that it started; the folder stays."""
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError), self._guard.stdin:
            self._say([])
        self._guard.wait(2 * _PATIENCE_S)

    def _say(self, words: Sequence[str]) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(words).encode() + b"\n")
        self._guard.stdin.flush()


def living_below(root: psutil.Process) -> list[psutil.Process]:
    """Return the processes below one, without those that have died and are not buried."""
    found = []
    for each in root.children(recursive=True):
        with suppress(psutil.Error):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def main(folder: str, command: Sequence[str]) -> int:
    """Run the command until it ends, or its owner does; returns its exit code."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # only its owner ends it
    child = _start(command)
    code, is_owned = _watch(child)
    if code is None:
        code = _end_politely(child)
    while left := living_below(psutil.Process()):
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        time.sleep(_POLL_S)
        _bury()
    if not is_owned:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _start(command: Sequence[str]) -> int:
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    started.returncode = 0  # it is buried with all the others
    return started.pid


def _watch(child: int) -> tuple[int | None, bool]:
    """Wait for the command's end, or the owner's; tells its exit code, and if the owner lives."""
    said = b""
    while True:
        codes = _bury()
        if child in codes:
            return codes[child], True
        if not select.select([0], [], [], _POLL_S)[0]:
            continue
        heard = os.read(0, 65536)
        if not heard:
            return None, False
        *lines, said = (said + heard).split(b"\n")
        for words in map(json.loads, lines):
            if not words:
                return None, True
            _start(words)


def _end_politely(child: int) -> int:
    """Ask the command's group to end, and wait for a while."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        codes = _bury()
        if child in codes:
            return codes[child]
        time.sleep(_POLL_S)
    return -signal.SIGKILL


def _bury() -> dict[int, int]:
    """Take note of the children that have ended; returns their exit codes by process."""
    codes = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            codes[found[0]] = os.waitstatus_to_exitcode(found[1])
    return codes


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
