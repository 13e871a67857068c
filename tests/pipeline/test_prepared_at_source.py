"""Prepared transactions of a source without GTIDs hold up a snapshot, and nothing after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.systems.mysql.source import watermarks
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.without_spark import handed_off
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.sessions import source

if TYPE_CHECKING:
    import pytest

CODE = "source.prepared_transactions"


@contextmanager
def prepared(server: SqlServer, database: str) -> Iterator[None]:
    with source(server) as connection, connection.cursor() as cursor:
        cursor.execute("XA START 'open'")
        cursor.execute(f"INSERT INTO {database}.orders VALUES (9, 'nine')")
        cursor.execute("XA END 'open'")
        cursor.execute("XA PREPARE 'open'")
        try:
            yield
        finally:
            cursor.execute("XA ROLLBACK 'open'")


def levels(run: Run) -> list[Level]:
    return [each.level for each in check(run).findings if each.code == CODE]


def test_prepared_transactions_block_a_snapshot_and_only_warn_a_stream(
    mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str], tmp_path: Path
) -> None:
    no_gtids = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    with MySqlServer(no_gtids) as server, ExitStack() as stack:
        sink = fresh_database(mysql_sink)
        server.execute("CREATE DATABASE shop")
        server.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(40))")
        server.execute("INSERT INTO shop.orders VALUES (1, 'one'), (2, 'two'), (3, NULL)")
        path = tmp_path / "shop.yaml"
        path.write_text(FILE.format(name=f"prepared_{sink}", source="shop", sink=sink))
        environment = {"SHOP_DSN": server.dsn(), "DR_DSN": mysql_sink.dsn()}
        shop = Shop(server, mysql_sink, "shop", sink, path, environment, stack)
        with prepared(server, "shop"):
            assert levels(shop.run()) == [Level.BLOCK]
        run = handed_off(shop)
        assert levels(run) == []
        with prepared(server, "shop"):
            assert levels(run) == [Level.WARN]


def test_a_first_snapshot_waits_for_a_transaction_that_stays_prepared_for_a_while(
    mariadb_server: SqlServer,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watermarks, "_XA_WAIT_S", 0.3)
    database, sink = fresh_database(mariadb_server), fresh_database(mysql_sink)
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(name=f"waits_{sink}", source=database, sink=sink))
    environment = {"SHOP_DSN": mariadb_server.dsn(), "DR_DSN": mysql_sink.dsn()}
    with ExitStack() as stack, source(mariadb_server) as connection:
        shop = Shop(mariadb_server, mysql_sink, database, sink, path, environment, stack)
        shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))")
        shop.at_source("INSERT INTO orders VALUES (1, 'one'), (2, 'two')")
        cursor = connection.cursor()
        for statement in (
            "XA START 'open'",
            f"INSERT INTO {database}.orders VALUES (9, 'nine')",
            "XA END 'open'",
            "XA PREPARE 'open'",
        ):
            cursor.execute(statement)
        waited: list[str] = []

        def committed_later(self: BackOff, failures: int) -> float:
            waited.append(f"failure {failures}")
            if len(waited) == 2:
                cursor.execute("XA COMMIT 'open'")
            return 0.1

        monkeypatch.setattr(BackOff, "wait_s", committed_later)
        catch_up(shop)
        assert waited == ["failure 1", "failure 2"]
        assert shop.sink_rows("SELECT id FROM orders ORDER BY id") == [(1,), (2,), (9,)]
