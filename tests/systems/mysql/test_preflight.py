"""Preflight finds everything at once and names the statement that mends it."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.columns.source_port import PreflightQuestion
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError, SchemaMovedError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.preflight import preflight as preflight_module
from airflow_cdc_provider.systems.mysql.preflight.log_settings import log_findings
from airflow_cdc_provider.systems.mysql.preflight.open_transactions import open_transactions
from airflow_cdc_provider.systems.mysql.preflight.preflight import source_look
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import table_facts
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.server.privileges import parse_grants
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.preflights import preflight
from tests.systems.mysql.sessions import source

NO_GTIDS: dict[str, str | int | None] = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


def codes(found: Collection[Finding], level: Level) -> set[str]:
    """Return the codes found at a level; each has only levels that it says it may have."""
    assert all(finding.level in finding.code.levels.split(", ") for finding in found)
    return {finding.code for finding in found if finding.level is level}


def plans_of(server: SqlServer, database: str, sink: str, *names: str) -> tuple[TablePlan, ...]:
    tables = [TableId(database, name) for name in names]
    with source(server) as connection:
        schemas = read_schemas(connection, tables)
    return tuple(TablePlan.alike(schemas[t], TableId(sink, t.table), 10_000_000) for t in tables)


def check(
    here: SqlServer, there: SqlServer, plans: tuple[TablePlan, ...], server_ids: range = range(0)
) -> tuple[Finding, ...]:
    return preflight(
        Endpoint.parse(here.dsn()), Endpoint.parse(there.dsn()), plans, server_ids=server_ids
    )


def log_codes(server: SqlServer, level: Level) -> set[str]:
    with source(server) as connection:
        found = list(log_findings(connection, read_capabilities(connection), "source"))
    return codes(found, level)


def test_servers_as_they_should_be_are_let_through(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v JSON)")
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    found = check(mysql_server, mysql_sink, plans, range(1, 3))
    assert not codes(found, Level.BLOCK)
    (mode,) = [f.observed for f in found if f.code == "source.watermark"]
    assert "gtid_executed" in mode


def test_mariadb_as_it_should_be_is_let_through(
    mariadb_server: SqlServer, mysql_sink: SqlServer, mariadb_database: str, sink_database: str
) -> None:
    mariadb_server.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY, v JSON)")
    plans = plans_of(mariadb_server, mariadb_database, sink_database, "t")
    found = check(mariadb_server, mysql_sink, plans)
    assert not codes(found, Level.BLOCK)
    (mode,) = [f.observed for f in found if f.code == "source.watermark"]
    assert "consistent_snapshot" in mode


def test_every_wrong_setting_is_named_with_its_statement() -> None:
    wrong: dict[str, str | int | None] = {
        **NO_GTIDS,
        "binlog-format": "MIXED",
        "binlog-row-image": "MINIMAL",
        "binlog-row-metadata": "MINIMAL",
        "binlog-row-value-options": "PARTIAL_JSON",
        "binlog-order-commits": "OFF",
        "binlog-expire-logs-seconds": 3600,
        "binlog-do-db": "shop",
        "log-replica-updates": "OFF",
    }
    blocking = {
        "source.binlog_format",
        "source.binlog_row_image",
        "source.binlog_row_metadata",
        "source.binlog_order_commits",
        "source.binlog_do_db",
    }
    with MySqlServer(wrong) as server:
        assert log_codes(server, Level.BLOCK) == blocking
        assert {"source.gtid_mode", "source.retention"} <= log_codes(server, Level.WARN)
        assert "source.binlog_row_value_options" in log_codes(server, Level.INFO)
        with source(server) as connection:
            found = list(log_findings(connection, read_capabilities(connection), "source"))
        for statement in (f.fix for f in found if f.fix.startswith("SET PERSIST binlog")):
            server.execute(statement)
        assert log_codes(server, Level.BLOCK) == {"source.binlog_do_db"}


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (MySqlServer, "binlog_rows_query_log_events"),
        (MariaDbServer, "binlog_annotate_row_events"),
    ],
)
def test_a_log_without_the_statements_that_are_asked_for_is_told(
    kind: type[ThrowawayServer], setting: str
) -> None:
    asked = PreflightQuestion((), facts=("file", "query"))
    with kind({setting.replace("_", "-"): "OFF"}) as server:
        place = Endpoint.parse(server.dsn())
        (told,) = [f for f in source_look(place, asked).findings if f.code == "source.statements"]
        assert (told.level, told.observed) == (Level.WARN, f"{setting} = OFF")
        assert "source.statements" not in {
            f.code for f in source_look(place, PreflightQuestion(())).findings
        }
        server.execute(told.fix.partition(";")[0])
        assert "source.statements" not in {f.code for f in source_look(place, asked).findings}


def test_a_server_without_a_log_is_refused() -> None:
    with MySqlServer({"skip-log-bin": None, "log-bin": None, **NO_GTIDS}) as server:
        if "ON" in server.execute("SHOW VARIABLES LIKE 'log_bin'")[0]:
            pytest.skip("this server cannot be started without a log here")
        assert log_codes(server, Level.BLOCK) == {"source.watermark"}


def test_prepared_transactions_are_seen(mysql_server: SqlServer, mysql_database: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    with source(mysql_server) as connection, connection.cursor() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute(f"INSERT INTO {mysql_database}.t VALUES (1)")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")
        try:
            assert "source.prepared_transactions" in log_codes(mysql_server, Level.WARN)
        finally:
            cursor.execute("XA ROLLBACK 'x'")
    assert "source.prepared_transactions" not in log_codes(mysql_server, Level.WARN)


def test_texts_that_only_the_source_tells_apart_are_told(
    mariadb_server: SqlServer, mysql_sink: SqlServer, mariadb_database: str, sink_database: str
) -> None:
    db = mariadb_database
    mariadb_server.execute(
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, same VARCHAR(9) CHARACTER SET utf8mb4 "
        "COLLATE utf8mb4_unicode_ci UNIQUE, other VARCHAR(9) CHARACTER SET utf8mb4 "
        "COLLATE utf8mb4_general_nopad_ci UNIQUE)"
    )
    mariadb_server.execute(f"CREATE TABLE {db}.u (id INT PRIMARY KEY, s SET('a', '', 'b'))")
    plans = plans_of(mariadb_server, db, sink_database, "t", "u")
    found = check(mariadb_server, mysql_sink, plans)
    (told,) = (each for each in found if each.code == "sink.unique_collation")
    assert "utf8mb4_general_nopad_ci" in told.observed
    assert "table.type" in codes(found, Level.BLOCK)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_prepared_transactions_are_named_whatever_bytes_their_names_are(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    name = "X'ff00c3',X'fe',7"
    with source(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"XA START {name}")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
        cursor.execute(f"XA END {name}")
        cursor.execute(f"XA PREPARE {name}")
        try:
            found = log_findings(connection, read_capabilities(connection), "source")
            (told,) = [each for each in found if each.code == "source.prepared_transactions"]
            assert name in told.observed
            assert f"XA ROLLBACK {name};" in told.fix
        finally:
            cursor.execute(f"XA ROLLBACK {name}")


def test_tables_that_cannot_be_copied_are_all_named(
    mariadb_server: SqlServer, mysql_sink: SqlServer, mariadb_database: str, sink_database: str
) -> None:
    db = mariadb_database
    for definition in (
        "keyless (id INT)",
        "myisam (id INT PRIMARY KEY) ENGINE=MyISAM",
        "parent (id INT PRIMARY KEY)",
        "child (id INT PRIMARY KEY, p INT REFERENCES parent (id) ON DELETE CASCADE)",
        "unsplit (f FLOAT PRIMARY KEY)",
        "typed (id INT PRIMARY KEY, u UUID, g UUID AS (u))",
        "history (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    ):
        mariadb_server.execute(f"CREATE TABLE {db}.{definition}", database=db)
    names = ("keyless", "myisam", "parent", "child", "unsplit", "typed")
    plans = plans_of(mariadb_server, db, sink_database, *names)
    with source(mariadb_server) as connection:
        picked = table_facts(connection, [TableId(db, "history")]).values()
    found = preflight(
        Endpoint.parse(mariadb_server.dsn()),
        Endpoint.parse(mysql_sink.dsn()),
        plans,
        picked=picked,
    )
    blocked = {(f.code, f.subject.partition(".")[2]) for f in found if f.level is Level.BLOCK}
    assert blocked >= {
        ("table.engine", "myisam"),
        ("table.cascade", "child"),
        ("table.kind", "history"),
        ("sink.create_table", "typed"),
    }
    assert {"table.unsplit", "table.primary_key"} <= codes(found, Level.WARN)


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        (
            "s DATE NOT NULL, e DATE NOT NULL, id INT NOT NULL, PERIOD FOR p (s, e), "
            "UNIQUE (id, p WITHOUT OVERLAPS)",
            "table.period_key",
        ),
        ("`OVERLAPS` INT NOT NULL, UNIQUE (`OVERLAPS`)", ""),
    ],
)
def test_a_unique_key_about_periods_is_no_key(
    mariadb_server: SqlServer,
    mysql_sink: SqlServer,
    mariadb_database: str,
    sink_database: str,
    definition: str,
    code: str,
) -> None:
    mariadb_server.execute(f"CREATE TABLE {mariadb_database}.t ({definition})")
    plans = plans_of(mariadb_server, mariadb_database, sink_database, "t")
    found = codes(check(mariadb_server, mysql_sink, plans), Level.BLOCK)
    assert "table.period_key" in found if code else not found


def test_a_stored_column_in_the_unique_key_is_refused(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    definition = "id INT NOT NULL, twice INT AS (id * 2) STORED NOT NULL UNIQUE"
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t ({definition})")
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    found = [f for f in check(mysql_server, mysql_sink, plans) if f.level is Level.BLOCK]
    assert [(each.code, each.observed) for each in found] == [
        ("table.generated_key", "unique key twice holds generated columns: twice")
    ]


def test_tables_without_a_key_are_one_finding_with_both_ways_out(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    db = mysql_database
    for name in ("a", "b"):
        mysql_server.execute(f"CREATE TABLE {db}.{name} (v INT)")
    plans = plans_of(mysql_server, db, sink_database, "a", "b")
    findings = check(mysql_server, mysql_sink, plans)
    (found,) = [each for each in findings if each.code == "table.primary_key"]
    assert found.subject == f"{db}.a, {db}.b"
    assert found.fix.count("ALTER TABLE") == 2
    assert found.fix.endswith(f'exclude: ["{db}.a", "{db}.b"]')


def test_a_key_that_the_sink_would_compute_is_refused(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.t (a INT, g INT AS (a + 1) STORED, PRIMARY KEY (a, g))"
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    found = check(mysql_server, mysql_sink, plans)
    assert codes(found, Level.BLOCK) == {"table.generated_key"}


def test_cascades_that_are_logged_are_let_through(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    with source(mysql_server) as connection:
        if not read_capabilities(connection).logs_cascades:
            pytest.skip("this server does not log cascades")
    mysql_server.execute(f"CREATE TABLE {mysql_database}.p (id INT PRIMARY KEY)")
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.c (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        database=mysql_database,
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "p", "c")
    assert not codes(check(mysql_server, mysql_sink, plans), Level.BLOCK)


def test_a_sink_table_that_would_change_rows_is_refused(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (k VARCHAR(9) PRIMARY KEY, v INT)")
    mysql_sink.execute(
        f"CREATE TABLE {sink_database}.t (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, "
        "w INT NOT NULL, UNIQUE only_here (w))"
    )
    mysql_sink.execute(
        f"CREATE TRIGGER {sink_database}.tr BEFORE INSERT ON {sink_database}.t "
        "FOR EACH ROW SET NEW.w = 1 -- @airflow_cdc"
    )
    mysql_sink.execute(
        f"CREATE TRIGGER {sink_database}.asks BEFORE INSERT ON {sink_database}.t "
        "FOR EACH ROW IF @`airflow_cdc` IS NULL THEN SET NEW.w = 1; END IF"
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    found = check(mysql_server, mysql_sink, plans)
    assert codes(found, Level.BLOCK) == {
        "sink.column",
        "sink.key_collation",
        "sink.unique_key",
        "sink.trigger",
    }
    assert "sink.extra_column" in codes(found, Level.WARN)
    (fix,) = [finding.fix for finding in found if finding.code == "sink.trigger"]
    assert f"DROP TRIGGER `{sink_database}`.`tr`;" in fix
    (fix,) = [finding.fix for finding in found if finding.code == "sink.column"]
    assert f"`reset --table {mysql_database}.t`" in fix


def test_triggers_that_a_sink_would_hide_are_seen_once_the_fix_is_made(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    for server, database in ((mysql_server, mysql_database), (mysql_sink, sink_database)):
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
    mysql_sink.execute(
        f"CREATE TRIGGER {sink_database}.tr BEFORE INSERT ON {sink_database}.t "
        "FOR EACH ROW SET NEW.v = 1"
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    mysql_sink.execute("CREATE USER writer IDENTIFIED BY 'writer-password'")
    there = Endpoint.parse(mysql_sink.dsn(user="writer", password="writer-password"))
    try:
        for database in (sink_database, "airflow_cdc"):
            mysql_sink.execute(
                "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP "
                f"ON {database}.* TO writer"
            )
        found = preflight(Endpoint.parse(mysql_server.dsn()), there, plans)
        (lacking,) = (each for each in found if each.level is Level.BLOCK)
        assert (lacking.code, "TRIGGER" in lacking.fix) == ("sink.privileges", True)
        mysql_sink.execute(lacking.fix)
        found = preflight(Endpoint.parse(mysql_server.dsn()), there, plans)
        assert codes(found, Level.BLOCK) == {"sink.trigger"}
    finally:
        mysql_sink.execute("DROP USER writer")


def test_preflight_refuses_a_sink_table_exactly_where_the_sink_would(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, d DOUBLE, dc DECIMAL(10,4), "
        "dt DATETIME(6), t VARCHAR(10), f FLOAT, e ENUM('a','b'), b VARBINARY(5), n INT)"
    )
    mysql_sink.execute(
        f"CREATE TABLE {sink_database}.t (id INT PRIMARY KEY, d FLOAT, dc DECIMAL(10,2), "
        "dt DATETIME, t VARCHAR(10) CHARSET latin1, f FLOAT(7,3), e ENUM('b','a'), b BINARY(5), "
        "n INT NOT NULL)"
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    found = [f for f in check(mysql_server, mysql_sink, plans) if f.level is Level.BLOCK]
    assert [(f.code, f.observed) for f in found] == [
        ("sink.column_charset", "column t has the charset latin1, not utf8mb4"),
        ("sink.column_null", "column n does not take NULL"),
        ("sink.column_type", "column d is float, at the source it is double"),
        ("sink.column_type", "column dc is decimal(10,2), at the source it is decimal(10,4)"),
        ("sink.column_type", "column dt is datetime, at the source it is datetime(6)"),
        ("sink.column_type", "column f is float(7,3), at the source it is float"),
        ("sink.column_type", "column e is enum('b','a'), at the source it is enum('a','b')"),
        ("sink.column_type", "column b is binary(5), at the source it is varbinary(5)"),
    ]
    sink = open_sink("mysql", Endpoint.parse(mysql_sink.dsn()), Owner(PipelineName("p"), 1), ())
    with closing(sink.open_tables()) as builder, pytest.raises(RefusedError) as refused:
        builder.create_missing(plans)
    assert all(f"{sink_database}.t: {f.observed}" in refused.value.what for f in found)


def test_a_table_is_not_copied_onto_itself(mysql_server: SqlServer, mysql_database: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    plans = plans_of(mysql_server, mysql_database, mysql_database, "t")
    assert "sink.same_table" in codes(check(mysql_server, mysql_server, plans), Level.BLOCK)


def test_what_an_account_lacks_is_granted_by_the_fixes(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, v INT)")
    plans = plans_of(mysql_server, mysql_database, sink_database, "t")
    for server in (mysql_server, mysql_sink):
        server.execute("CREATE USER poor IDENTIFIED BY 'poor-password'")
    mysql_server.execute(f"GRANT SELECT (id) ON {mysql_database}.t TO poor")
    accounts = [
        Endpoint.parse(server.dsn(user="poor", password="poor-password"))
        for server in (mysql_server, mysql_sink)
    ]
    try:
        found = preflight(accounts[0], accounts[1], plans)
        assert codes(found, Level.BLOCK) == {
            "source.replication_slave",
            "source.replication_client",
            "source.select",
            "sink.privileges",
        }
        for finding in found:
            if finding.level is Level.BLOCK:
                server = mysql_sink if finding.code.startswith("sink") else mysql_server
                server.execute(finding.fix)
        assert codes(preflight(accounts[0], accounts[1], plans), Level.BLOCK) == set()
    finally:
        for server in (mysql_server, mysql_sink):
            server.execute("DROP USER poor")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} DROP COLUMN n",
        "ALTER TABLE {t} CHANGE n m INT",
        "DROP TABLE {t}",
        "RENAME TABLE {t} TO {t}_old",
    ],
)
def test_a_table_changed_after_the_look_at_the_catalogue_is_looked_at_again_and_not_refused(
    request: pytest.FixtureRequest,
    mysql_sink: SqlServer,
    fresh_database: Any,
    kind: str,
    statement: str,
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    database = fresh_database(server)
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT)")
    plans = plans_of(server, database, database, "t")
    server.execute(statement.format(t=f"{database}.t"))
    with pytest.raises(SchemaMovedError) as moved:
        source_look(Endpoint.parse(server.dsn()), PreflightQuestion(plans, ()))
    assert f"{database}.t is being changed right now" in moved.value.what
    assert moved.value.tables == (f"{database}.t",)


def test_a_table_that_was_away_for_a_moment_is_not_refused(
    mysql_server: SqlServer, mysql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{mysql_database}.t"
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    plans = plans_of(mysql_server, mysql_database, mysql_database, "t")
    mysql_server.execute(f"RENAME TABLE {table} TO {table}_new")

    def back_again(*args: Any, **options: Any) -> Any:
        mysql_server.execute(f"RENAME TABLE {table}_new TO {table}")
        return read_schemas(*args, **options)

    monkeypatch.setattr(preflight_module, "read_schemas", back_again)
    seen = source_look(Endpoint.parse(mysql_server.dsn()), PreflightQuestion(plans, ()))
    assert "source.select" not in codes(seen.findings, Level.BLOCK)


def test_the_sources_own_id_is_no_readers_id(
    mysql_server: SqlServer, mysql_sink: SqlServer
) -> None:
    (number,) = mysql_server.execute("SELECT @@server_id")[0]
    found = check(mysql_server, mysql_sink, (), range(number, number + 1))
    assert "source.server_id" in codes(found, Level.BLOCK)


def test_findings_are_plain_json_with_what_blocks_first() -> None:
    with MariaDbServer({"binlog-row-image": "NOBLOB"}) as server:
        found = check(server, server, ())
    forms = json.loads(json.dumps([finding.to_json() for finding in found]))
    assert forms[0]["level"] == "block"
    assert forms[0]["fix"].startswith("SET GLOBAL binlog_row_image = 'FULL';")
    assert [form["level"] for form in forms] == sorted(
        (form["level"] for form in forms), key=["block", "warn", "info"].index
    )


def test_grants_are_read_as_the_server_means_them() -> None:
    grants = parse_grants(
        [
            "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*A'",
            r"GRANT SELECT, INSERT (`a`, `b`), UPDATE ON `shop\_1`.* TO `u`@`%`",
            "GRANT SELECT ON `team%`.* TO `u`@`%`",
            "GRANT ALL PRIVILEGES ON `own`.`t` TO `u`@`%`",
            "GRANT `role`@`%` TO `u`@`%`",
            "REVOKE SELECT ON `team_secret`.* FROM `u`@`%`",
        ],
        "'u'@'%'",
    )
    assert grants.holds("REPLICATION CLIENT")
    assert grants.holds("SELECT", "shop_1", "t")
    assert not grants.holds("SELECT", "shopX1", "t")
    assert not grants.holds("INSERT", "shop_1", "t")
    assert grants.holds("UPDATE", "shop_1", "t")
    assert grants.holds("SELECT", "team42", "t")
    assert not grants.holds("SELECT", "team_secret", "t")
    assert grants.holds("DELETE", "own", "t")
    assert not grants.holds("DELETE", "own", "other")


def test_partitioned_tables_are_named(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY)")
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.p (id INT PRIMARY KEY) PARTITION BY KEY (id) PARTITIONS 2"
    )
    plans = plans_of(mysql_server, mysql_database, sink_database, "p", "t")
    with source(mysql_server) as connection:
        picked = table_facts(connection, [plan.schema.table for plan in plans]).values()
    endpoints = Endpoint.parse(mysql_server.dsn()), Endpoint.parse(mysql_sink.dsn())
    found = [f for f in preflight(*endpoints, plans, picked=picked) if f.code == "table.partitions"]
    assert [(f.level, f.subject) for f in found] == [(Level.WARN, f"{mysql_database}.p")]


@pytest.mark.parametrize("is_snapshot_done", [True, False])
def test_without_gtids_a_missing_right_is_said_to_refuse_what_is_read_later(
    is_snapshot_done: bool,
) -> None:
    with MySqlServer(NO_GTIDS) as server:
        server.execute("CREATE USER plain IDENTIFIED BY 'plain_secret'")
        server.execute("GRANT REPLICATION CLIENT ON *.* TO plain")
        plain = Endpoint.parse(server.dsn("plain", "plain_secret"))
        with closing(connect(plain, purpose="test")) as connection:
            capabilities = read_capabilities(connection)
            found = list(
                log_findings(connection, capabilities, "source", is_snapshot_done=is_snapshot_done)
            )
    (prepared,) = [each for each in found if each.lacks == "XA_RECOVER_ADMIN"]
    assert prepared.level is (Level.WARN if is_snapshot_done else Level.BLOCK)
    assert "requests such as `resync`, and tables that are added" in prepared.why
    (long,) = [each for each in found if each.lacks == "PROCESS"]
    assert long.level is Level.INFO
    (mode,) = [each.observed for each in found if each.code == "source.watermark"]
    assert mode == "low watermarks are taken by log_file_start"


def test_a_statement_of_somebody_that_innodb_trx_cannot_show_blocks_nothing(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=mysql_database)
    mysql_server.execute("INSERT INTO t VALUES (1, 'a')", database=mysql_database)
    with closing(mysql_server.connect(mysql_database)) as other, ThreadPoolExecutor(1) as pool:
        sql = "UPDATE t SET v = CONCAT('\N{GRINNING FACE}', SLEEP(3)) WHERE id = 1"
        running = pool.submit(other.cursor().execute, sql)
        time.sleep(0.5)
        with source(mysql_server) as connection:
            capabilities = read_capabilities(connection)
            looked = open_transactions(connection, capabilities, "source", are_awaited=False)
            found = [each for each in looked if "INNODB_TRX" in each.observed]
        running.result(30)
    assert [(each.code, each.level) for each in found] == [("source.unseen", Level.INFO)]
