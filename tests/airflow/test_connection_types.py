"""The test button of each connection type, on real servers: what stands in the way, and its fix."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.hooks.cdc import CdcHook, CdcSinkHook, CdcStateHook
from airflow_cdc_provider.state.migrate import HEAD
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.state.tables import VERSION_TABLE
from tests.servers.accounts import Account, least_privileged, sink_account, source_account
from tests.servers.given import SqlServer
from tests.servers.postgres import SqlDatabase

Press = Callable[..., tuple[bool, str]]


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Press:
    """Press the test button of a connection that has these fields."""

    def pressed(hook: type[CdcHook] | type[CdcStateHook], **fields: Any) -> tuple[bool, str]:
        form = {"conn_type": hook.conn_type, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps(form))
        return hook("tried").test_connection()

    return pressed


def at(server: SqlServer, **fields: Any) -> dict[str, Any]:
    where = {"host": server.host, "port": server.port}
    return {**where, "login": server.user, "password": server.password, **fields}


def as_account(account: Account, **fields: Any) -> dict[str, Any]:
    return at(account.server, **{"login": account.user, "password": account.password, **fields})


def revoke(account: Account, *privileges: str, level: str = "") -> None:
    """Take privileges away, at one level or wherever the account has them."""
    for right in account.rights:
        if right.privilege in privileges and level in {"", right.level}:
            account.revoke(right)


@pytest.mark.parametrize("hook", [CdcHook, CdcSinkHook])
def test_a_connection_without_a_host_says_so_and_nothing_of_schemes(
    hook: type[CdcHook], press: Press
) -> None:
    fine, said = press(hook, login="cdc")
    assert not fine
    assert "names no host" in said
    assert "://" not in said


def test_a_source_says_version_gtids_log_and_privileges(
    press: Press, mysql_server: SqlServer, mysql_database: str
) -> None:
    with least_privileged(source_account(mysql_server, mysql_database)) as (account,):
        fine, said = press(CdcHook, **as_account(account, schema=mysql_database))
    assert fine, said
    for fact in (
        f"MySQL {mysql_server.version}",
        "gtid_mode = ON",
        "binlog_format = ROW, binlog_row_image = FULL, binlog_row_metadata = FULL",
        "REPLICATION SLAVE, REPLICATION CLIENT on *.*",
        f"SELECT on {mysql_database}.*",
    ):
        assert fact in said


@pytest.mark.parametrize("hook", [CdcHook, CdcSinkHook])
def test_a_database_that_is_not_there_keeps_nobody_from_connecting(
    hook: type[CdcHook], press: Press, mysql_server: SqlServer
) -> None:
    fine, said = press(hook, **at(mysql_server, schema="never_made"))
    assert fine, said
    with closing(hook("tried").get_conn()) as connection:
        assert connection.cursor().execute("SELECT DATABASE()")


def test_a_source_of_mariadb_is_as_fit(
    press: Press, mariadb_server: SqlServer, mariadb_database: str
) -> None:
    with least_privileged(source_account(mariadb_server, mariadb_database)) as (account,):
        fine, said = press(CdcHook, **as_account(account, schema=mariadb_database))
    assert fine, said
    assert f"MariaDB {mariadb_server.version}" in said
    assert "GTIDs: MariaDB's own" in said


@pytest.mark.parametrize("hook", [CdcHook, CdcSinkHook])
def test_a_server_that_does_not_answer_is_told_as_the_test_of_the_connection(
    hook: type[CdcHook], press: Press
) -> None:
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        fine, said = press(hook, host="127.0.0.1", port=held.getsockname()[1], login="cdc")
    assert not fine
    assert "connecting for the test of the connection" in said
    assert "preflight" not in said


@pytest.mark.parametrize(
    ("without", "fix"),
    [
        ("REPLICATION SLAVE", "GRANT REPLICATION SLAVE ON *.* TO"),
        ("REPLICATION CLIENT", "GRANT REPLICATION CLIENT ON *.* TO"),
        ("SELECT", "GRANT SELECT ON `database`.* TO"),
    ],
)
def test_a_source_names_the_grant_that_lacks(
    without: str, fix: str, press: Press, mysql_server: SqlServer, mysql_database: str
) -> None:
    with least_privileged(source_account(mysql_server, mysql_database)) as (account,):
        revoke(account, without)
        fine, said = press(CdcHook, **as_account(account))
    assert not fine
    assert said.startswith("Not fit")
    assert fix in said


def test_a_source_names_the_setting_of_the_log_that_is_wrong(
    press: Press, mysql_server: SqlServer
) -> None:
    mysql_server.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        fine, said = press(CdcHook, **at(mysql_server))
    finally:
        mysql_server.execute("SET GLOBAL binlog_row_image = 'FULL'")
    assert not fine
    assert "binlog_row_image = MINIMAL" in said
    assert "SET PERSIST binlog_row_image = 'FULL';" in said


def test_a_sink_says_what_the_account_may_and_needs_no_log_of_its_own(
    press: Press, mysql_sink: SqlServer, sink_database: str
) -> None:
    with least_privileged(sink_account(mysql_sink, sink_database)) as (account,):
        fine, said = press(CdcSinkHook, **as_account(account, schema=sink_database))
    assert fine, said
    assert f"MySQL {mysql_sink.version}" in said
    assert f"on {sink_database}.*" in said
    assert "binlog" not in said


def test_a_sink_whose_database_is_made_on_first_use_is_fit(
    press: Press, mysql_sink: SqlServer
) -> None:
    with least_privileged(sink_account(mysql_sink, "not_there_yet")) as (account,):
        fine, said = press(CdcSinkHook, **as_account(account, schema="not_there_yet"))
    assert fine, said


@pytest.mark.parametrize("level", ["the ledger", "its database"])
def test_a_sink_names_what_lacks_on_the_ledger_and_on_its_database(
    level: str, press: Press, mysql_sink: SqlServer, sink_database: str
) -> None:
    name = "airflow_cdc" if level == "the ledger" else sink_database
    with least_privileged(sink_account(mysql_sink, sink_database)) as (account,):
        revoke(account, "DELETE", "CREATE", level=f"`{name}`.*")
        fine, said = press(CdcSinkHook, **as_account(account, schema=sink_database))
    assert not fine
    assert f"GRANT DELETE, CREATE ON `{name}`.* TO" in said


def test_a_sink_of_mariadb_is_as_fit(press: Press, mariadb_server: SqlServer) -> None:
    fine, said = press(CdcSinkHook, **at(mariadb_server))
    assert fine, said


def test_a_sink_that_is_read_only_is_not_fit(press: Press, mariadb_server: SqlServer) -> None:
    mariadb_server.execute("SET GLOBAL read_only = ON")
    try:
        fine, said = press(CdcSinkHook, **at(mariadb_server))
    finally:
        mariadb_server.execute("SET GLOBAL read_only = OFF")
    assert not fine
    assert "SET GLOBAL read_only = OFF" in said


def test_a_state_store_on_mysql_is_tried_and_left_as_it_was(
    press: Press, mysql_server: SqlServer, mysql_database: str
) -> None:
    fields = at(mysql_server, schema=mysql_database, extra={"kind": "mysql"})
    fine, said = press(CdcStateHook, **fields)
    assert fine, said
    assert "made on first use" in said
    assert mysql_server.execute(f"SHOW TABLES FROM {mysql_database}") == []
    open_store(mysql_server.dsn(database=mysql_database)).close()
    fine, said = press(CdcStateHook, **fields)
    assert fine, said
    assert f"of version {HEAD}" in said


def test_an_account_that_may_not_write_is_no_state_store(
    press: Press, mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute("CREATE USER looker@'127.0.0.1' IDENTIFIED BY 'only'")
    try:
        mysql_server.execute(f"GRANT SELECT ON {mysql_database}.* TO looker@'127.0.0.1'")
        fields = at(mysql_server, schema=mysql_database, extra={"kind": "mysql"})
        fields |= {"login": "looker", "password": "only"}
        assert "may not make tables" in press(CdcStateHook, **fields)[1]
        open_store(mysql_server.dsn(database=mysql_database)).close()
        fine, said = press(CdcStateHook, **fields)
    finally:
        mysql_server.execute("DROP USER looker@'127.0.0.1'")
    assert not fine
    assert "may not write to our tables" in said


def test_a_state_store_on_postgresql_is_tried_and_one_without_rights_told(
    press: Press, postgres_server: SqlDatabase, postgres_database: str
) -> None:
    fields = {
        "host": postgres_server.host,
        "port": postgres_server.port,
        "login": postgres_server.user,
        "password": postgres_server.password,
        "schema": postgres_database,
        "extra": {"kind": "postgresql"},
    }
    fine, said = press(CdcStateHook, **fields)
    assert fine, said
    assert f"postgresql {postgres_server.version.partition(' ')[0]}" in said
    postgres_server.execute("CREATE ROLE looker LOGIN PASSWORD 'only'")
    try:
        fine, said = press(CdcStateHook, **{**fields, "login": "looker", "password": "only"})
    finally:
        postgres_server.execute("DROP ROLE looker")
    assert not fine
    assert "may not make tables" in said


def test_a_file_of_sqlite_is_not_made_by_being_tried(press: Press, tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    fields = {"host": str(file), "extra": {"kind": "sqlite"}}
    fine, said = press(CdcStateHook, **fields)
    assert fine, said
    assert not file.exists()
    fine, said = press(CdcStateHook, host="/no/such/folder/state.db", extra={"kind": "sqlite"})
    assert not fine
    assert "make the folder /no/such/folder" in said


@pytest.mark.parametrize(
    ("version", "fits", "words"),
    [("0001", True, f"brings them to {HEAD}"), ("9999", False, "upgrade airflow-provider-cdc")],
)
def test_the_version_of_the_tables_is_told(
    version: str, fits: bool, words: str, press: Press, tmp_path: Path
) -> None:
    dsn = f"sqlite:///{tmp_path / 'state.db'}"
    open_store(dsn).close()
    with open_engine(dsn).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
    fields = {"host": str(tmp_path / "state.db"), "extra": {"kind": "sqlite"}}
    fine, said = press(CdcStateHook, **fields)
    assert (fine, words in said) == (fits, True), said


def test_airflows_own_metadata_is_no_state_store(press: Press, airflow_db: None) -> None:
    from airflow.settings import engine  # noqa: PLC0415 - read once Airflow is set up

    assert engine is not None
    file = str(engine.url.database)
    fine, said = press(CdcStateHook, host=file, extra={"kind": "sqlite"})
    assert not fine
    assert "Airflow's own metadata database" in said


def test_a_state_store_that_says_no_kind_is_refused_by_name(press: Press) -> None:
    fine, said = press(CdcStateHook, host="db1")
    assert not fine
    assert "which kind of database" in said


@pytest.mark.parametrize("hook", [CdcHook, CdcSinkHook, CdcStateHook])
def test_no_password_is_in_what_a_test_says(
    hook: type[CdcHook] | type[CdcStateHook], press: Press, mysql_server: SqlServer
) -> None:
    extra = {"kind": "mysql"} if hook is CdcStateHook else {}
    fields = at(mysql_server, schema="nowhere", extra=extra)
    fine, said = press(hook, **{**fields, "password": "wr0ng-secret"})
    assert not fine
    assert "wr0ng-secret" not in said
