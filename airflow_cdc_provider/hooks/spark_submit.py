"""Jobs on a cluster, submitted by Airflow's Spark provider as a connection of type `spark` says.

A process of its own submits the job and lasts as long as it: so a continuous stream outlives its
task, and what ends, kills and watches jobs knows one kind of process only. In cluster mode the
driver's output is elsewhere; how such a job ended is read from the state store, where it puts its
failure.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from airflow.sdk import Connection

import airflow_cdc_provider
from airflow_cdc_provider.core.jobspec import ENCODED, JobSpec
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.hooks.spark_order import (
    Deployment,
    SubmitOrder,
    has_provider,
    require_possible,
)
from airflow_cdc_provider.pipeline.connection_fields import ConnectionFields
from airflow_cdc_provider.pipeline.job_logs import default_folder
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.job_files import (
    JobFiles,
    created_private,
    make_job_files,
)
from airflow_cdc_provider.pipeline.steps.jobs import (
    STOP_PATIENCE_S,
    JobEnd,
    JobProcess,
    SparkOptions,
    end_of,
    job_result,
    tell_start,
)
from airflow_cdc_provider.pipeline.steps.masters import require_master
from airflow_cdc_provider.spark.java_home import find_java_home
from airflow_cdc_provider.spark.package import package_archive

_QUIET = {"spark.log.level": "WARN"}
"""An idle stream would write two lines a second into the job's log."""
_OWN_LAUNCHER = ("local", "sc://")
"""Masters that no spark-submit is needed for: Spark here, and Spark Connect."""


@dataclass(frozen=True, slots=True)
class SubmitByProvider:
    """Submits jobs with Airflow's Spark provider, as a connection says."""

    conn_id: str
    extra: Mapping[str, Any] = field(repr=False)
    stored: str = field(repr=False)
    """The connection as the environment holds one; it may have a keytab in it."""

    def __call__(self, run: Run, spec: JobSpec, options: SparkOptions) -> JobProcess:
        """Submit a job, if the connection's deployment can work."""
        deployment = Deployment.of(options.master, self.extra, options.conf)
        where = f"spark.conn_id, connection {self.conn_id}"
        require_possible(where, deployment, spec, options.conf, run.servers.state_dsn)
        require_master(options.master)
        files, output = make_job_files(options.log_folder or default_folder(), spec)
        carried = DriverFiles(files.log)
        cargo = carried.what(deployment, run.servers.environment())
        order = self.order(spec, options, deployment, files, cargo)
        process = _started(order, self._environment(run, deployment), output)
        tell_start(run, spec, options, files.log)
        return SubmittedJob(spec, process, files.log, run=run, carried=carried)

    def order(
        self,
        spec: JobSpec,
        options: SparkOptions,
        deployment: Deployment,
        files: JobFiles,
        cargo: DriverFilePaths,
    ) -> SubmitOrder:
        """Return the order for the process that submits the job."""
        words = ["--job", f"@{files.spec}", "--digest", files.digest]
        if deployment.is_cluster:
            words = ["--job", ENCODED + base64.b64encode(spec.to_json().encode()).decode()]
        if cargo.servers:
            words += ["--servers", Path(cargo.servers).name]
        return SubmitOrder(
            conn_id=self.conn_id,
            deployment=deployment,
            application=str(Path(airflow_cdc_provider.__file__).parent / "spark" / "main.py"),
            arguments=tuple(words),
            name=f"cdc {spec.pipeline}",
            conf={**_QUIET, **options.conf},
            py_files=cargo.package,
            files=cargo.servers,
        )

    def _environment(self, run: Run, deployment: Deployment) -> dict[str, str]:
        """Return the environment of the process that submits the job."""
        here = Path(sys.executable).parent
        environment = {
            **os.environ,
            f"AIRFLOW_CONN_{self.conn_id.upper()}": self.stored,
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), str(here)]),
            "JAVA_HOME": str(find_java_home()),
            "PYTHONUNBUFFERED": "1",
        }
        if not deployment.is_cluster:
            environment |= run.servers.environment()
            environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        return environment


@dataclass(frozen=True, slots=True)
class DriverFilePaths:
    """Paths of the files that go to a remote driver; empty if there is none."""

    package: str = ""
    servers: str = ""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """Writes the files that go to a remote driver, and deletes them at the job's end."""

    log: Path

    def what(self, deployment: Deployment, variables: Mapping[str, str]) -> DriverFilePaths:
        """Write the files that a deployment needs, and return their paths."""
        if not deployment.is_cluster:
            return DriverFilePaths()
        servers = str(self.servers(variables)) if deployment.is_yarn else ""
        return DriverFilePaths(str(self.package() or ""), servers)

    def package(self) -> Path | None:
        """Write this package as an archive, and return its path."""
        folder = self.log.with_suffix(".package")
        folder.mkdir(mode=0o700)
        return package_archive(folder)

    def servers(self, variables: Mapping[str, str]) -> Path:
        """Write the DSN variables to a file that only this user can read, and return its path."""
        path = self.log.with_suffix(".servers")
        with created_private(path) as file:
            file.write(json.dumps(dict(variables)).encode())
        return path

    def remove(self) -> None:
        """Delete the files."""
        self.log.with_suffix(".servers").unlink(missing_ok=True)
        shutil.rmtree(self.log.with_suffix(".package"), ignore_errors=True)


class SubmittedJob(JobProcess):
    """A submitted job; its process is the one that submits it."""

    def __init__(
        self,
        spec: JobSpec,
        process: subprocess.Popen[bytes],
        log: Path,
        *,
        run: Run,
        carried: DriverFiles,
    ) -> None:
        super().__init__(spec, process, log)
        self._run = run
        self._carried = carried

    def end(self) -> JobEnd:
        """Return how the job ended, or raise its error."""
        self._carried.remove()
        status = self._process.returncode
        result = job_result(self.log) or self._remembered(status)
        return end_of(self.spec, result, status, self.log)

    def stop(self, *, patience_s: float = STOP_PATIENCE_S) -> None:
        """Stop the submitted job, and the process that submitted it."""
        super().stop(patience_s=patience_s)
        self._carried.remove()

    def _remembered(self, status: int | None) -> dict[str, Any] | None:
        """Return a remote job's result by the state store, None if that does not know."""
        state = self._run.store.ensure(self._run.name)
        if status == 0:
            stopped = state.wanted is Wanted.STOP
            outcome = Outcome.STOPPED if stopped else Outcome.FINISHED
            result = JobResult(
                str(self._run.name), self.spec.generation, self.spec.kind.value, outcome
            )
        elif state.phase is Phase.FAILED and state.generation == self.spec.generation:
            result = JobResult.failed(self.spec, state.error.read())
        else:
            return None
        form: dict[str, Any] = json.loads(result.to_json())
        return form


def launcher_of(connection: Connection, fields: ConnectionFields) -> SubmitByProvider | None:
    """Return the launcher that submits jobs of a connection; None if they are not submitted."""
    if has_provider() and not fields.spark_master().startswith(_OWN_LAUNCHER):
        return SubmitByProvider(fields.conn_id, fields.extra, connection.as_json())
    fields.own_master()  # refuses what would be left out
    return None


def _started(
    order: SubmitOrder, environment: Mapping[str, str], output: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start the process that submits the job, and write the order to its stdin."""
    with output:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_cdc_provider.hooks.spark_submitter"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(order.to_json().encode())
    return process
