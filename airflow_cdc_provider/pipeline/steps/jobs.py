"""Spark jobs as processes of their own.

A job gets its spec in a file and the servers' DSNs in its environment: neither is a secret on a
command line. Its output goes to a log file, and its last line is its result as JSON; `job_files`
says where both are. A process group of its own lets a stop reach Spark's JVM and Python workers
too.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from airflow_cdc_provider.core.errors import (
    CdcError,
    RetryableError,
    SinkUnreachableError,
    SourceUnreachableError,
    StateUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.job_log import JobLog
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.core.table_picks import TablePicks
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.pipeline.connections import replica_variables
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.table_choice import salts_in
from airflow_cdc_provider.pipeline.job_logs import default_folder
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.job_files import (
    JobFiles,
    make_job_files,
)
from airflow_cdc_provider.pipeline.steps.masters import require_master

log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*]"
STOP_PATIENCE_S = 20.0
SMALL_LOG_BYTES = 64 * 1024 * 1024
"""No more than this is read without Spark."""
_POLL_S = 0.2
_TAIL_BYTES = 64 * 1024


class Launcher(Protocol):
    """Starts a job in another way than as a child process, such as by spark-submit."""

    def __call__(self, run: Run, spec: JobSpec, options: SparkOptions, /) -> JobProcess: ...


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs and how: master, settings, log folder."""

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    log_folder: Path | None = None
    """Where the jobs' files go, in a folder for each pipeline; the user's own state if None."""
    always: bool = False
    """Small work too is done by a Spark job."""
    launcher: Launcher | None = None

    @classmethod
    def of(
        cls,
        model: PipelineFile,
        *,
        master: str | None = None,
        log_folder: Path | None = None,
        launcher: Launcher | None = None,
    ) -> SparkOptions:
        """Take the pipeline file's Spark settings; a `master` given here overrides the file's."""
        conf = {name: _conf_text(value) for name, value in model.spark.conf.items()}
        in_file = conf.pop("spark.master", DEFAULT_MASTER)
        return cls(master or in_file, conf, log_folder, model.spark.always, launcher)


def _conf_text(value: str | float) -> str:
    """Return a Spark setting as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended, with its result's counts and its log."""

    outcome: str
    """finished or stopped."""
    result: Mapping[str, Any]
    log: Path | None
    """None: it was done without a process of its own, or there was nothing to do."""
    is_needed: bool = True
    """False: there was nothing to do."""

    @classmethod
    def without_job(cls, result: JobResult) -> JobEnd:
        """Return the end of a job that had nothing to do, so was not started."""
        return cls(result.outcome.value, json.loads(result.to_json()), None, is_needed=False)

    @classmethod
    def stopped(cls, name: PipelineName, kind: JobKind) -> JobEnd:
        """Return the end of a job that was stopped before it began."""
        result = JobResult(str(name), 0, kind.value, Outcome.STOPPED)
        return cls(result.outcome.value, json.loads(result.to_json()), None)

    @classmethod
    def done_here(cls, result: JobResult) -> JobEnd:
        """Return the end of a job that this process did itself."""
        return cls(result.outcome.value, json.loads(result.to_json()), None)


def snapshot_spec(model: PipelineFile, generation: int) -> JobSpec:
    """Return the specification of the snapshot job."""
    return _spec(model, generation, JobKind.SNAPSHOT)


def stream_spec(model: PipelineFile, generation: int, *, mode: str | None = None) -> JobSpec:
    """Return the specification of the stream job; `mode` overrides the file's."""
    return _spec(model, generation, JobKind.STREAM, mode=mode)


def _spec(
    model: PipelineFile, generation: int, kind: JobKind, *, mode: str | None = None
) -> JobSpec:
    """Return a job's specification, from the pipeline file."""
    stream = model.stream if mode is None else model.stream.model_copy(update={"mode": mode})
    ports = model.spark.assigner_ports
    return JobSpec(
        pipeline=model.name,
        generation=generation,
        kind=kind,
        sink_type=model.sink.type,
        assigner_port_first=ports.start,
        assigner_port_last=ports.stop - 1,
        max_connections=model.snapshot.max_connections,
        split_rows=model.split_size.rows,
        split_bytes=model.split_size.bytes,
        backfill=model.snapshot.backfill,
        max_split_bytes=model.snapshot.max_split_mb * 1024 * 1024,
        stream_mode=stream.stream_mode,
        stop=str(model.stream.stops_at) if model.stream.stops_at else "",
        apply=stream.apply_mode,
        writers=stream.writers,
        max_batch_changes=stream.max_batch.changes,
        max_batch_s=stream.max_batch.seconds,
        driver_log_bytes=0 if model.spark.always else SMALL_LOG_BYTES,
        schema_changes=model.schema_policy,
        isolates_tables=model.isolates_tables,
        picks=TablePicks(model.source.tables, model.source.exclude),
        source_options=model.source_options,
        edge=model.edge,
        throttle=model.snapshot.throttle.limits,
        replica_envs=replica_variables(len(model.snapshot.throttle.replicas)),
        salts=salts_in(model.tables),
    )


UNREACHABLE = (StateUnreachableError, SourceUnreachableError, SinkUnreachableError)


def patient(on_tick: Callable[[], None]) -> Callable[[], None]:
    """Wrap a progress callback: an unreachable server is logged, and does not end the job."""
    told = ""

    def tick() -> None:
        nonlocal told
        try:
            on_tick()
        except UNREACHABLE as error:
            if error.what != told:
                told = error.what
                log.warning("progress is not known, the job goes on: cause=%s", error)
        else:
            if told:
                told = ""
                log.warning("progress is known again")

    return tick


class JobProcess:
    """A job in a process of its own, which lives on if this object is dropped."""

    def __init__(self, spec: JobSpec, process: subprocess.Popen[bytes], log: Path) -> None:
        self.spec = spec
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, *, on_tick: Callable[[], None] = lambda: None, every_s: float = 1.0) -> JobEnd:
        """Wait for the job's end, calling `on_tick` now and then; raise a failed job's error.

        If this is interrupted the job is stopped.
        """
        ticked, on_tick = time.monotonic(), patient(on_tick)
        try:
            while self.is_running:
                time.sleep(_POLL_S)
                if time.monotonic() - ticked >= every_s:
                    ticked = time.monotonic()
                    on_tick()
        except BaseException:
            self.stop()
            raise
        return self.end()

    def end(self) -> JobEnd:
        """Return how the job ended, or raise its error."""
        return end_of(self.spec, job_result(self.log), self._process.returncode, self.log)

    def stop(self, *, patience_s: float = STOP_PATIENCE_S) -> None:
        """Ask the job to end; kill its process group, Spark's JVM included, if it does not."""
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            self._process.terminate()
            self._process.wait(patience_s)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def submit(run: Run, spec: JobSpec, options: SparkOptions) -> JobProcess:
    """Start a Spark job in a process group of its own, if its master answers."""
    if options.launcher is not None:
        return options.launcher(run, spec, options)
    require_master(options.master)
    files, output = make_job_files(options.log_folder or default_folder(), spec)
    environment = {**os.environ, **run.servers.environment(), **spark_environment(options)}
    with output:
        process = subprocess.Popen(
            _command(files, options),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    tell_start(run, spec, options, files.log)
    return JobProcess(spec, process, files.log)


def tell_start(run: Run, spec: JobSpec, options: SparkOptions, log: Path) -> None:
    """Record in the events that a job was started, and where its log is."""
    run.store.tell(
        run.name,
        f"{spec.kind.value} job started under generation {spec.generation} on {options.master}, "
        f"{JobLog(str(log), socket.gethostname())}",
    )


def _command(files: JobFiles, options: SparkOptions) -> list[str]:
    """Return the command line of a job's process."""
    words = [sys.executable, "-m", "airflow_cdc_provider.spark.main", "--job", f"@{files.spec}"]
    return [*words, "--digest", files.digest, "--master", options.master]


def spark_environment(options: SparkOptions) -> dict[str, str]:
    """Return the environment variables with Spark's settings for a job's process."""
    conf = [f"--conf={name}={value}" for name, value in sorted(options.conf.items())]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*conf, "pyspark-shell"]),
        "PYTHONUNBUFFERED": "1",
    }


def job_result(log: Path) -> dict[str, Any] | None:
    """Read the result that a job printed as its last line, None if there is none."""
    return result_in(log_tail(log))


def result_in(lines: Sequence[str]) -> dict[str, Any] | None:
    """Return the last job result among log lines, None if there is none."""
    for line in reversed(lines):
        if line.startswith("{") and line.endswith("}"):
            try:
                form = json.loads(line)
            except ValueError:
                continue
            if isinstance(form, dict) and "outcome" in form:
                return form
    return None


def log_tail(log: Path) -> list[str]:
    """Return the last lines of a log, by its last bytes."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()


def end_of(
    spec: JobSpec, result: Mapping[str, Any] | None, status: int | None, log: Path
) -> JobEnd:
    """Return how a job ended, or raise its error; `status` is its process's exit code."""
    if result is None:
        raise _no_result(spec, status, log)
    if result.get("outcome") == "failed":
        raise job_error(result, log)
    return JobEnd(str(result.get("outcome")), result, log)


def job_error(result: Mapping[str, Any], log: Path) -> CdcError:
    """Return the error in a job's result, in its own class."""
    return CdcError.from_json(result["facts"]).located(f"log {log}")


def _no_result(spec: JobSpec, status: int | None, log: Path) -> RetryableError:
    """Return the error for a job that ended without a result, with its last log lines."""
    tail = "\n".join(log_tail(log)[-15:])
    return RetryableError(
        f"the {spec.kind.value} job ended with status {status} and without a result:\n{tail}",
        where=f"log {log}",
        risk="none: what was not committed is read again",
        remedy="run again; if it repeats, the log says why",
    )
