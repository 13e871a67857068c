"""What an exception of Spark's means: an error it carries, lost work, a lost Spark, or a misfit.

Py4J and PySpark raise the same few classes for very different things, and only one of them is
worth another round in the same process:

- a job that was aborted: an executor or a Python worker died, and its work can be given out again;
- the JVM does not answer any more: nothing in this process will work, a new job may;
- the call never reached Spark: the gateway found no such method or constructor, because the Python
  and the Java of Spark are of different releases. It fails the same way for ever;
- Spark understood the call and refuses it: an option or a value, which does not change by itself;
- a package that Spark's Python needs is missing, or too old, here or where its workers run.

The text of such an exception is long, and its first lines and its last cause say why.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from airflow_cdc_provider.core.errors import (
    CdcError,
    RefusedError,
    RetryableError,
    SparkInstallationError,
    SparkLostError,
)
from airflow_cdc_provider.engine.errors_as_records import carried_error
from airflow_cdc_provider.engine.scrubbing import Secrets

SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)
"""What calls of Spark raise; a connection error is one to a JVM that is gone."""

_REFUSALS = (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    UnsupportedOperationException,
)
_IN_PYTHON = "PYTHON_DATA_SOURCE_ERROR"
"""What a Python worker of the driver's says or dies of, which Spark calls a wrong analysis."""
_TRACE = "Trace:"
"""Py4J writes it where its gateway failed itself, before anything of Spark was called."""
_FRAME = re.compile(
    r'\s+at |\s*File "|\s*\.\.\. \d+ more|\s*Traceback \(|\s{4,}|\s*[~^]+\s*$'
    r"|\s*(Driver stacktrace|JVM stacktrace)"
)
_CAUSE = re.compile(r"Error|Exception|exit")
_PACKAGE = re.compile(r"\[(PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\]")
_TWO_PYTHONS = "PYTHON_VERSION_MISMATCH"
_FIRST_LINES = 3
_LINE_CHARS = 400


def spark_failure(failure: Exception, *, where: str, secrets: Secrets) -> CdcError:
    """Return the error that a Spark exception carries, or one by what its text says."""
    text = secrets.scrub(str(failure))
    carried = carried_error(text)
    if carried is not None:
        return carried
    reason = reason_of(text)
    if isinstance(failure, _REFUSALS) and _IN_PYTHON not in text:
        return RefusedError(
            f"Spark refuses what it is asked: {reason}",
            where=where,
            risk="none: what was not committed is read again",
            remedy="look at spark.conf in the pipeline file and at the session's own settings",
        )
    if _PACKAGE.search(text):
        return SparkInstallationError(
            f"Spark's Python lacks a package: {reason}",
            where=where,
            risk="none: what was not committed is read again",
            remedy="install it, in the version named, wherever Spark's driver and workers run",
        )
    if _TWO_PYTHONS in text:
        return SparkInstallationError(
            f"driver and executors run different Pythons: {reason}",
            where=where,
            risk="none: nothing was read or written",
            remedy="let both be of one minor version: name the executors' in PYSPARK_PYTHON, and "
            "the driver's in PYSPARK_DRIVER_PYTHON",
        )
    if isinstance(failure, Py4JJavaError | PySparkException):
        return RetryableError(
            f"Spark could not finish: {reason}",
            where=where,
            risk="none: what was not committed is read again",
            remedy="nothing, unless it repeats; then look at the log of Spark's driver and "
            "executors",
        )
    if _TRACE in text and not isinstance(failure, Py4JNetworkError | ConnectionError):
        return SparkInstallationError(
            f"the Java side of Spark lacks what its Python side calls: {reason}",
            where=where,
            risk="none: what was not committed is read again",
            remedy="let pyspark and the Spark it starts be of one version; look at SPARK_HOME, "
            "and with `pip list` for pyspark-client beside pyspark",
        )
    return SparkLostError(
        f"Spark's JVM does not answer any more: {reason}",
        where=where,
        risk="none: what was not committed is read again",
        remedy="run again; if it repeats, look for a lack of memory on the driver's machine",
    )


def reason_of(text: str) -> str:
    """Return the lines of a Spark exception that say why, without stack frames."""
    lines = [line.strip()[:_LINE_CHARS] for line in text.splitlines() if not _FRAME.match(line)]
    lines = [line for line in lines if line.strip(": ")]
    chosen = lines[:_FIRST_LINES]
    cause = next((line for line in reversed(lines) if _CAUSE.search(line)), "")
    if cause and cause not in chosen:
        chosen.append(cause)
    return " | ".join(chosen) or "no reason given"
