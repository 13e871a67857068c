"""A continuous stream that its driver follows itself, and hands to Spark where much log waits.

Where Spark's master answers nowhere, a job that needed Spark would fail.
"""

from __future__ import annotations

from functools import partial

import pytest

from airflow_cdc_provider.core.errors import FencedError, TableChangedError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.schema_changes import Policy, SchemaPolicy
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.throwaway import MySqlServer
from tests.spark.conftest import MakePipeline
from tests.spark.driver_streams import handed_off, started, stopped
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import applied, arrived, change, ended, lag_of, lease_of
from tests.spark.workload import writing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUERY = "spark follows the log"


@pytest.fixture(params=["mysql", "mariadb"])
def pipeline(request: pytest.FixtureRequest, make_pipeline: MakePipeline) -> Pipeline:
    if request.param == "mysql":
        return handed_off(make_pipeline())
    source: SqlServer = request.getfixturevalue("mariadb_server")
    database: str = request.getfixturevalue("mariadb_database")
    return handed_off(make_pipeline(source, database))


def test_a_stream_is_followed_without_a_spark_until_it_is_asked_to_stop(pipeline: Pipeline) -> None:
    spec, process = started(pipeline)
    with ended(pipeline, process):
        for number in range(5):
            change(pipeline, number)
            wait_until(partial(arrived, pipeline, number))
        assert stopped(pipeline, process)
    result = pipeline.result_of(spec)
    assert (result.outcome, result.changes, result.consistent) == (Outcome.STOPPED, 5, True)
    pipeline.assert_equal()


def test_a_driver_that_is_killed_is_followed_by_one_that_misses_nothing(
    pipeline: Pipeline,
) -> None:
    with writing(pipeline, every_s=0.02):
        for _ in range(2):
            _, process = started(pipeline, max_batch_changes=5)
            with ended(pipeline, process):
                before = applied(pipeline)
                wait_until(lambda: applied(pipeline) > before + 50)  # noqa: B023
                process.kill()
                assert lease_of(pipeline)  # there was nobody to give it back
    _, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)  # the last one
        wait_until(lambda: arrived(pipeline, 1))
        assert stopped(pipeline, process)
    pipeline.assert_equal()


def test_a_newer_owner_ends_it(pipeline: Pipeline) -> None:
    spec, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(lambda: arrived(pipeline, 1))
        pipeline.take_over()
        assert process.wait(timeout=60) == ExitCode.FAILED
    assert pipeline.result_of(spec).error_code == FencedError.code


def test_a_changed_table_ends_it_behind_what_came_before(pipeline: Pipeline) -> None:
    policy = SchemaPolicy(add_column=Policy.STOP)
    spec, process = started(pipeline, schema_changes=policy, isolates_tables=False)
    with ended(pipeline, process):
        change(pipeline, 1)
        pipeline.source.execute(
            "ALTER TABLE orders ADD COLUMN more INT", database=pipeline.source_database
        )
        assert process.wait(timeout=60) == ExitCode.FAILED
    assert pipeline.result_of(spec).error_code == TableChangedError.code
    assert arrived(pipeline, 1)
    state = pipeline.store.pipeline(pipeline.name)
    assert state is not None
    assert (state.phase, state.lease_until_us) == (Phase.FAILED, 0)


def test_it_goes_on_when_the_source_was_killed_and_came_back(make_pipeline: MakePipeline) -> None:
    options = {"innodb_flush_log_at_trx_commit": 1, "sync_binlog": 1}
    with MySqlServer(options) as source:
        source.execute("CREATE DATABASE shop")
        pipeline = handed_off(make_pipeline(source, "shop"))
        _, process = started(pipeline)
        with ended(pipeline, process):
            change(pipeline, 1)
            wait_until(lambda: arrived(pipeline, 1))
            source.kill()
            source.start()
            change(pipeline, 2)
            source.execute("FLUSH BINARY LOGS")
            change(pipeline, 3)
            wait_until(lambda: arrived(pipeline, 3))
            assert stopped(pipeline, process)
        pipeline.assert_equal()


@pytest.mark.spark
@pytest.mark.parametrize("table", ["orders", "others"])
@pytest.mark.sample(1)
def test_much_log_is_read_by_spark_once_and_the_driver_goes_on_behind_it(
    make_pipeline: MakePipeline, table: str
) -> None:
    """Log of others, too: what Spark passes over is committed, or it would wait again."""
    with MySqlServer() as source:  # nobody else writes to its log
        source.execute("CREATE DATABASE shop")
        source.execute("CREATE TABLE shop.others (id INT, note TEXT, amount INT)")
        pipeline = handed_off(make_pipeline(source, "shop"))
        _, process = started(pipeline)
        with ended(pipeline, process):  # after it the position is a place in the log
            change(pipeline, 10)
            wait_until(lambda: arrived(pipeline, 10))
            assert stopped(pipeline, process)
        pipeline.store.want(pipeline.name, Wanted.RUN)
        for number in range(100, 120):
            source.execute(f"INSERT INTO shop.{table} VALUES ({-number}, 'note', 1)")
        spec, process = started(pipeline, master="local[2]", driver_log_bytes=2000)
        with ended(pipeline, process):
            wait_until(lambda: QUERY in pipeline.log_of(spec).read_text())
            wait_until(lambda: lag_of(pipeline) == 0)
            for number in range(3):
                change(pipeline, number)
                wait_until(partial(arrived, pipeline, number))
            assert stopped(pipeline, process)
        assert pipeline.log_of(spec).read_text().count(QUERY) == 1
        assert pipeline.result_of(spec).changes == (23 if table == "orders" else 3)
        pipeline.assert_equal()
