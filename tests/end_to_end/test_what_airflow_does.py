"""Everything that Airflow does to a task, on a real one, and what becomes of the pipeline.

A test is a row or more of the tables in `docs/what_airflow_does.md`. One Airflow serves them all,
beside a writer that never rests. After each: both sides are equal by the servers' own words,
nothing is left that should not be, no process, no connection, no lease, and the user was told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.triggers.stream import UNWATCHED
from tests.end_to_end.harsh_airflow import FLOWING, STALE_S, HarshAirflow, harsh_airflow
from tests.servers.proxy import NONE, Fault

if TYPE_CHECKING:
    from tests.servers.given import SqlServer
    from tests.servers.postgres import SqlDatabase

pytestmark = [
    pytest.mark.slow,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def harsh(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    postgres_server: SqlDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HarshAirflow]:
    folder = tmp_path_factory.mktemp("harsh")
    with harsh_airflow(mysql_server, mysql_sink, postgres_server, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays_broken(harsh: HarshAirflow) -> Iterator[None]:
    """One test's faults are not the next one's."""
    yield
    harsh.slow.fault = NONE
    harsh.state_way.fault = NONE


@pytest.mark.sample(3, of="what Airflow does")
def test_a_snapshot_whose_process_and_then_its_worker_is_killed_reads_what_is_missing(
    harsh: HarshAirflow,
) -> None:
    harsh.read("killed")
    harsh.kill_task("killed", "snapshot")
    harsh.await_reading("killed", attempt=2)
    orphan = harsh.kill_worker("killed", "snapshot")
    orphan.wait(30)  # it ends by itself
    harsh.await_reading("killed", attempt=3)
    harsh.ends_equal("killed")
    read = [line for line in harsh.log("killed", "snapshot").splitlines() if "split read" in line]
    splits = [word for line in read for word in line.split() if word.startswith("split=")]
    assert len(splits) <= len(set(splits)) + 2  # at most what each killed try was at


@pytest.mark.sample(3, of="what Airflow does")
def test_a_snapshot_that_is_cleared_and_marked_ends_and_no_step_goes_on_without_it(
    harsh: HarshAirflow,
) -> None:
    harsh.read("marked")
    harsh.clear("marked", "snapshot")
    harsh.await_reading("marked", attempt=2)
    harsh.mark("marked", "snapshot", "failed")
    harsh.await_nothing("marked")
    harsh.clear("marked", "snapshot")
    harsh.await_reading("marked", attempt=3)
    harsh.mark("marked", "snapshot", "success")
    harsh.wait(lambda: harsh.task("marked", "hand_off")[0] == "failed", "the hand-off's refusal")
    told = harsh.log("marked", "hand_off")
    assert told.count("CDC-OWN-004 the snapshot is not done: missing harsh.") == 1
    assert "in Airflow by clearing its task" in told
    harsh.await_nothing("marked")
    harsh.wait(lambda: harsh.run_state("marked") == "failed", "the end of the run")
    harsh.clear("marked", "snapshot")
    harsh.await_reading("marked", attempt=4)
    harsh.ends_equal("marked")


@pytest.mark.sample(3, of="what Airflow does")
def test_a_dag_that_is_paused_lets_its_snapshot_end_and_begins_nothing_else(
    harsh: HarshAirflow,
) -> None:
    harsh.read("paused")
    first = harsh.runs["paused"]
    harsh.trigger("paused")
    harsh.pause_dag("paused", is_paused=True)
    assert harsh.run_state("paused") == "queued"  # one run at a time
    second, harsh.runs["paused"] = harsh.runs["paused"], first
    harsh.slow.fault = NONE
    harsh.wait(lambda: harsh.task("paused", "snapshot")[0] == "success", "the snapshot's end")
    harsh.await_nothing("paused")
    assert harsh.task("paused", "hand_off")[0] == "None"
    harsh.pause_dag("paused", is_paused=False)
    harsh.wait(lambda: harsh.run_state("paused") == "success", "the end of the first run")
    harsh.runs["paused"] = second
    harsh.wait(lambda: harsh.run_state("paused") != "queued", "the second run")
    harsh.ends_equal("paused")


@pytest.mark.sample(3, of="what Airflow does")
def test_without_scheduler_triggerer_and_api_server_all_that_runs_goes_on(
    harsh: HarshAirflow,
) -> None:
    generation = harsh.flow()
    harsh.read("served")
    watched = harsh.log(FLOWING, "follow").count("watching")
    harsh.kill_services(while_scheduling="served")
    harsh.flows_equal()
    harsh.start_services()
    harsh.wait(
        lambda: harsh.log(FLOWING, "follow").count("watching") > watched, "that it is watched again"
    )
    harsh.ends_equal("served")
    harsh.flows_equal()
    harsh.flows_alone()
    assert harsh.state(FLOWING).generation == generation


@pytest.mark.sample(3, of="what Airflow does")
def test_a_stream_whose_driver_is_killed_is_started_again(harsh: HarshAirflow) -> None:
    generation = harsh.flow()
    harsh.kill_job(FLOWING)
    harsh.await_watched(than=generation)
    harsh.flows_equal()
    harsh.flows_alone()
    told = harsh.log(FLOWING, "follow")
    assert f"stream starts again: pipeline={FLOWING} cause=its process is gone" in told


@pytest.mark.sample(3, of="what Airflow does")
def test_a_stream_whose_watch_is_marked_goes_on_and_tells_so_and_a_cleared_run_begins_it_again(
    harsh: HarshAirflow,
) -> None:
    generation = harsh.flow()
    harsh.mark(FLOWING, "follow", "success")
    harsh.wait(lambda: UNWATCHED in harsh.log(FLOWING, "follow"), "that it is told")
    events = harsh.store.events(PipelineName(FLOWING))
    assert (events[0].level, events[0].text) == ("warning", UNWATCHED)
    harsh.wait(lambda: harsh.run_state(FLOWING) == "success", "the end of the run")
    harsh.flows_equal()
    assert harsh.state(FLOWING).generation == generation
    harsh.clear(FLOWING)
    harsh.await_watched(than=generation)
    harsh.flows_equal()
    harsh.flows_alone()


@pytest.mark.sample(3, of="what Airflow does")
def test_a_stream_goes_on_without_the_state_store_and_without_its_dag_file(
    harsh: HarshAirflow,
) -> None:
    generation = harsh.flow()
    began = time.monotonic()
    harsh.state_way.fault = Fault(refuse=True)
    harsh.state_way.cut()
    file = harsh.folder / "cdc.py"
    away = file.rename(file.with_suffix(".away"))
    dag = f"/api/v2/dags/{FLOWING}__sync"
    harsh.wait(lambda: bool(harsh.airflow.get(dag)["is_stale"]), "that the DAG is gone")
    harsh.flows_equal()
    away.rename(file)
    harsh.wait(lambda: not harsh.airflow.get(dag)["is_stale"], "that the DAG is back")
    time.sleep(max(0.0, began + STALE_S + 3 - time.monotonic()))
    harsh.state_way.fault = NONE
    harsh.wait(lambda: harsh.is_leased(FLOWING), "the lease")
    time.sleep(3)  # in which its watcher looks
    harsh.await_watched()
    harsh.flows_equal()
    harsh.flows_alone()
    assert harsh.state(FLOWING).generation == generation
    assert "CDC-STA-001 the state store did not answer" in harsh.log(FLOWING, "follow")
