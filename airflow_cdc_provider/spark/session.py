"""The Spark session that the jobs run in.

Works with `local[N]`, a standalone or other cluster, under spark-submit, from Python, and with a
session that the user made. What correctness or promptness needs is set here, and checked on a
session that was made elsewhere:

- no speculation: a twin of a reader would read for nothing, and a twin of the stream would be
  fenced off only at its commit;
- `spark.python.task.killTimeout` is short, so that the Python of a cancelled task ends soon;
- UTC, for what Spark itself prints; rows are bytes to it, so no setting of its SQL changes a value;
- workers run this Python: JVM-forked workers take `PYSPARK_PYTHON` from the environment or else
  whatever `python3` is on PATH, and only the environment at the start of the JVM counts.

No secret is ever put into Spark's configuration: it shows on the JVM's command line, in the UI and
in the event log.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.spark.class_archive import archive_options
from airflow_cdc_provider.spark.executors import require_packages
from airflow_cdc_provider.spark.failures import SPARK_FAILURES
from airflow_cdc_provider.spark.installation import require_one_pyspark, require_supported
from airflow_cdc_provider.spark.java_home import find_java_home
from airflow_cdc_provider.spark.package import package_archive

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*]"
_CONNECT = "sc://"

_NEEDED = {
    "spark.speculation": "false",
    "spark.python.task.killTimeout": "200ms",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_PREFERRED_LOCALLY = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
# Rows never become Java objects, so the optimising compiler only takes CPU from the readers.
_LOCAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def prepare_environment(where: str = DEFAULT_MASTER) -> None:
    """Set the environment so that Spark uses this Python and a fitting Java.

    Over Spark Connect no Java is started here.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not _under_spark_submit() and not where.startswith(_CONNECT):
        os.environ["JAVA_HOME"] = str(find_java_home())


def open_session(
    name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active Spark session, or open one for a job.

    Under spark-submit its own options apply; elsewhere `master` or `local[*]`.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return checked(active)
    require_one_pyspark()
    where = master or DEFAULT_MASTER
    prepare_environment(where)
    settings = {**_NEEDED, **(conf or {})}
    builder = SparkSession.builder.appName(name)
    if not _under_spark_submit():
        if where.startswith("local"):
            settings = {**_not_submitted(_preferred_locally()), **settings}
        builder = builder.remote(where) if where.startswith(_CONNECT) else builder.master(where)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = checked(builder.getOrCreate())
    log.info("spark is open: pyspark=%s spark=%s", pyspark.__version__, spark.version)
    if not is_local(spark):
        ship_package(spark)
        context = context_of(spark)
        if context is not None:
            require_packages(context)
    return spark


def close_session() -> None:
    """Stop the active Spark session, if there is one, and its JVM.

    A JVM that is gone has nothing to stop, and may not keep a job from telling how it ended.
    """
    try:
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
    except SPARK_FAILURES as failure:
        log.warning("spark not stopped, its JVM is gone: cause=%s", failure)


def checked(spark: SparkSession) -> SparkSession:
    """Refuse a session that is too old or has speculation on, else return it."""
    require_supported(spark.version, where="Spark's session")
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise RefusedError(
            "spark.speculation is on",
            where="Spark's configuration",
            risk="a second copy of a reader would load the source for nothing and be fenced off",
            remedy="set spark.speculation=false for these jobs",
        )
    return spark


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's SparkContext; None over Spark Connect, which has none."""
    return None if _is_connect(spark) else spark.sparkContext


def is_local(spark: SparkSession) -> bool:
    """Tell whether all of Spark runs on this machine, inside one JVM."""
    context = context_of(spark)
    return context is not None and (context.master or "").partition("[")[0] == "local"


def slots(spark: SparkSession) -> int | None:
    """Return how many tasks Spark runs at once; None if that is not known."""
    context = context_of(spark)
    return None if context is None else max(1, context.defaultParallelism)


def reachable_host(spark: SparkSession) -> str:
    """Return the address at which executors reach the driver."""
    if context_of(spark) is not None:
        return spark.conf.get("spark.driver.host") or socket.getfqdn()
    return socket.getfqdn()


def bind_address(spark: SparkSession) -> str:
    """Return the address that the driver binds to; empty if executors reach it at the same."""
    if context_of(spark) is None:
        return ""
    return spark.conf.get("spark.driver.bindAddress", None) or ""


def ship_package(spark: SparkSession) -> None:
    """Send this package to the executors, so that they run the driver's version of it.

    What it imports (pyarrow, numpy, pymysql, zstandard) has to be installed there.
    """
    archive = package_archive(Path(tempfile.mkdtemp(prefix="cdc-package-")))
    if archive is None:
        return  # the cluster gave it to driver and executors
    context = context_of(spark)
    if context is None:
        spark.addArtifacts(str(archive), pyfile=True)
    else:
        context.addPyFile(str(archive))


def _preferred_locally() -> dict[str, str]:
    """Return the settings that a local Spark gets by default."""
    archive = archive_options(Path(os.environ["JAVA_HOME"]))
    return {**_PREFERRED_LOCALLY, _JAVA_OPTIONS: f"{_LOCAL_JAVA} {archive}".strip()}


def _is_connect(spark: SparkSession) -> bool:
    """Tell whether the session is one of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.session")


def _not_submitted(settings: Mapping[str, str]) -> dict[str, str]:
    """Leave out settings that the environment's submit arguments override."""
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return {key: value for key, value in settings.items() if f"{key}=" not in submitted}


def _under_spark_submit() -> bool:
    """Tell whether this process was started by spark-submit."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
