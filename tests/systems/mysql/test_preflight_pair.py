"""Preflight of what sizes, and both servers together, tell."""

from __future__ import annotations

import re
import time
from contextlib import closing
from decimal import Decimal

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.preflight.both_sides import (
    Clock,
    copied_bytes,
    free_of,
    read_clock,
    retention_findings,
)
from airflow_cdc_provider.systems.mysql.preflight.log_settings import log_findings
from airflow_cdc_provider.systems.mysql.preflight.source_tables import migration_findings
from airflow_cdc_provider.systems.mysql.server.capabilities import (
    Capabilities,
    Flavour,
    read_capabilities,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.preflights import preflight
from tests.systems.mysql.sessions import source

PLAIN = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP, TRIGGER"
DAY = 86400


def plans_of(server: SqlServer, database: str, sink: str, *names: str) -> tuple[TablePlan, ...]:
    tables = [TableId(database, name) for name in names]
    with source(server) as connection:
        schemas = read_schemas(connection, tables)
    return tuple(TablePlan.alike(schemas[t], TableId(sink, t.table), 0) for t in tables)


def named(found: tuple[Finding, ...], code: str) -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def with_settings(**settings: str) -> Capabilities:
    return Capabilities(Flavour.MYSQL, (9, 7, 4), "9.7.4", "uuid", 1, settings)


# --- the log's life and the snapshot's ----------------------------------------------------------


def test_a_log_kept_for_less_than_two_snapshots_is_warned_of_with_a_longer_life() -> None:
    kept_a_day = with_settings(binlog_expire_logs_seconds=str(DAY))
    (finding,) = retention_findings(kept_a_day, "source", 10_000_000 * DAY)
    assert (finding.code, finding.level) == ("source.retention_estimate", Level.WARN)
    assert "24.0 hours" in finding.observed
    assert finding.wanted == "48.0 hours"
    assert finding.fix == f"SET PERSIST binlog_expire_logs_seconds = {49 * 3600};"


def test_a_log_kept_for_longer_than_two_snapshots_or_for_ever_is_fine() -> None:
    size = 10_000_000 * DAY
    for settings in (
        {"binlog_expire_logs_seconds": str(2 * DAY)},
        {"binlog_expire_logs_seconds": "0"},
        {"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"},
    ):
        assert list(retention_findings(with_settings(**settings), "source", size)) == []


@pytest.mark.parametrize("name", ["max_binlog_total_size", "binlog_space_limit"])
def test_a_log_that_is_purged_by_its_size_is_warned_of(name: str) -> None:
    (finding,) = retention_findings(with_settings(**{name: "5000000000"}), "source", 0)
    assert finding.code == "source.log_size_limit"
    assert "5.0 GB" in finding.observed
    assert finding.fix == f"SET PERSIST {name} = 0;"
    assert list(retention_findings(with_settings(**{name: "0"}), "source", 0)) == []


def test_what_is_copied_is_measured_by_the_tables_of_the_plan(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    for name in ("small", "large"):
        mysql_server.execute(
            f"CREATE TABLE {mysql_database}.{name} (id INT AUTO_INCREMENT PRIMARY KEY, v CHAR(200))"
        )
    rows = ", ".join("('x')" for _ in range(5000))
    mysql_server.execute(f"INSERT INTO {mysql_database}.large (v) VALUES {rows}")
    mysql_server.execute(f"ANALYZE TABLE {mysql_database}.large, {mysql_database}.small")
    (small, large) = plans_of(mysql_server, mysql_database, "s", "small", "large")
    with source(mysql_server) as connection:
        assert copied_bytes(connection, ()) == 0
        assert copied_bytes(connection, [small]) < 100_000
        assert copied_bytes(connection, [small, large]) > 1_000_000


# --- clocks ---------------------------------------------------------------------------------------


def test_a_clock_is_ahead_by_no_more_than_is_sure() -> None:
    early = Clock(Decimal("1000.000000"), 50.0, 0.25)
    assert Clock(Decimal("1003.000000"), 53.0, 0.25).ahead_of(early) == 0.0
    assert Clock(Decimal("1013.000000"), 53.0, 0.25).ahead_of(early) == 9.5
    assert Clock(Decimal("993.000000"), 53.0, 0.25).ahead_of(early) == -9.5


def test_two_readings_of_one_servers_clock_do_not_differ(mysql_server: SqlServer) -> None:
    with source(mysql_server) as connection:
        clocks = [read_clock(connection) for _ in range(2)]
    assert clocks[1].ahead_of(clocks[0]) == pytest.approx(0.0, abs=0.01)


def test_a_sink_whose_clock_is_wrong_is_warned_of(mysql_server: SqlServer) -> None:
    """`init_connect` gives sessions of plain accounts another time than the server's.

    It stands still from a whole second on, so what is seen is up to a second more, and the time
    that the session takes to ask.
    """
    with MySqlServer({"init-connect": "SET timestamp = UNIX_TIMESTAMP() - 600"}) as sink:
        sink.execute("CREATE USER plain IDENTIFIED BY 'plain-password'")
        sink.execute(f"GRANT {PLAIN} ON *.* TO plain")
        began = time.monotonic()
        found = preflight(
            Endpoint.parse(mysql_server.dsn()),
            Endpoint.parse(sink.dsn("plain", "plain-password")),
            (),
        )
        (finding,) = named(found, "sink.clock")
        assert finding.level is Level.WARN
        behind = re.search(r"(\d+) s behind", finding.observed)
        assert behind is not None
        assert 599 <= int(behind[1]) <= 600 + 1 + time.monotonic() - began
        fine = preflight(Endpoint.parse(mysql_server.dsn()), Endpoint.parse(sink.dsn()), ())
        assert named(fine, "sink.clock") == []


# --- room -----------------------------------------------------------------------------------------


def test_free_room_is_that_of_the_innermost_mount() -> None:
    disks = [("/", 1), ("/var", 2), ("/var/lib/mysql", 3), ("/var/lib/my", 4)]
    assert free_of("/var/lib/mysql/", disks) == 3 * 1024
    assert free_of("/var/lib/other/", disks) == 2 * 1024
    assert free_of("/srv/mysql/", disks) == 1024
    assert free_of("/srv/mysql/", []) is None


def test_a_sink_that_shows_no_disk_is_not_guessed_about(
    mysql_server: SqlServer, mysql_sink: SqlServer, mariadb_server: SqlServer
) -> None:
    for sink in (mysql_sink, mariadb_server):
        found = preflight(Endpoint.parse(mysql_server.dsn()), Endpoint.parse(sink.dsn()), ())
        assert named(found, "sink.disk") == []


# --- foreign keys at the sink -----------------------------------------------------------------


def test_references_is_asked_for_where_a_foreign_key_is_copied_and_only_there(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    for definition in (
        "parent (id INT PRIMARY KEY)",
        "child (id INT PRIMARY KEY, p INT, CONSTRAINT fk_p FOREIGN KEY (p) REFERENCES parent (id))",
    ):
        mysql_server.execute(f"CREATE TABLE {mysql_database}.{definition}", database=mysql_database)
    mysql_sink.execute("CREATE USER lean IDENTIFIED BY 'lean-password'")
    try:
        for database in (sink_database, "airflow_cdc"):
            mysql_sink.execute(f"GRANT {PLAIN} ON {database}.* TO lean")

        def missing(*names: str) -> list[Finding]:
            plans = plans_of(mysql_server, mysql_database, sink_database, *names)
            there = Endpoint.parse(mysql_sink.dsn("lean", "lean-password"))
            found = preflight(Endpoint.parse(mysql_server.dsn()), there, plans)
            assert named(found, "sink.privileges") == []
            return named(found, "sink.references")

        assert missing("child") == []
        assert missing("parent") == []
        (finding,) = missing("parent", "child")
        assert finding.level is Level.BLOCK
        mysql_sink.execute(finding.fix)
        assert missing("parent", "child") == []
    finally:
        mysql_sink.execute("DROP USER lean")


def test_references_is_not_asked_for_a_foreign_key_that_is_there(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    for server, database in ((mysql_server, mysql_database), (mysql_sink, sink_database)):
        server.execute("CREATE TABLE parent (id INT PRIMARY KEY)", database=database)
        server.execute(
            "CREATE TABLE child (id INT PRIMARY KEY, p INT, "
            "CONSTRAINT fk_p FOREIGN KEY (p) REFERENCES parent (id))",
            database=database,
        )
    mysql_sink.execute("CREATE USER lean IDENTIFIED BY 'lean-password'")
    try:
        mysql_sink.execute(f"GRANT {PLAIN} ON *.* TO lean")
        found = preflight(
            Endpoint.parse(mysql_server.dsn()),
            Endpoint.parse(mysql_sink.dsn("lean", "lean-password")),
            plans_of(mysql_server, mysql_database, sink_database, "parent", "child"),
        )
        assert named(found, "sink.references") == []
    finally:
        mysql_sink.execute("DROP USER lean")


# --- what else a source may be --------------------------------------------------------------------


def test_work_tables_of_online_changes_are_named_beside_their_table() -> None:
    tables = [TableId("shop", n) for n in ("orders", "_orders_gho", "_orders_del", "_lines_new")]
    found = list(migration_findings([*tables, TableId("other", "_orders_new")]))
    assert {finding.subject for finding in found} == {"shop._orders_gho", "shop._orders_del"}
    assert {(finding.code, finding.level) for finding in found} == {("table.migration", Level.WARN)}


def test_a_replica_whose_own_replication_rests_is_warned_of(mysql_server: SqlServer) -> None:
    primary = Endpoint.parse(mysql_server.dsn())
    with MySqlServer() as replica:
        replica.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {primary.port},"
            f" SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}',"
            " SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
        )

        def found() -> list[Finding]:
            with closing(connect(Endpoint.parse(replica.dsn()), purpose="test")) as connection:
                capabilities = read_capabilities(connection, role=Role.SOURCE)
                return list(log_findings(connection, capabilities, "source"))

        (finding,) = named(tuple(found()), "source.replication_stopped")
        assert "receiver: No, applier: No" in finding.observed


def test_a_replica_that_is_late_on_purpose_or_leaves_something_out_is_warned_of() -> None:
    with MySqlServer() as replica:
        replica.execute(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_DELAY = 3600, "
            "SOURCE_AUTO_POSITION = 1"
        )
        replica.execute("CHANGE REPLICATION FILTER REPLICATE_DO_DB = (shop)")
        with closing(connect(Endpoint.parse(replica.dsn()), purpose="test")) as connection:
            capabilities = read_capabilities(connection, role=Role.SOURCE)
            found = tuple(log_findings(connection, capabilities, "source"))
    (late,) = named(found, "source.replication_delay")
    (filtered,) = named(found, "source.replication_filters")
    assert "3600" in late.observed
    assert "Replicate_Do_DB = shop" in filtered.observed
