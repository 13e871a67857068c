"""Changes of tables as data frames: `spark.read` and `spark.readStream` `.format("cdc")`.

from airflow_cdc_provider.spark.reading import register

register(spark)
changes = spark.read.format("cdc").option("table", "shop.orders").load("/data/changes")
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyspark

from airflow_cdc_provider.core.errors import NOTHING_STARTED, SparkInstallationError
from airflow_cdc_provider.spark.session import is_local, ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_PYTHON = "python3"
"""What Spark runs where nothing names a Python: the first of that name on the path."""


def register(spark: SparkSession) -> None:
    """Make the format `cdc` known to a session, and send this package to its executors.

    The workers of a local session run this Python, unless `PYSPARK_PYTHON` named another one when
    it began: the `python3` of the path may not have the package.

    `SparkInstallationError` where PySpark is older than 4.0, which has no data sources in Python.
    """
    if int(pyspark.__version__.partition(".")[0]) < 4:
        raise SparkInstallationError(
            f"PySpark {pyspark.__version__} has no data sources in Python: format cdc needs 4.0",
            where="register of format cdc",
            risk=NOTHING_STARTED,
            remedy="use PySpark 4.0 or newer for what reads the log; or read its files, which "
            "sealed_files() lists, as plain Parquet",
        )
    from airflow_cdc_provider.spark.change_source import ChangeSource  # noqa: PLC0415 - Spark 4

    if not is_local(spark):
        ship_package(spark)
    elif spark.sparkContext.pythonExec == _ANY_PYTHON:
        spark.sparkContext.pythonExec = sys.executable
    spark.dataSource.register(ChangeSource)
