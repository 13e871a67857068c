"""Shops that are brought up to date, once or for as long as a block lasts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.converging import (
    Convergence,
    Watcher,
    run_continuously,
    run_until_caught_up,
)
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from tests.beside import beside
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK


def options(shop: Shop) -> SparkOptions:
    return SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs")


def synced(shop: Shop) -> Convergence:
    run = shop.run()
    try:
        return run_until_caught_up(run, options(shop))
    finally:
        give_back(run)


def copied(shop: Shop) -> set[str]:
    run = shop.run()
    return {state.table.table for state in run.store.tables(run.name)}


@contextmanager
def in_a_thread(shop: Shop, work: Callable[[Run], object]) -> Iterator[Run]:
    """Work in a thread until the end of the block, where the pipeline is asked to stop."""
    run, failures = shop.run(), list[CdcError]()

    def attempt() -> None:
        try:
            work(run)
        except CdcError as failure:
            failures.append(failure)

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        yield run
    finally:
        run.store.want(run.name, Wanted.STOP)
        thread.join(timeout=120)
        run.store.want(run.name, Wanted.RUN)
        give_back(run)
    assert failures == []


def continuous(shop: Shop, said: list[str]) -> AbstractContextManager[Run]:
    """Stream in a thread until the end of the block."""
    watcher = Watcher(on_change=said.append)
    # the driver follows the log itself, and no Spark is started
    spark = replace(options(shop), master="local[1]")
    return in_a_thread(shop, lambda run: run_continuously(run, spark, watcher))


@contextmanager
def writing(shop: Shop, tables: tuple[str, ...]) -> Iterator[None]:
    """Create tables, and insert, update and delete in them from the first moment on."""
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    rng = random.Random(seed)
    with closing(shop.source.connect(database=shop.database)) as connection:
        cursor = connection.cursor()
        for table in tables:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)")
            cursor.execute(f"INSERT INTO {table} VALUES (-1, 0), (-2, 0)")

        def write() -> None:
            table, key = rng.choice(tables), rng.randrange(500)
            cursor.execute(f"REPLACE INTO {table} VALUES ({key}, {rng.randrange(9)})")
            cursor.execute(f"DELETE FROM {table} WHERE id = {rng.randrange(500)}")
            connection.commit()

        with beside(write, every_s=0.01):
            yield
