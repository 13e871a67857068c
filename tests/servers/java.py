"""The environment a Spark of the tests runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from airflow_cdc_provider.spark.java_home import find_java_home

# A Spark of the user's own must not leak in: it may have another version, jars and defaults.
SPARK_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON")
# Instead there are the tests' own, for JVMs that live for seconds.
_DEFAULTS = Path(__file__).parents[1] / "data" / "spark_conf"
_DAEMONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def prepare_spark_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Point Spark at this Python and at a Java.

    `PYSPARK_PYTHON` has to be in the environment before the session starts: workers that the
    virtual machine forks would otherwise be whatever `python3` is on PATH.
    """
    for name in SPARK_VARIABLES:
        environ.pop(name, None)
    environ["PYSPARK_PYTHON"] = sys.executable
    environ["SPARK_CONF_DIR"] = str(_DEFAULTS)
    environ["SPARK_DAEMON_JAVA_OPTS"] = _DAEMONS
    environ["JAVA_HOME"] = str(find_java_home(environ))
