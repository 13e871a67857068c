"""One Spark for all jobs of a run: they come one after another on standard input.

A line is a job's specification as JSON. Its result goes out as a line of JSON through the pipe
whose number the command line gives, and to standard output, where logs have it. Nothing of either
is secret. Whoever started this process holds the other end of both, so no more jobs come when
standard input ends, because the run is over or was killed: a job under way is done first, as one
in a process of its own would be. A continuous stream has no end of its own: it is asked to stop
when nobody is left to read its result. SIGTERM is the wish to stop of the job under way, and the
end.

The libraries that jobs need are imported while Spark's JVM starts, on another core. However long
that takes, the lease of the first job is kept. A first job that begins without Spark starts none.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec, StreamMode
from airflow_cdc_provider.core.many_records import collect_seldom
from airflow_cdc_provider.spark.failures import SPARK_FAILURES
from airflow_cdc_provider.spark.session import close_session, open_session

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.job_result import JobResult

_LOOK_FOR_A_STOP_S = 0.5
_RENEW_LEASE_S = 15.0
_JOBS = "airflow_cdc_provider.spark.main"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs whose specifications come on standard input; 0 unless the last failed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--answers", type=int, required=True, help="the pipe of the results")
    parser.add_argument("--master", help="Spark's master")
    options = parser.parse_args(arguments)
    code, stop = 0, threading.Event()
    lines = _lines(sys.stdin.fileno(), stop)
    first = next(lines, None)
    if first is None:
        return code
    spec = JobSpec.from_json(first)
    if not spec.may_need_no_spark:
        _open_while_importing(spec, options.master)
    # only now, as the module says
    from airflow_cdc_provider.spark.main import run_job, set_up_logging  # noqa: PLC0415

    set_up_logging()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for line in chain((first,), lines):
        spec = JobSpec.from_json(line)
        with _ended_with_its_run(options.answers, spec, stop):
            result = run_job(spec, master=options.master, stop=stop)
        code = int(result.exit_code)
        _answer(options.answers, result)
    close_session()
    return code


@contextmanager
def _ended_with_its_run(answers: int, spec: JobSpec, stop: threading.Event) -> Iterator[None]:
    """Ask a continuous stream to stop when the process that started it is gone."""
    if spec.kind is not JobKind.STREAM or spec.stream_mode is not StreamMode.CONTINUOUS:
        yield
        return
    over, pipe = threading.Event(), select.poll()
    pipe.register(answers, 0)  # all that may come is that nobody reads it any more

    def watch() -> None:
        while not over.wait(_LOOK_FOR_A_STOP_S):
            if pipe.poll(0):
                stop.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _open_while_importing(spec: JobSpec, master: str | None) -> None:
    """Open the Spark session while modules are imported; an error is left to the first job."""
    opened = threading.Event()
    importing = threading.Thread(target=_import_and_keep_lease, args=(spec, opened))
    importing.start()
    try:
        with suppress(CdcError, *SPARK_FAILURES):
            open_session("cdc", master=master)
    finally:
        opened.set()
        importing.join()


def _import_and_keep_lease(spec: JobSpec, opened: threading.Event) -> None:
    """Import the job modules, then renew the first job's lease until Spark is open."""
    jobs = import_module(_JOBS)
    with suppress(CdcError):  # the job itself meets it again
        servers = jobs.JobServers.from_environment(spec)
        while not opened.wait(_RENEW_LEASE_S):
            with closing(jobs.open_store(servers.state_dsn)) as store:
                store.renew_lease(spec.pipeline, spec.generation)


def _lines(source: int, stop: threading.Event) -> Iterator[str]:
    """Yield lines of standard input as they come, until its end or a stop."""
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
    """Write a job's result to the log and to the pipe of answers."""
    line = result.to_json() + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(pipe, line.encode())


if __name__ == "__main__":
    collect_seldom()
    sys.exit(main())
