"""What Spark raises is told apart by what helps: real failures of a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from airflow_cdc_provider.core.errors import (
    CdcError,
    LogPurgedError,
    RefusedError,
    RetryableError,
    SparkInstallationError,
    SparkLostError,
)
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.engine.errors_as_records import CarriedError
from airflow_cdc_provider.engine.job_result import ExitCode
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.spark.executors import require_packages
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, reason_of, spark_failure
from tests.servers.patience import wait_until
from tests.spark.conftest import MakePipeline
from tests.spark.snapshot_jobs import finished_splits
from tests.spark.workload import TABLES, fill

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PASSWORD = "pl4nted"
SECRETS = Secrets.of_dsns(f"mysql://u:{PASSWORD}@h/")


def failure_of(call: Callable[[], object]) -> CdcError:
    try:
        call()
    except SPARK_FAILURES as failure:
        return spark_failure(failure, where="test", secrets=SECRETS)
    pytest.fail("it did not fail")


def mapped(spark: SparkSession, read: Callable[[], None]) -> Callable[[], object]:
    """Return a job whose only task calls `read` in its Python worker."""

    def batches(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read()
        yield from rows

    return lambda: spark.range(0, 1, 1, 1).mapInArrow(batches, "id long").collect()


def test_a_python_worker_that_dies_is_worth_a_retry(spark: SparkSession) -> None:
    error = failure_of(mapped(spark, lambda: os._exit(7)))
    assert type(error) is RetryableError
    assert "Python worker exited unexpectedly" in error.what


def test_an_error_that_a_task_carries_out_keeps_its_class(spark: SparkSession) -> None:
    def purged() -> None:
        raise CarriedError(LogPurgedError("gone"))

    assert type(failure_of(mapped(spark, purged))) is LogPurgedError


def test_what_a_task_raises_is_told_in_its_own_words_and_without_the_password(
    spark: SparkSession,
) -> None:
    def broken() -> None:
        raise ValueError(f"cannot log in with {PASSWORD}")

    error = failure_of(mapped(spark, broken))
    assert isinstance(error, RetryableError)
    assert "ValueError: cannot log in with ***" in error.what
    assert PASSWORD not in str(error)


def test_a_call_that_the_java_side_does_not_know_is_a_wrong_installation(
    spark: SparkSession,
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    unknown = jvm.org.apache.spark.sql.execution.python.UserDefinedPythonFunction
    error = failure_of(lambda: unknown("f", PASSWORD.encode()))
    assert type(error) is SparkInstallationError
    assert "UserDefinedPythonFunction([class java.lang.String" in error.what
    assert "does not exist" in error.what
    assert "\tat " not in error.what


def test_a_package_that_is_missing_is_a_wrong_installation(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_pandas() -> None:
        sys.modules["pandas"] = None  # type: ignore[assignment]
        require_minimum_pandas_version()

    in_worker = failure_of(mapped(spark, without_pandas))
    monkeypatch.setitem(sys.modules, "pandas", None)
    for error in (in_worker, failure_of(require_minimum_pandas_version)):
        assert type(error) is SparkInstallationError
        assert "PACKAGE_NOT_INSTALLED" in error.what


def test_two_pythons_are_a_wrong_installation(spark: SparkSession) -> None:
    def of_another_version() -> None:
        names = {"worker_version": "3.4", "driver_version": "3.11"}
        raise PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=names)

    error = failure_of(mapped(spark, of_another_version))
    assert type(error) is SparkInstallationError
    assert "PYSPARK_PYTHON" in error.remedy


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        ({"no_such_module": ("1", "")}, "no_such_module cannot be imported"),
        ({"numpy": ("99", "")}, r"numpy is [0-9.]+, wanted is >=99 on"),
        ({"numpy": ("1", "1.1")}, r"numpy is [0-9.]+, wanted is >=1,<1\.1"),
    ],
)
def test_what_workers_lack_is_told_with_the_command_that_brings_it(
    needed: dict[str, tuple[str, str]], words: str, spark: SparkSession
) -> None:
    with pytest.raises(SparkInstallationError, match=words) as caught:
        require_packages(spark.sparkContext, needed)
    assert f"pip install '{next(iter(needed))}>=" in caught.value.remedy
    require_packages(spark.sparkContext)


def test_what_spark_understands_and_refuses_is_not_tried_again(spark: SparkSession) -> None:
    error = failure_of(lambda: spark.range(1).select("nowhere"))
    assert type(error) is RefusedError
    assert "nowhere" in error.what


def test_a_data_source_whose_python_worker_dies_is_worth_a_retry(spark: SparkSession) -> None:
    class Dying(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def schema(self) -> str:
            os._exit(7)

    spark.dataSource.register(Dying)
    error = failure_of(lambda: spark.read.format("dying").load())
    assert type(error) is RetryableError


def test_a_data_source_that_raises_is_worth_a_retry(spark: SparkSession) -> None:
    class Raising(DataSource):
        @classmethod
        def name(cls) -> str:
            return "raising"

        def schema(self) -> str:
            raise ValueError("the file is not there yet")

    spark.dataSource.register(Raising)
    error = failure_of(lambda: spark.read.format("raising").load())
    assert type(error) is RetryableError
    assert "the file is not there yet" in error.what


GONE = """
import os
from airflow_cdc_provider.spark.failures import SPARK_FAILURES, spark_failure
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.spark.session import open_session
import psutil
spark = open_session("test", master="local[1]")
for child in psutil.Process().children(recursive=True):
    child.kill()
    child.wait()
for _ in range(2):
    try:
        spark.range(1).collect()
    except SPARK_FAILURES as failure:
        print(type(spark_failure(failure, where="test", secrets=Secrets())).__name__)
os._exit(0)
"""


@pytest.mark.spark
def test_a_jvm_that_is_gone_is_told_from_lost_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GONE], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.split() == ["SparkLostError", "SparkLostError"], done.stderr


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_snapshot_whose_jvm_is_killed_ends_with_a_result_that_says_so(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(overrides={"split_rows": 100})
    fill(pipeline, 20_000)
    pipeline.plan(TABLES)
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    driver = pipeline.start(spec)
    try:
        wait_until(lambda: finished_splits(pipeline) >= 3)
        children = psutil.Process(driver.pid).children()
        jvm = next(child for child in children if "java" in child.name())
        jvm.kill()
        assert driver.wait(timeout=200) == ExitCode.FAILED
    finally:
        driver.kill()
    assert pipeline.result_of(spec).error_code == SparkLostError.code


def test_of_a_long_trace_the_first_lines_and_the_last_cause_are_kept() -> None:
    frames = "\n".join(f"\tat org.apache.Some.method{n}(Some.java:{n})" for n in range(40))
    text = (
        f"An error occurred while calling o1.collect.\n: org.E: aborted\n{frames}\n"
        f"Caused by: java.io.EOFException\n{frames}\n\t... 12 more\n"
    )
    assert reason_of(text) == (
        "An error occurred while calling o1.collect. | : org.E: aborted | "
        "Caused by: java.io.EOFException"
    )


def test_a_failure_without_a_word_is_still_told() -> None:
    assert reason_of("\n\n") == "no reason given"
