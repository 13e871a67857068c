"""Change logs as data frames: `spark.read` and `spark.readStream` `.format("cdc")`.

from airflow_cdc_provider.spark.reading import register

register(spark)
changes = spark.read.format("cdc").option("table", "shop.orders").load("/data/changes")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

from airflow_cdc_provider.core.errors import NOTHING_STARTED, SparkInstallationError
from airflow_cdc_provider.spark.session import is_local, ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `cdc` known to a session, and send this package to its executors.

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
    from airflow_cdc_provider.spark.change_source import ChangeLogSource  # noqa: PLC0415 - Spark 4

    if not is_local(spark):
        ship_package(spark)
    spark.dataSource.register(ChangeLogSource)
