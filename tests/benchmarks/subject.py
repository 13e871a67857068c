"""The side of the measured process: `ready`, wait for `go`, work, `done`, wait for `bye`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.benchmarks.measure import DONE, READY

Arguments = dict[str, Any]


def arguments() -> Arguments:
    """Return what the harness asks for."""
    given: Arguments = json.loads(sys.argv[1])
    return given


def work(run: Callable[[], int]) -> None:
    """Do the measured work; `run` returns its number of rows."""
    print(READY, flush=True)
    sys.stdin.readline()
    rows = run()
    print(DONE, rows, flush=True)
    sys.stdin.readline()


def dsn(port: int) -> str:
    """Return the address of a benchmark server, which lets root in without a password."""
    return f"mysql://{quote('root')}@127.0.0.1:{port}/?ssl_disabled=true"
