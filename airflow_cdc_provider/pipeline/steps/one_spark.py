"""One Spark for the jobs of one run: a process that takes job after job, with one session.

To start Spark costs more than most jobs of a small pipeline, so a run that reads, hands off and
streams does it once. It is started by the run's first job, and not at all if there is none. What
a job is told, how its end is known, how it is stopped and what its failure says is as for a job in
a process of its own; see `jobs`. The process ends with the run, or when the run was killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.pipeline.job_logs import default_folder
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.job_files import make_run_log
from airflow_cdc_provider.pipeline.steps.jobs import (
    STOP_PATIENCE_S,
    JobEnd,
    SparkOptions,
    end_of,
    patient,
    result_in,
    spark_environment,
    tell_start,
)
from airflow_cdc_provider.pipeline.steps.masters import require_master

_POLL_S = 0.2


class StartedJob(Protocol):
    """A job that was started and not waited for."""

    def wait(self, *, on_tick: Callable[[], None] = ..., every_s: float = ...) -> JobEnd:
        """Wait for the job's end; if this is interrupted, the job is stopped."""


class StartJob(Protocol):
    """Starts a job: `submit` in its own process, `OneSpark.start` in that of the run."""

    def __call__(self, run: Run, spec: JobSpec, options: SparkOptions, /) -> StartedJob: ...


class OneSpark:
    """The one Spark process for all jobs of a run; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self.log = Path()

    def __enter__(self) -> OneSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self.no_more_jobs()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_PATIENCE_S)
            if self._process.poll() is None:
                self._kill(self._process)
            os.close(self._answers)
            self._process = None

    def start(self, run: Run, spec: JobSpec, options: SparkOptions) -> StartedJob:
        """Start a job in the run's Spark process, which is launched with the first job."""
        if self._process is None:
            require_master(options.master)
            self._launch(run, spec, options)
        tell_start(run, spec, options, self.log)
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):  # it is gone, and whoever waits is told
                process.stdin.write(spec.to_json().encode() + b"\n")
                process.stdin.flush()
        return _Job(self, spec)

    def no_more_jobs(self) -> None:
        """Let the Spark process end by itself after its last job."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def stop(self) -> None:
        """Stop the job that runs; kill the process group if it does not end."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                self._process.terminate()
                self._process.wait(STOP_PATIENCE_S)
            self._kill(self._process)

    def heard(self, wait_s: float) -> bytes | None:
        """Return what the process has answered; empty at its end, None if nothing came in time."""
        if not select.select([self._answers], [], [], wait_s)[0]:
            return None
        return os.read(self._answers, 1 << 16)

    def status(self) -> int | None:
        """Wait for the process's end, and return its exit code."""
        return None if self._process is None else self._process.wait()

    def _launch(self, run: Run, spec: JobSpec, options: SparkOptions) -> None:
        """Launch the Spark process, with its log and a pipe for its answers."""
        self.log, output = make_run_log(options.log_folder or default_folder(), spec)
        self._answers, answers = os.pipe()
        command = [sys.executable, "-m", "airflow_cdc_provider.spark.driver"]
        command += ["--answers", str(answers), "--master", options.master]
        try:
            with output:
                self._process = subprocess.Popen(
                    command,
                    env={**os.environ, **run.servers.environment(), **spark_environment(options)},
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(answers,),
                    start_new_session=True,
                )
        finally:
            os.close(answers)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of the process group: Spark's JVM and its Python workers."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Job:
    """One job that runs in the run's Spark process."""

    def __init__(self, spark: OneSpark, spec: JobSpec) -> None:
        self._spark = spark
        self._spec = spec

    def wait(self, *, on_tick: Callable[[], None] = lambda: None, every_s: float = 1.0) -> JobEnd:
        """Wait for the job's end, calling `on_tick` now and then; raise a failed job's error."""
        try:
            result = self._answer(patient(on_tick), every_s)
        except BaseException:
            self._spark.stop()
            raise
        status = None if result is not None else self._spark.status()
        return end_of(self._spec, result, status, self._spark.log)

    def _answer(self, on_tick: Callable[[], None], every_s: float) -> dict[str, Any] | None:
        """Wait for the process's answer; None if the process ends without one."""
        ticked, answered = time.monotonic(), b""
        while not answered.endswith(b"\n"):
            part = self._spark.heard(_POLL_S)
            if part == b"":
                return None
            answered += part or b""
            if time.monotonic() - ticked >= every_s:
                ticked = time.monotonic()
                on_tick()
        return result_in(answered.decode().splitlines())
