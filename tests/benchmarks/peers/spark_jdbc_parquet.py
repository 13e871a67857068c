"""lineitem to Parquet with Spark's JDBC reader, local[2], four partitions, a warm session."""

from __future__ import annotations

import os
import sys

from airflow_cdc_provider.spark.java_home import find_java_home
from tests.benchmarks import subject


def main() -> None:
    given = subject.arguments()
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment set above

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", given["jar"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )

    def frame(rows: int | None = None) -> object:
        table = "lineitem" if rows is None else f"(SELECT * FROM lineitem LIMIT {rows}) t"
        return (
            spark.read.format("jdbc")
            # With a jdbc:mariadb URL Spark picks no MySQL dialect and quotes columns wrongly.
            .option("url", f"jdbc:mysql://127.0.0.1:{given['source']}/bench")
            .option("driver", "org.mariadb.jdbc.Driver")
            .option("user", "root")
            .option("dbtable", table)
            .option("fetchsize", 10_000)
            .option("partitionColumn", "l_orderkey")
            .option("lowerBound", 1)
            .option("upperBound", given["largest"])
            .option("numPartitions", 4)
            .load()
        )

    frame(1000).write.mode("overwrite").parquet(given["out"])  # type: ignore[attr-defined]

    def run() -> int:
        frame().write.mode("overwrite").parquet(given["out"])  # type: ignore[attr-defined]
        return int(given["rows"])

    subject.work(run)
    spark.stop()


if __name__ == "__main__":
    main()
