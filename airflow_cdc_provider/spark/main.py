"""What spark-submit runs: `main.py --job <JSON, or @file>`.

The job names the environment variables that hold the DSNs; no secret is ever on a command line.
Where the driver's environment would be one (`cluster` mode on YARN), they come in a file that only
its owner may read, `--servers`.
The last line on standard output is the job's result as JSON. Exit codes: 0 fine, also when it was
asked to stop; 2 refused by configuration; 3 failed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.jobspec import ENCODED, JobKind, JobSpec
from airflow_cdc_provider.core.spark_place import SparkPlace
from airflow_cdc_provider.engine.job import Job, JobServers, remembered_failure
from airflow_cdc_provider.engine.job_result import ExitCode, JobResult
from airflow_cdc_provider.engine.ownership import kept_lease
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.spark.session import (
    DEFAULT_MASTER,
    close_session,
    context_of,
    open_session,
)
from airflow_cdc_provider.spark.snapshot_job import run_snapshot
from airflow_cdc_provider.spark.stream_job import run_stream
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def run_job(
    spec: JobSpec,
    spark: SparkSession | None = None,
    *,
    servers: JobServers | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> JobResult:
    """Run one job and return its result; only bugs of the product itself are raised.

    Without `spark` a session is made, or the active one taken, and left open.
    """
    started = time.monotonic()
    secrets = Secrets()
    try:
        servers = servers or JobServers.from_environment(spec)
        secrets = servers.secrets
        with (
            closing(open_store(servers.state_dsn)) as store,
            kept_lease(store, spec.pipeline, spec.generation),
        ):
            job = Job(spec, servers, store, registry, stop or threading.Event())

            def session() -> SparkSession:
                opened = spark or _session(spec, master, conf, secrets)
                _tell_place(store, spec, opened)
                return opened

            if not spec.may_need_no_spark:
                spark = session()
            return _run(job, session)
    except CdcError as error:
        shown = error.rewritten(secrets.scrub)
        log.error("job failed: pipeline=%s error=%s", spec.pipeline, shown)
        return JobResult.failed(spec, shown, round(time.monotonic() - started, 3))


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run the job that the command line names; return the exit code."""
    set_up_logging()
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", required=True, help="the job spec as JSON, @FILE or base64:")
    parser.add_argument("--digest", help="SHA-256 of the job spec; another spec is refused")
    parser.add_argument("--servers", type=Path, help="a file with the variables that hold the DSNs")
    parser.add_argument("--master", help="Spark's master; spark-submit's own option goes before it")
    parser.add_argument("--result", type=Path, help="a file to write the result to as well")
    options = parser.parse_args(arguments)
    try:
        text = _job_text(options.job)
        _require_digest(text, options.digest)
        spec = JobSpec.from_json(text)
        if options.servers is not None:
            os.environ.update(_taken(options.servers))
    except (OSError, ValueError, KeyError) as error:
        log.error("the job spec cannot be read: %s", error)
        return ExitCode.REFUSED
    result = run_job(spec, master=options.master, stop=_stop_on_sigterm())
    close_session()  # whatever Spark still has to say comes before the result
    if options.result is not None:
        options.result.write_text(result.to_json() + "\n", encoding="utf-8")
    sys.stdout.write(result.to_json() + "\n")
    sys.stdout.flush()
    return result.exit_code


def set_up_logging() -> None:
    """Log to standard error, which is the job's log."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for library in ("py4j", "pyiceberg"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _job_text(given: str) -> str:
    """Return the job's specification from the argument: JSON, `@FILE`, or base64."""
    if given.startswith("@"):
        return Path(given[1:]).read_text(encoding="utf-8")
    if given.startswith(ENCODED):
        return base64.b64decode(given.removeprefix(ENCODED), validate=True).decode()
    return given


def _taken(servers: Path) -> dict[str, str]:
    """Read the DSN variables from a file, and delete the file."""
    held: dict[str, str] = json.loads(servers.read_text(encoding="utf-8"))
    servers.unlink()
    return held


def _require_digest(text: str, digest: str | None) -> None:
    """Refuse a specification whose SHA-256 is another than given."""
    if digest is not None and hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ValueError("it is not the one that was written for this job")


def _session(
    spec: JobSpec, master: str | None, conf: Mapping[str, str] | None, secrets: Secrets
) -> SparkSession:
    """Open the job's Spark session; a failure becomes one of the product's errors."""
    name = f"cdc {spec.pipeline}"
    try:
        return open_session(name, master=master, conf=conf)
    except SPARK_FAILURES as failure:
        # a master that takes the connection and says nothing shows only here, after a minute
        where = f"starting Spark on {master or DEFAULT_MASTER}"
        raise spark_failure(failure, where=where, secrets=secrets) from failure


def _tell_place(store: SqlStateStore, spec: JobSpec, spark: SparkSession) -> None:
    """Record among the events where Spark's UI shows the job; a failure is only logged."""
    context = context_of(spark)
    if context is None:
        return
    try:
        place = SparkPlace(context.applicationId, spec.generation, context.uiWebUrl or "")
    except SPARK_FAILURES as failure:
        log.warning("spark does not say where its ui is: cause=%s", failure)
        return
    store.tell(spec.pipeline, str(place))


def _run(job: Job, spark: Callable[[], SparkSession]) -> JobResult:
    """Run the job as a snapshot or a stream."""
    is_snapshot = job.spec.kind is JobKind.SNAPSHOT
    with remembered_failure(job):
        return run_snapshot(job, spark()) if is_snapshot else run_stream(job, spark)


def _stop_on_sigterm() -> threading.Event:
    """Return an event that SIGTERM sets, so that the job stops at its next renewal."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    return asked


if __name__ == "__main__":
    sys.exit(main())
