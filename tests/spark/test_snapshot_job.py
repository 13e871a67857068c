"""Snapshots on a real Spark, between real servers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.spark.job_result import Outcome
from airflow_cdc_provider.spark.main import run_job
from tests.spark.conftest import MakePipeline
from tests.spark.pipelines import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fill(pipeline: Pipeline, rows: int) -> None:
    """Make three tables: an integer key with holes, a text key, a composite key."""
    run = pipeline.source.execute
    database = pipeline.source_database
    run(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(20,4))",
        database=database,
    )
    run("CREATE TABLE names (name VARCHAR(40) PRIMARY KEY, born DATE)", database=database)
    run("CREATE TABLE parts (o INT, n INT, t TIMESTAMP(3), PRIMARY KEY (o, n))", database=database)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0})"
    deep = f"SET SESSION cte_max_recursion_depth = {rows + 1}"
    with pipeline.source.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(deep)
        for target, columns in (
            ("orders", "i * 3, CONCAT('note ', i, ' \\\\ é\\'\\n'), i / 7"),
            ("names", "CONCAT('Name ', i), DATE('2000-01-01') + INTERVAL i MOD 9000 DAY"),
            ("parts", "1 + i DIV 1000, i MOD 1000, NULL"),
        ):
            cursor.execute(f"INSERT INTO {target} {numbers.format(rows)} SELECT {columns} FROM n")


@contextmanager
def writing(pipeline: Pipeline, *, every_s: float = 0.002) -> Iterator[None]:
    """Insert, update, delete and move keys all the while."""
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    rng = random.Random(seed)
    stop = threading.Event()

    def write() -> None:
        with pipeline.source.connect(pipeline.source_database) as connection:
            while not stop.wait(every_s):
                with connection.cursor() as cursor:
                    one, other = rng.randrange(40_000), rng.randrange(40_000)
                    for statement in (
                        f"REPLACE INTO orders VALUES ({one}, 'new', {rng.random()})",
                        f"UPDATE IGNORE orders SET id = {other} WHERE id = {one}",
                        f"DELETE FROM orders WHERE id = {other + 1}",
                        f"UPDATE names SET born = NULL WHERE name = 'Name {one}'",
                        f"DELETE FROM names WHERE name = 'Name {other}'",
                        f"REPLACE INTO parts VALUES ({one // 1000}, {other % 1000}, NOW(3))",
                    ):
                        cursor.execute(statement)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_snapshot_of_a_still_database_is_the_database(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 2000})
    fill(pipeline, 10_000)
    pipeline.plan(["orders", "names", "parts"])
    started = time.monotonic()
    result = run_job(
        pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over()), spark, servers=pipeline.servers()
    )
    print(f"{time.monotonic() - started:.2f} s: {result}")
    assert result.outcome is Outcome.FINISHED, result.error
    assert (result.tables, result.rows) == (3, 30_000)
    assert result.splits >= 15
    pipeline.assert_equal()
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert state.phase is Phase.SNAPSHOT
    assert {table.phase for table in pipeline.store.tables(pipeline.name)} == {TablePhase.READ}


def test_a_second_snapshot_job_reads_nothing_again(
    spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 2000})
    fill(pipeline, 3000)
    pipeline.plan(["orders", "names", "parts"])
    for expected in (9000, 0):
        spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
        result = run_job(spec, spark, servers=pipeline.servers())
        assert (result.outcome, result.rows) == (Outcome.FINISHED, expected), result.error
