"""The ways to a low watermark that each server and account offer, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    SourceIdentityError,
    StillPreparedError,
    UnsupportedServerError,
)
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import WatermarkMode, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source import watermarks
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from airflow_cdc_provider.systems.mysql.source.watermarks import Watermarks, watermarks_of
from tests.servers.given import SqlServer
from tests.servers.prepared import finish_prepared
from tests.servers.throwaway import MySqlServer

NO_GTIDS: dict[str, str | int | None] = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@contextmanager
def watermarks_on(server: SqlServer, endpoint: Endpoint | None = None) -> Iterator[Watermarks]:
    with closing(connect(endpoint or Endpoint.parse(server.dsn()), purpose="test")) as connection:
        yield watermarks_of(connection, read_capabilities(connection))


def test_mysql_with_gtids_gives_a_set_and_no_place_as_l(mysql_server: SqlServer) -> None:
    with watermarks_on(mysql_server) as marks:
        low = marks.low()
        high = marks.high(low)
    executed = GtidSet.parse(mysql_server.execute("SELECT @@global.gtid_executed")[0][0])
    assert marks.mode is WatermarkMode.GTID_EXECUTED
    assert (low.binlog, low.gtids) == (None, executed)
    assert high.binlog is not None
    assert high.gtids is None


def test_mariadb_gives_one_place_as_l_and_h(mariadb_server: SqlServer) -> None:
    mariadb_server.execute("CREATE DATABASE IF NOT EXISTS marks")
    with watermarks_on(mariadb_server) as marks:
        low = marks.low()
        mariadb_server.execute("DROP DATABASE marks")
        assert marks.high(low) == low
        marks.release()
        later = marks.low()
        marks.release()
    assert marks.mode is WatermarkMode.CONSISTENT_SNAPSHOT
    assert isinstance(low.gtids, MariaDbGtidPosition)
    assert isinstance(later.gtids, MariaDbGtidPosition)
    assert later.covers(low)
    assert not low.covers(later)
    assert later.gtids.covers(low.gtids)


def test_mysql_without_gtids_gives_an_exact_place_to_who_may_ask_for_it() -> None:
    with MySqlServer(NO_GTIDS) as server:
        with watermarks_on(server) as marks:
            assert marks.mode is WatermarkMode.LOG_STATUS
            low = marks.low()
            assert marks.high(low) == low
        server.execute("CREATE USER plain IDENTIFIED BY 'plain_secret'")
        server.execute("GRANT REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO plain")
        plain = Endpoint.parse(server.dsn("plain", "plain_secret"))
        with watermarks_on(server, plain) as marks:
            assert marks.mode is WatermarkMode.LOG_FILE_START
            early = marks.low()
            assert early.binlog is not None
            assert early.binlog.offset == 4
            assert low.covers(early)
        for endpoint in (Endpoint.parse(server.dsn()), plain):
            with closing(MySqlLogEnd(endpoint, purpose="test")) as log_end:
                assert log_end.seen() == log_end.now()


def test_prepared_transactions_are_refused_where_there_are_no_gtids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watermarks, "_XA_WAIT_S", 0.3)
    with MySqlServer(NO_GTIDS) as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        with closing(server.connect()) as session, session.cursor() as cursor:
            for statement in (
                "XA START 'x'",
                "INSERT INTO d.t VALUES (1)",
                "XA END 'x'",
                "XA PREPARE 'x'",
            ):
                cursor.execute(statement)
        with (
            watermarks_on(server) as marks,
            pytest.raises(StillPreparedError, match="XA RECOVER"),
        ):
            marks.low()
        finish_prepared(server, "ROLLBACK", "'x'")
        with watermarks_on(server) as marks:
            marks.low()


def test_without_gtids_an_account_that_cannot_see_prepared_transactions_is_refused() -> None:
    with MySqlServer(NO_GTIDS) as server:
        server.execute("CREATE USER plain IDENTIFIED BY 'plain_secret'")
        server.execute("GRANT REPLICATION CLIENT ON *.* TO plain")
        plain = Endpoint.parse(server.dsn("plain", "plain_secret"))
        with (
            watermarks_on(server, plain) as marks,
            pytest.raises(AccessDeniedError, match="XA_RECOVER_ADMIN"),
        ):
            marks.low()


def test_a_server_that_commits_in_another_order_than_it_logs_is_refused() -> None:
    with (
        MySqlServer({"binlog_order_commits": "OFF"}) as server,
        watermarks_on(server) as marks,
        pytest.raises(UnsupportedServerError, match="binlog_order_commits"),
    ):
        marks.low()


def test_a_server_without_a_log_is_refused() -> None:
    with (
        MySqlServer({"skip-log-bin": None, "log-bin": "0"}) as server,
        pytest.raises(UnsupportedServerError, match="low watermark"),
        watermarks_on(server),
    ):
        pass


def test_another_server_behind_the_same_session_is_noticed(mysql_server: SqlServer) -> None:
    with closing(connect(Endpoint.parse(mysql_server.dsn()), purpose="test")) as connection:
        other = replace(
            read_capabilities(connection), server_uuid="11111111-1111-1111-1111-111111111111"
        )
        marks = watermarks_of(connection, other)
        with pytest.raises(SourceIdentityError, match="proxy"):
            marks.low()


def test_a_transaction_that_stays_prepared_stops_reading_mariadb_and_is_named(
    mariadb_server: SqlServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "_XA_WAIT_S", 0.3)
    mariadb_server.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    with (
        closing(mariadb_server.connect(mariadb_database)) as session,
        session.cursor() as cursor,
        watermarks_on(mariadb_server) as marks,
    ):
        for statement in ("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'"):
            cursor.execute(statement)
        cursor.execute("XA PREPARE 'x'")
        try:
            with pytest.raises(StillPreparedError, match=r"X'78',X'',1 among them"):
                marks.low()
        finally:
            cursor.execute("XA ROLLBACK 'x'")
        low = marks.low()
        assert marks.high(low) == low
        marks.release()
