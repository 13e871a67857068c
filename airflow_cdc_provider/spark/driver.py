"""One Spark for all jobs of a run: they come one after another on standard input.

A line is a job's specification as JSON. Its result goes out as a line of JSON through the pipe
whose number the command line gives, and to standard output, where logs have it. Nothing of either
is secret. Whoever started this process holds the other end of both, so no more jobs come when
standard input ends, because the run is over or was killed: a job under way is done first, as one
in a process of its own would be. SIGTERM is the wish to stop of the job under way, and the end.

The libraries that jobs need are imported while Spark's JVM starts, on another core.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.spark.failures import SPARK_FAILURES
from airflow_cdc_provider.spark.session import close_session, open_session

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.job_result import JobResult

_LOOK_FOR_A_STOP_S = 0.5
_JOBS = "airflow_cdc_provider.spark.main"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs that come on standard input; 0 unless the last one failed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--answers", type=int, required=True, help="the pipe of the results")
    parser.add_argument("--master", help="Spark's master")
    options = parser.parse_args(arguments)
    code = 0
    _open_while_importing(options.master)
    # only now, as the module says
    from airflow_cdc_provider.spark.main import (  # noqa: PLC0415
        run_job,
        set_up_logging,
        stop_on_sigterm,
    )

    set_up_logging()
    stop = stop_on_sigterm()
    for line in _lines(sys.stdin.fileno(), stop):
        result = run_job(JobSpec.from_json(line), master=options.master, stop=stop)
        code = int(result.exit_code)
        _answer(options.answers, result)
    close_session()
    return code


def _open_while_importing(master: str | None) -> None:
    """Open the session; an error is left to the first job, which meets and tells it."""
    importing = threading.Thread(target=import_module, args=(_JOBS,))
    importing.start()
    with suppress(CdcError, *SPARK_FAILURES):
        open_session("cdc", master=master)
    importing.join()


def _lines(source: int, stop: threading.Event) -> Iterator[str]:
    """Yield the lines as they come, until there are no more or a stop was asked for."""
    rest = b""
    while not stop.is_set():
        if not select.select([source], [], [], _LOOK_FOR_A_STOP_S)[0]:
            continue
        part = os.read(source, 1 << 16)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from (line.decode() for line in lines)


def _answer(pipe: int, result: JobResult) -> None:
    line = result.to_json() + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(pipe, line.encode())


if __name__ == "__main__":
    sys.exit(main())
