"""A small shop on real servers, and its DAG run by a real Airflow in this process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

from airflow_cdc_provider.operators.dags import sync_dag
from tests.servers.accounts import Account, least_privileged, sink_account, source_account

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow.sdk import DAG

    from tests.servers.given import SqlServer

PIPELINE = """
pipeline: {name}
source: {{conn_id: shop_source, tables: ["{source}.orders", "{source}.c*"], server_id: 62000-62009}}
sink: {{conn_id: shop_sink, route: {{"{source}.*": "{sink}.*"}}}}
state: {{conn_id: shop_state}}
snapshot: {{split_rows: 400, max_connections: 2}}
stream: {{mode: {mode}}}
spark: {{always: true, conf: {{spark.master: "local[2]", spark.ui.enabled: false}}}}
"""
TABLES = ("orders", "customers")
ROWS = 3000


@dataclass
class Shop:
    """Two databases and the pipeline file between them."""

    source: SqlServer
    sink: SqlServer
    source_database: str
    sink_database: str
    folder: Path
    name: str
    reads: Account
    writes: Account

    def fill(self) -> None:
        """Make the source's tables, with more rows than one split holds."""
        for sql in (
            "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), UNIQUE (name))",
            "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, total DECIMAL(9,2))",
        ):
            self.source.execute(sql, database=self.source_database)
        numbers = range(1, ROWS + 1)
        customers = ", ".join(f"({i}, 'customer {i}')" for i in numbers)
        orders = ", ".join(f"({i}, {1 + i % 100}, {i} / 7)" for i in numbers)
        for table, rows in (("customers", customers), ("orders", orders)):
            self.source.execute(f"INSERT INTO {table} VALUES {rows}", database=self.source_database)

    def change(self, round_: int) -> None:
        """Insert, update, delete and move keys."""
        for sql in (
            f"INSERT INTO orders VALUES ({100_000 + round_}, 1, {round_})",
            f"UPDATE orders SET total = total + 1 WHERE id % 50 = {round_}",
            f"DELETE FROM orders WHERE id = {10 + round_}",
            f"UPDATE customers SET id = id + 1000000 WHERE id = {20 + round_}",
        ):
            self.source.execute(sql, database=self.source_database)

    def write_pipeline(self, mode: str = "bounded") -> Path:
        """Write the pipeline file."""
        path = self.folder / f"{self.name}.yaml"
        text = PIPELINE.format(
            name=self.name, source=self.source_database, sink=self.sink_database, mode=mode
        )
        path.write_text(text, encoding="utf-8")
        return path

    def connections(self) -> dict[str, str]:
        """Return the environment in which Airflow finds the pipeline's connections."""
        return {
            "AIRFLOW_CONN_SHOP_SOURCE": self.reads.dsn,
            "AIRFLOW_CONN_SHOP_SINK": self.writes.dsn,
            "AIRFLOW_CONN_SHOP_STATE": f"sqlite:///{self.folder}/state.db",
            "AIRFLOW__CDC__JOB_LOG_FOLDER": str(self.folder / "jobs"),
        }

    def rows(self, server: SqlServer, table: str) -> list[Any]:
        """Return all of a table."""
        database = self.source_database if server is self.source else self.sink_database
        return server.execute(f"SELECT * FROM {table} ORDER BY id", database=database)

    def is_equal(self) -> bool:
        """Compare source and sink in full, without the product's help."""
        return all(self.rows(self.source, name) == self.rows(self.sink, name) for name in TABLES)


@contextmanager
def open_shop(source: SqlServer, sink: SqlServer, folder: Path, name: str) -> Iterator[Shop]:
    """Make a shop on two servers, with the environment in which Airflow finds them."""
    here, there = f"{name}_source", f"{name}_copy"
    accounts = source_account(source, here), sink_account(sink, there)
    shop = Shop(source, sink, here, there, folder, name, *accounts)
    with least_privileged(*accounts), pytest.MonkeyPatch.context() as patch:
        for variable, value in shop.connections().items():
            patch.setenv(variable, value)
        source.execute(f"CREATE DATABASE {shop.source_database}")
        try:
            shop.fill()
            yield shop
        finally:
            source.execute(f"DROP DATABASE {shop.source_database}")
            sink.execute(f"DROP DATABASE IF EXISTS {shop.sink_database}")


def known_dag(path: Path) -> DAG:
    """Make a pipeline's DAG and store it where Airflow expects a DAG to be before it runs."""
    return known(sync_dag(path, default_args={"retry_delay": 0, "retries": 1}))


def known(dag: DAG) -> DAG:
    """Store a DAG where Airflow expects it to be before it runs."""
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    return dag
