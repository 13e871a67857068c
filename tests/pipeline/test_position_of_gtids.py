"""A position of GTIDs alone has no place in the log but that of the splits whose H it covers.

So it is after a snapshot of a table whose keys are not compared in code: the stream starts at L.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import SnapshotRequiredError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.shop_steps import publish
from tests.pipeline.without_spark import options, refused_job
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.throwaway import MySqlServer

TO_ANONYMOUS = ("ON_PERMISSIVE", "OFF_PERMISSIVE")
TO_NAMED = ("ON_PERMISSIVE", "ON")


@pytest.fixture(scope="module")
def source() -> Iterator[SqlServer]:
    """A server of its own: its GTIDs are switched off and on."""
    with MySqlServer() as server:
        yield server


@pytest.fixture
def shop(
    source: SqlServer, mysql_sink: SqlServer, sink_database: str, tmp_path: Path
) -> Iterator[Shop]:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(name=f"gtids_{sink_database}", source="shop", sink=sink_database))
    environment = {"SHOP_DSN": source.dsn(), "DR_DSN": mysql_sink.dsn()}
    source.execute("DROP DATABASE IF EXISTS shop")
    source.execute("CREATE DATABASE shop")
    with ExitStack() as stack:
        made = Shop(source, mysql_sink, "shop", sink_database, path, environment, stack)
        made.at_source("CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY, note VARCHAR(40))")
        made.at_source("INSERT INTO orders VALUES ('a', 'one'), ('b', 'two')")
        yield made


def handed_off(shop: Shop) -> Run:
    """Hand off a snapshot of one split; its stream starts at GTIDs alone."""
    run = shop.run()
    plan(run)
    state = run.store.ensure(run.name)
    generation = state.generation
    run.store.move(run.name, generation, expected=state.phase, to=Phase.SNAPSHOT)
    (table,) = run.store.tables(run.name)
    schema = table.plan.schema
    splits = list(splits_between(schema.table, schema.primary_key, schema.key_kinds, []))
    run.store.add_splits(run.name, generation, splits)
    run.store.finish_planning(run.name, generation, schema.table)
    reader = SnapshotReader(run.servers.source, {schema.table: schema}, server_id=5_410)
    with closing(reader):
        publish(shop, run, [(split, reader.read(split)[1]) for split in splits])
    hand_off(run)
    stream = run.store.hand_off(run.name)
    assert stream is not None
    assert own(stream.start).binlog is None
    return run


def test_the_log_that_waits_is_at_most_what_the_server_keeps(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = handed_off(shop)
    assert small_work._log_left(run).startswith("at most ")
    monkeypatch.setattr(small_work, "SMALL_LOG_BYTES", 100)
    assert small_work._log_left(run) == ""


def switched(source: SqlServer, modes: tuple[str, ...]) -> None:
    for mode in modes:
        source.execute(f"SET GLOBAL gtid_mode = {mode}")


def test_no_job_starts_where_the_log_holds_nothing_behind_gtids(shop: Shop) -> None:
    handed_off(shop)
    done = run_until_caught_up(shop.run(), options(shop))
    assert (done.stream.outcome, done.stream.log) == ("finished", None)


def test_a_log_that_goes_on_in_a_new_file_needs_a_job(shop: Shop) -> None:
    run = handed_off(shop)
    shop.source.execute("FLUSH BINARY LOGS")
    refused_job(shop, run)


def test_a_log_that_was_begun_anew_with_as_many_transactions_needs_a_job(shop: Shop) -> None:
    """Its sets of GTIDs are equal; what they name is not."""
    run = handed_off(shop)
    (executed,) = shop.source.execute("SELECT @@global.gtid_executed")[0]
    shop.source.execute("RESET BINARY LOGS AND GTIDS")
    while shop.source.execute("SELECT @@global.gtid_executed")[0][0] != executed:
        shop.source.execute("CREATE DATABASE IF NOT EXISTS shop")
    refused_job(shop, run)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES ('c', 'three')",
        "CREATE TABLE others (id INT PRIMARY KEY)",
    ],
)
def test_a_transaction_behind_gtids_needs_a_job(shop: Shop, sql: str) -> None:
    run = handed_off(shop)
    shop.at_source(sql)
    refused_job(shop, run)


def test_a_server_that_may_log_without_gtids_needs_a_job(shop: Shop) -> None:
    run = handed_off(shop)
    try:
        switched(shop.source, TO_ANONYMOUS[:1])
        refused_job(shop, run)
    finally:
        switched(shop.source, TO_NAMED[1:])


def test_a_transaction_that_was_logged_without_a_gtid_needs_a_job(shop: Shop) -> None:
    """The set of what is executed does not know of it."""
    run = handed_off(shop)
    switched(shop.source, TO_ANONYMOUS)
    try:
        shop.at_source("INSERT INTO orders VALUES ('c', 'three')")
    finally:
        switched(shop.source, TO_NAMED)
    refused_job(shop, run)


def followed(run: Run) -> None:
    """Follow the log to its end, in this process."""
    generation = run.store.ensure(run.name).generation
    small_work._work(run, stream_spec(run.model, generation, mode="bounded"), threading.Event())


def unnamed(shop: Shop, *statements: str) -> None:
    """Write without GTIDs; before and after it they are on."""
    switched(shop.source, TO_ANONYMOUS)
    try:
        for statement in statements:
            shop.at_source(statement)
    finally:
        switched(shop.source, TO_NAMED)


@pytest.mark.parametrize("between", ["", "INSERT INTO orders VALUES ('b2', 'before')"])
@pytest.mark.parametrize("behind", ["", "INSERT INTO orders VALUES ('d', 'four')"])
def test_a_transaction_without_a_gtid_is_refused_where_the_log_is_read_by_gtids(
    shop: Shop, between: str, behind: str
) -> None:
    """A dump by GTIDs begins behind files that hold none."""
    run = handed_off(shop)
    if between:
        shop.at_source(between)
    unnamed(shop, "INSERT INTO orders VALUES ('c', 'three')")
    if behind:
        shop.at_source(behind)
    with pytest.raises(SnapshotRequiredError, match=r"without a GTID|anonymous transaction"):
        followed(run)
    assert ("d",) not in shop.sink_rows("SELECT id FROM orders")


def test_one_from_before_the_snapshot_is_read_over_once_a_gtid_came_after_it(shop: Shop) -> None:
    unnamed(shop, "INSERT INTO orders VALUES ('c', 'three')")
    shop.at_source("INSERT INTO orders VALUES ('d', 'four')")
    run = handed_off(shop)
    shop.source.execute("FLUSH BINARY LOGS")
    shop.at_source("INSERT INTO orders VALUES ('e', 'five')")
    followed(run)
    assert shop.sink_rows("SELECT id FROM orders") == [("e",)]  # the test publishes no rows


def test_files_without_a_transaction_are_no_harm(shop: Shop) -> None:
    run = handed_off(shop)
    for _ in range(3):
        shop.source.execute("FLUSH BINARY LOGS")
    switched(shop.source, TO_ANONYMOUS)
    switched(shop.source, TO_NAMED)
    shop.at_source("INSERT INTO orders VALUES ('c', 'three')")
    followed(run)
    assert shop.sink_rows("SELECT id FROM orders") == [("c",)]


def test_a_stream_that_has_nothing_to_read_is_not_behind(shop: Shop) -> None:
    """Nothing comes that would tell it of a place, and it is at the end of the log."""
    run = handed_off(shop)
    generation = run.store.ensure(run.name).generation
    spec, stop = stream_spec(run.model, generation, mode="continuous"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(small_work._work, run, spec, stop)
        try:
            wait_until(lambda: lag_us(run) == 0)
            # the test publishes no rows, and the stream brings none
            assert not verify(shop.run(), settle_s=20.0).equal
            shop.at_source("INSERT INTO orders VALUES ('c', 'three')")
            wait_until(lambda: shop.sink_rows("SELECT id FROM orders") == [("c",)])
        finally:
            stop.set()
        stream.result()


def lag_us(run: Run) -> int | None:
    told = run.store.stream(run.name)
    return None if told is None else told.lag_us
