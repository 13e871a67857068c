"""Small work is done without Spark, by the same rules, and leaves the same behind.

Spark's master answers nowhere here, so a job that is started is refused before its process is.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    SourceIdentityError,
    TableChangedError,
)
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions, stream_spec
from airflow_cdc_provider.pipeline.steps.one_spark import OneSpark
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.small_work import InProcessJob, done_here
from airflow_cdc_provider.pipeline.steps.start_jobs import (
    catch_up,
    snapshot,
    start_catching_up,
    start_snapshot,
)
from airflow_cdc_provider.views.status import status
from tests.pipeline.conftest import Shop
from tests.pipeline.one_spark import JVM, seen
from tests.pipeline.test_nothing_to_stream import shop
from tests.pipeline.without_spark import NO_SPARK, handed_off, of_another_log
from tests.servers.patience import wait_until

__all__ = ["shop"]

CHANGES = (
    "UPDATE orders SET note = 'changed' WHERE id = 2",
    "UPDATE orders SET note = 'changed' WHERE id = 1",
    "INSERT INTO orders VALUES (4, 'four')",
    "DELETE FROM orders WHERE id = 3",
)
_STEP = """\
import os, sys
from pathlib import Path
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_run
from airflow_cdc_provider.pipeline.steps import start_jobs
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
_, step, file, master = sys.argv
with open_run(load_pipeline(Path(file)), EnvironmentDsns(os.environ)) as run:
    getattr(start_jobs, step)(run, SparkOptions(master))
"""
OWNERSHIP = "airflow_cdc_provider.engine.ownership"


def begun(shop: Shop) -> Run:
    """Read the table and hand off."""
    run = shop.run()
    plan(run)
    snapshot(run, options(shop))
    hand_off(run)
    return run


def options(shop: Shop, *, always: bool = False) -> SparkOptions:
    return SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs", always=always)


def assert_equal(shop: Shop) -> None:
    query = "SELECT * FROM orders ORDER BY id"
    assert shop.sink_rows(query) == rows_at_source(shop, query)


def rows_at_source(shop: Shop, query: str) -> list[tuple[object, ...]]:
    return list(shop.source.execute(query, database=shop.database))


def notes_at_sink(shop: Shop) -> dict[object, object]:
    rows: list[tuple[object, object]] = [
        (row[0], row[1]) for row in shop.sink_rows("SELECT * FROM orders")
    ]
    return dict(rows)


def ended_well(run: Run) -> bool:
    """Tell whether the state is what a job leaves that has caught up."""
    found = status(run.store, run.name, now_us=run.store.now_us())
    stream = found.stream
    return (
        (found.state.phase, found.state.lease_until_us) == (Phase.STOPPED, 0)
        and found.is_consistent
        and stream is not None
        and (stream.lag_us, stream.generation) == (0, found.state.generation)
    )


@contextmanager
def locked(shop: Shop, rows: str) -> Iterator[Callable[[], None]]:
    """Keep rows of the sink's table locked; gives what lets go of them."""
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")  # gaps too
        connection.begin()
        connection.cursor().execute(f"SELECT * FROM orders {rows} FOR UPDATE")
        yield connection.rollback


def waits_at_sink(shop: Shop) -> bool:
    """Tell whether a statement on the sink's tables waits for a lock."""
    time.sleep(0.2)  # who asks more often than every 0.1 s always gets the same answer
    waiting = shop.sink.execute(
        "SELECT trx_query FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    return any(shop.target in str(row[0]) for row in waiting)


def in_small_batches(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write("stream: {max_batch: {changes: 1}}\n")


@contextmanager
def process(shop: Shop, step: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a step in a process of its own; it is killed at the end."""
    with (shop.path.parent / "step.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-c", _STEP, step, str(shop.path), NO_SPARK],
            env={**os.environ, **shop.environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def test_a_few_changes_are_brought_without_a_job(shop: Shop) -> None:
    begun(shop)
    for change in CHANGES:
        shop.at_source(change)
    run = shop.run()
    with seen(shop, JVM) as jvms:
        done = run_until_caught_up(run, options(shop))
    assert not jvms
    assert (done.stream.outcome, done.stream.log, done.stream.is_needed) == ("finished", None, True)
    assert (done.stream.result["changes"], done.stream.result["transactions"]) == (4, 4)
    assert_equal(shop)
    assert ended_well(run)
    assert not (shop.path.parent / "logs").exists()
    assert any("stream without Spark" in event.text for event in run.store.events(run.name))


def test_a_first_run_of_small_tables_needs_no_job(shop: Shop) -> None:
    shop.at_source("CREATE TABLE customers (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO customers VALUES (1), (2)")
    run = shop.run()
    with seen(shop, JVM) as jvms:
        done = run_until_caught_up(run, options(shop))
    assert not jvms
    assert done.snapshot is not None
    assert (done.snapshot.outcome, done.snapshot.result["rows"]) == ("finished", 5)
    said = [event.text for event in run.store.events(run.name) if "snapshot without" in event.text]
    assert len(said) == 1
    assert said[0].endswith(": at most about 20,000 rows of 2 tables to read")
    assert_equal(shop)
    assert ended_well(run)


def test_changes_of_others_move_the_position_without_a_job(
    shop: Shop, fresh_database: Callable[..., str]
) -> None:
    run = begun(shop)
    before = catch_up(run, options(shop)).result
    fresh_database(shop.source)
    after = catch_up(run, options(shop)).result
    assert (before["changes"], after["changes"]) == (0, 0)
    assert before["position"] != after["position"]
    assert ended_well(run)


def test_a_stream_that_is_killed_half_way_is_finished_by_the_next(shop: Shop) -> None:
    in_small_batches(shop)
    give_back(begun(shop))
    for change in CHANGES:
        shop.at_source(change)
    with locked(shop, "WHERE id = 1"), process(shop, "catch_up") as killed:
        wait_until(lambda: waits_at_sink(shop))
        killed.kill()
        killed.wait()
    notes = notes_at_sink(shop)
    assert (notes[2], notes[1], 3 in notes) == ("changed", "one", True)
    run = shop.run()
    assert run.store.ensure(run.name).phase is Phase.STREAMING
    assert run_until_caught_up(run, options(shop)).stream.result["changes"] == 3
    assert_equal(shop)
    assert ended_well(run)


def test_a_snapshot_that_is_killed_half_way_is_finished_by_the_next(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    give_back(run)
    with locked(shop, ""), process(shop, "snapshot") as killed:
        wait_until(lambda: waits_at_sink(shop))
        killed.kill()
        killed.wait()
    assert shop.sink_rows("SELECT * FROM orders") == []
    shop.at_source(CHANGES[0])
    run = shop.run()
    run_until_caught_up(run, options(shop))
    assert_equal(shop)
    assert ended_well(run)


def test_a_job_of_an_owner_that_was_followed_commits_nothing(shop: Shop) -> None:
    run = begun(shop)
    shop.at_source(CHANGES[0])
    former = run.store.ensure(run.name).generation
    hand_off(run)  # takes the pipeline over
    job = done_here(run, stream_spec(run.model, former, mode="bounded"), options(shop))
    assert job is not None
    with pytest.raises(FencedError):
        job.wait()
    assert shop.sink_rows("SELECT note FROM orders WHERE id = 2") == [("two",)]


def test_a_pause_ends_it_behind_the_transaction_it_is_at(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=OWNERSHIP)
    in_small_batches(shop)
    run = begun(shop)
    for change in CHANGES:
        shop.at_source(change)
    with locked(shop, "WHERE id = 1") as finish_removal:
        job = start_catching_up(run, options(shop))
        assert isinstance(job, InProcessJob)
        wait_until(lambda: waits_at_sink(shop))
        run.store.want(run.name, Wanted.STOP)
        wait_until(lambda: "asked to stop" in caplog.text)
        finish_removal()
        ended = job.wait()
    assert (ended.outcome, ended.result["changes"]) == ("stopped", 2)
    notes = notes_at_sink(shop)
    assert notes == {1: "changed", 2: "changed", 3: None}
    state = run.store.ensure(run.name)
    assert (state.phase, state.lease_until_us) == (Phase.STOPPED, 0)


def test_who_waits_and_is_interrupted_stops_it(shop: Shop) -> None:
    run = begun(shop)
    shop.at_source(CHANGES[1])
    with locked(shop, "WHERE id = 1") as finish_removal:

        def interrupt() -> None:
            if waits_at_sink(shop):
                finish_removal()
                raise KeyboardInterrupt

        job = start_catching_up(run, options(shop))
        assert isinstance(job, InProcessJob)
        with pytest.raises(KeyboardInterrupt):
            job.wait(on_tick=interrupt, every_s=0.05)
    state = run.store.ensure(run.name)
    assert (state.phase, state.lease_until_us) == (Phase.STOPPED, 0)
    assert_equal(shop)


def test_a_change_of_a_table_is_refused_behind_what_came_before_it(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write("schema_changes: {add_column: stop}\n")
    run = begun(shop)
    shop.at_source(CHANGES[0])
    shop.at_source("ALTER TABLE orders ADD COLUMN more INT")
    shop.at_source("UPDATE orders SET more = 1")
    with pytest.raises(TableChangedError, match="ALTER TABLE"):
        catch_up(run, options(shop))
    assert shop.sink_rows("SELECT note FROM orders ORDER BY id") == [
        ("one",),
        ("changed",),
        (None,),
    ]
    state = run.store.ensure(run.name)
    assert (state.phase, state.lease_until_us) == (Phase.FAILED, 0)
    assert TableChangedError.code in str(state.error)


@pytest.mark.parametrize("change", ["", CHANGES[0]])
def test_a_log_that_is_not_known_again_is_refused(shop: Shop, change: str) -> None:
    """Law 10 holds without Spark, too."""
    run = handed_off(shop, of_another_log)
    if change:
        shop.at_source(change)
    with pytest.raises(SourceIdentityError, match="not the one that was read"):
        catch_up(run, options(shop))
    assert shop.sink_rows("SELECT note FROM orders WHERE id = 2") == []
    assert run.store.ensure(run.name).phase is Phase.FAILED


def needs_job(run: Run, shop: Shop, step: Callable[..., object], *, always: bool = False) -> bool:
    with pytest.raises(CdcError) as refused:
        step(run, options(shop, always=always))
    return NO_SPARK.removeprefix("spark://") in str(refused.value)


def test_more_log_than_is_small_needs_a_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(shop)
    shop.at_source(CHANGES[0])
    monkeypatch.setattr(small_work, "SMALL_LOG_BYTES", 100)
    assert needs_job(run, shop, catch_up)


def test_log_that_is_gone_is_left_to_a_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(shop)
    shop.at_source(CHANGES[0])
    servers = replace(run.servers, source=replace(run.servers.source, port=1))
    assert needs_job(replace(run, servers=servers), shop, catch_up)


def test_more_rows_than_are_few_need_a_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ", ".join(f"({number}, NULL)" for number in range(4, 64))
    shop.at_source(f"INSERT INTO orders VALUES {numbers}")
    run = shop.run()
    plan(run)
    monkeypatch.setattr(small_work, "SMALL_ROWS", 40)
    monkeypatch.setattr(small_work, "_ROWS_A_LOOK", 10)
    assert needs_job(run, shop, snapshot)
    monkeypatch.setattr(small_work, "SMALL_ROWS", 60)
    assert snapshot(run, options(shop)) is not None


def test_rows_that_came_after_the_planning_are_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.path.write_text(shop.path.read_text() + "snapshot: {split_rows: 10}\n")
    run = shop.run()
    plan(run)
    generation = run.store.ensure(run.name).generation
    (table,) = run.store.tables(run.name)
    schema = table.plan.schema
    whole = splits_between(schema.table, schema.primary_key, schema.key_kinds, [])
    run.store.add_splits(run.name, generation, whole)
    run.store.finish_planning(run.name, generation, schema.table)
    numbers = ", ".join(f"({number}, NULL)" for number in range(4, 64))
    shop.at_source(f"INSERT INTO orders VALUES {numbers}")
    monkeypatch.setattr(small_work, "SMALL_ROWS", 40)
    monkeypatch.setattr(small_work, "_ROWS_A_LOOK", 10)
    assert needs_job(run, shop, snapshot)
    monkeypatch.setattr(small_work, "SMALL_ROWS", 60)
    assert snapshot(run, options(shop)) is not None


def test_more_tables_than_are_few_need_a_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.at_source("CREATE TABLE customers (id INT PRIMARY KEY)")
    run = shop.run()
    plan(run)
    monkeypatch.setattr(small_work, "SMALL_TABLES", 1)
    assert needs_job(run, shop, snapshot)


def test_rows_that_no_key_bounds_are_counted_one_by_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.at_source("CREATE TABLE sizes (size ENUM('s', 'm', 'l') PRIMARY KEY)")
    shop.at_source("INSERT INTO sizes VALUES ('s'), ('m'), ('l')")
    shop.at_source("CREATE TABLE keyless (n INT)")
    shop.at_source("INSERT INTO keyless VALUES (1), (1), (2)")
    run = shop.run()
    plan(run)
    monkeypatch.setattr(small_work, "SMALL_ROWS", 5)
    assert needs_job(run, shop, start_snapshot)
    monkeypatch.setattr(small_work, "SMALL_ROWS", 6)
    assert snapshot(run, options(shop)) is not None


def test_a_file_that_always_wants_spark_gets_it(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write("spark: {always: true}\n")
    run = begun(shop)
    shop.at_source(CHANGES[0])
    assert SparkOptions.of(run.model).always
    assert needs_job(run, shop, catch_up, always=True)


@pytest.mark.spark
def test_spark_and_no_spark_take_turns(shop: Shop) -> None:
    run = begun(shop)
    with OneSpark() as spark:
        for number, is_spark in enumerate((True, False, True, False)):
            shop.at_source(f"INSERT INTO orders VALUES ({10 + number}, 'x')")
            shop.at_source("UPDATE orders SET id = -id")
            turn = replace(options(shop), master="local[2]", always=is_spark)
            ended = catch_up(run, turn, start=spark.start)
            assert (ended.outcome, ended.log is None) == ("finished", not is_spark)
            assert ended.result["changes"] == 1 + 4 + number
            assert_equal(shop)
            assert ended_well(run)
