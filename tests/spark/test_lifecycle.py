"""What is wanted of a pipeline that is at work: a restart begins again, a pause lets go of all."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.engine.in_process import run_in_process
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from airflow_cdc_provider.engine.snapshot import snapshot_run
from airflow_cdc_provider.systems import registry
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.spark.conftest import MakePipeline
from tests.spark.driver_streams import handed_off, started, stopped
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import applied, arrived, change, ended
from tests.spark.test_driver_stream import pipeline
from tests.spark.workload import TABLES, fill, writing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["pipeline"]
IN_SPARK = {"master": "local[2]", "driver_log_bytes": 0}


def connections(*servers: SqlServer) -> set[tuple[int, int]]:
    """Return who is connected, but for whoever asks."""
    asked = "SELECT id FROM information_schema.processlist WHERE id <> connection_id()"
    return {(server.port, int(str(row[0]))) for server in servers for row in server.execute(asked)}


def wanted_of(pipeline: Pipeline) -> Wanted:
    return pipeline.store.ensure(pipeline.name).wanted


def goes_on_after_a_restart(pipeline: Pipeline, **where: object) -> None:
    with writing(pipeline, every_s=0.1):
        _, process = started(pipeline, **where)  # type: ignore[arg-type]
        with ended(pipeline, process):
            wait_until(lambda: applied(pipeline) > 5)
            generation = pipeline.store.ensure(pipeline.name).generation
            for _ in range(2):
                log = log_readers(pipeline.source)
                assert len(log) == 1
                pipeline.store.want(pipeline.name, Wanted.RESTART)
                wait_until(lambda: wanted_of(pipeline) is Wanted.RUN)
                before = applied(pipeline)
                wait_until(lambda: applied(pipeline) > before + 5)  # noqa: B023
                assert log_readers(pipeline.source).isdisjoint(log)
            assert process.poll() is None
            state = pipeline.store.ensure(pipeline.name)
            assert (state.generation, state.phase) == (generation, Phase.STREAMING)
    _finish(pipeline)


def _finish(pipeline: Pipeline) -> None:
    _, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(partial(arrived, pipeline, 1))
        assert stopped(pipeline, process)
    pipeline.assert_equal()


def log_readers(server: SqlServer) -> set[int]:
    asked = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    return {int(str(row[0])) for row in server.execute(asked)}


def test_a_stream_that_is_restarted_reads_on_from_the_ledger_in_the_same_process(
    pipeline: Pipeline,
) -> None:
    goes_on_after_a_restart(pipeline)


@pytest.mark.spark
def test_a_stream_in_spark_is_restarted_and_spark_stays(make_pipeline: MakePipeline) -> None:
    goes_on_after_a_restart(handed_off(make_pipeline()), **IN_SPARK)


def test_a_wish_from_before_the_stream_began_is_met_by_its_beginning(pipeline: Pipeline) -> None:
    pipeline.store.want(pipeline.name, Wanted.RESTART)
    _, process = started(pipeline)
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(partial(arrived, pipeline, 1))
        assert wanted_of(pipeline) is Wanted.RUN
        assert stopped(pipeline, process)


def paused(pipeline: Pipeline, before: set[tuple[int, int]], **where: object) -> None:
    """Pause the stream and look that nothing of it is connected."""
    _, process = started(pipeline, **where)  # type: ignore[arg-type]
    with ended(pipeline, process):
        change(pipeline, 1)
        wait_until(partial(arrived, pipeline, 1))
        asked = time.monotonic()
        pipeline.store.want(pipeline.name, Wanted.STOP)
        wait_until(lambda: connections(pipeline.source, pipeline.sink) <= before)
        print(f"seconds until nothing is connected: {time.monotonic() - asked:.1f}")
        assert process.wait(timeout=60) == ExitCode.FINE


def test_a_paused_stream_lets_go_of_every_connection(pipeline: Pipeline) -> None:
    paused(pipeline, connections(pipeline.source, pipeline.sink))


@pytest.mark.spark
def test_a_paused_stream_in_spark_lets_go_of_every_connection(make_pipeline: MakePipeline) -> None:
    made = handed_off(make_pipeline())
    paused(made, connections(made.source, made.sink), **IN_SPARK)


Wish = Callable[[Pipeline], None]


@pytest.fixture
def begun(make_pipeline: MakePipeline) -> Pipeline:
    """Return a pipeline whose snapshot has many splits."""
    made = make_pipeline()
    fill(made, 3000)
    made.plan(TABLES)
    return made


def job_of(pipeline: Pipeline) -> Job:
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over(), split_rows=10)
    return Job(spec, pipeline.servers(), pipeline.store, registry)


def test_a_paused_snapshot_lets_go_of_every_connection(begun: Pipeline) -> None:
    before = connections(begun.source, begun.sink)
    spec = begun.spec(JobKind.SNAPSHOT, begun.take_over(), split_rows=3)
    process = begun.start(spec, master="local[2]")
    with ended(begun, process):
        wait_until(
            lambda: any(table.splits_finished > 5 for table in begun.store.tables(begun.name))
        )
        asked = time.monotonic()
        begun.store.want(begun.name, Wanted.STOP)
        wait_until(lambda: connections(begun.source, begun.sink) <= before)
        print(f"seconds until nothing is connected: {time.monotonic() - asked:.1f}")
        assert process.wait(timeout=60) == ExitCode.FINE
    assert any(
        not table.planning_done or table.splits_finished < table.splits_planned
        for table in begun.store.tables(begun.name)
    ), "it was done before"


def test_a_snapshot_that_is_restarted_goes_on_with_what_is_left(
    begun: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    begin = snapshot_run._begin

    def begin_and_wish(job: Job) -> int | None:
        done = sum(table.splits_finished for table in begun.store.tables(begun.name))
        rounds.append(done)
        if len(rounds) == 1:
            begun.store.want(begun.name, Wanted.RESTART)
        return begin(job)

    monkeypatch.setattr(snapshot_run, "_begin", begin_and_wish)
    ended_well = run_in_process(job_of(begun))
    assert ended_well.outcome is Outcome.FINISHED
    assert len(rounds) == 2
    assert wanted_of(begun) is Wanted.RUN
    begun.assert_equal()
