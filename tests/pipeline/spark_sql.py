"""`python -m tests.pipeline.spark_sql GIVEN`: statements in a Spark with jars of the formats.

GIVEN is JSON: `jars`, `conf`, and `steps`, each a statement with the file of Arrow that takes its
rows, or with an empty text.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.servers.java import prepare_spark_environment


def main(given: dict[str, Any]) -> None:
    prepare_spark_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(given["jars"]))
    for name, value in given["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for statement, path in given["steps"]:
        rows = spark.sql(statement)
        if path:
            table = rows.toArrow()
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
