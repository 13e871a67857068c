"""Sessions are the same on every server, and errors say what helps, never a password."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pymysql
import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    CdcError,
    IntegrityError,
    LogPurgedError,
    RefusedError,
    RetryableError,
    RowRefusedError,
    SinkBusyError,
    SinkUnreachableError,
    SourceIdentityError,
    SourceUnreachableError,
)
from airflow_cdc_provider.systems.mysql.server.connection import (
    RawConnection,
    Role,
    connect,
    query,
    translated,
)
from tests.servers.accounts import least_privileged, source_account
from tests.servers.given import SqlServer
from tests.servers.throwaway import ThrowawayServer
from tests.systems.mysql.sessions import BOTH_FAMILIES, sink, source

PLANTED = "Gänse+füßchen/?#%"
FULL_PACKET = 0xFFFFFF


@pytest.fixture(params=BOTH_FAMILIES)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, SqlServer)
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(server)


# What a server's administrator may have set for all sessions, and the value that ours must have.
DEFAULTS = {
    "sql_mode": (
        "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION",
    ),
    "time_zone": ("'+05:00'", "+00:00"),
    "autocommit": (0, 1),
    "completion_type": ("'CHAIN'", "NO_CHAIN"),
    "sql_select_limit": (2, 2**64 - 1),
    "sql_big_selects": (0, 1),
    "sql_quote_show_create": (0, 1),
    "sql_auto_is_null": (1, 0),
    "net_read_timeout": (1, 3600),
    "net_write_timeout": (1, 3600),
    "wait_timeout": (5, 28800),
}
SINK_DEFAULTS = {"unique_checks": (0, 1), "sql_safe_updates": (1, 0), "sql_notes": (0, 1)}


@contextmanager
def set_globally(server: SqlServer, values: dict[str, object]) -> Iterator[None]:
    """Set variables for the sessions to come, and set them back."""
    before = {name: server.execute(f"SELECT @@global.{name}")[0][0] for name in values}
    with ExitStack() as stack:
        for name, value in values.items():
            stack.callback(
                server.execute,
                f"SET SESSION {name} = DEFAULT, GLOBAL {name} = {_literal(before[name])}",
            )
            server.execute(f"SET GLOBAL {name} = {value}")
        yield


def _literal(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


@pytest.mark.parametrize("name", [*DEFAULTS, *SINK_DEFAULTS])
def test_a_session_depends_on_no_default_of_the_server(server: SqlServer, name: str) -> None:
    theirs, ours = {**DEFAULTS, **SINK_DEFAULTS}[name]
    opened = source if name in DEFAULTS else sink
    with set_globally(server, {name: theirs}), opened(server) as connection:
        (found,) = query(connection, f"SELECT @@session.{name}")[0]
    assert found == ours


@pytest.mark.parametrize("name", ["mysql_server", "mariadb_server"])
def test_a_session_may_read_longer_than_the_servers_own_limit(
    name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(name)
    limit: dict[str, object] = {"max_execution_time": 1}
    if name == "mariadb_server":
        limit = {"max_statement_time": 0.001}
    slow = "SELECT COUNT(*) FROM information_schema.columns a, information_schema.collations b"
    with set_globally(server, limit):
        with pytest.raises(pymysql.err.OperationalError, match=r"3024|1969"):
            server.execute(slow)
        with source(server) as connection:
            assert query(connection, slow)


def test_a_sinks_session_refuses_what_it_cannot_hold(server: SqlServer) -> None:
    with sink(server) as connection:
        mode, charset = query(connection, "SELECT @@sql_mode, @@character_set_results")[0]
    assert {"STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO"} <= set(mode.split(","))
    assert charset == "utf8mb4"


def test_rows_beyond_the_servers_own_limit_are_read(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        query(connection, f"INSERT INTO {database}.t VALUES (1), (2), (3)")
    with set_globally(server, {"sql_select_limit": 2}), source(server) as connection:
        assert len(query(connection, f"SELECT id FROM {database}.t")) == 3


def test_a_key_the_server_made_itself_is_seen_where_it_is_hidden(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    hidden = "show_gipk_in_create_table_and_information_schema"
    table = f"{mysql_database}.g"
    with source(mysql_server) as connection:
        query(connection, "SET SESSION sql_generate_invisible_primary_key = 1")
        query(connection, f"CREATE TABLE {table} (a INT)")
    with set_globally(mysql_server, {hidden: 0}), source(mysql_server) as connection:
        assert "my_row_id" in query(connection, f"SHOW CREATE TABLE {table}")[0][1]


def test_values_come_in_the_form_of_keys(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (d DATETIME(3), b BINARY(2), n DECIMAL(5,2))")
        query(connection, f"INSERT INTO {database}.t VALUES ('2024-02-31 00:00:00.5', x'01', 1.5)")
        row = query(connection, f"SELECT d, b, n, 7, 'ü' FROM {database}.t")[0]
    assert row == ("2024-02-31 00:00:00.500", b"\x01\x00", Decimal("1.50"), 7, "ü")


def test_a_password_with_any_characters_lets_in(mysql_server: SqlServer) -> None:
    mysql_server.execute("CREATE USER odd IDENTIFIED BY %s", [PLANTED])
    try:
        endpoint = Endpoint.parse(mysql_server.dsn(user="odd", password=PLANTED))
        connect(endpoint, purpose="test").close()
    finally:
        mysql_server.execute("DROP USER odd")


def test_a_refused_login_is_named_without_the_password(server: SqlServer) -> None:
    endpoint = replace(Endpoint.parse(server.dsn()), password=PLANTED)
    with pytest.raises(AccessDeniedError) as refused:
        connect(endpoint, purpose="snapshot reader")
    shown = str(refused.value) + repr(refused.value) + repr(endpoint)
    assert PLANTED not in shown
    assert "snapshot reader" in shown
    assert refused.value.__cause__ is None


def test_a_server_that_is_not_there_may_come_back() -> None:
    nobody = Endpoint(host="127.0.0.1", port=1, user="u", password=PLANTED)
    with pytest.raises(SourceUnreachableError):
        connect(nobody, purpose="test")
    with pytest.raises(SinkUnreachableError):
        connect(nobody, purpose="test", role=Role.SINK)


@pytest.mark.parametrize(
    ("number", "text", "role", "kind"),
    [
        (1213, "Deadlock found", Role.SINK, SinkBusyError),
        (1205, "Lock wait timeout", Role.SOURCE, RetryableError),
        (2013, "Lost connection", Role.SINK, SinkUnreachableError),
        (1290, "running with the --read-only option", Role.SINK, SinkUnreachableError),
        (1792, "in a READ ONLY transaction.", Role.SINK, SinkUnreachableError),
        (1290, "running with the --secure-file-priv option", Role.SINK, RefusedError),
        (1062, "Duplicate entry '1'", Role.SINK, RowRefusedError),
        (1236, "... the master has purged binary logs ...", Role.SOURCE, LogPurgedError),
        (1236, "a replica with the same server_uuid has connected", Role.SOURCE, RetryableError),
        (1236, "Slave has more GTIDs than the master has", Role.SOURCE, SourceIdentityError),
        (1236, "something new", Role.SOURCE, IntegrityError),
        (9999, "never seen", Role.SOURCE, IntegrityError),
        (1135, "Can't create a new thread (errno 11)", Role.SOURCE, SourceUnreachableError),
        (1135, "Can't create a new thread (errno 11)", Role.SINK, SinkUnreachableError),
        (3168, "Server isn't available", Role.SINK, SinkUnreachableError),
        (1047, "WSREP has not yet prepared node", Role.SINK, SinkUnreachableError),
        (1047, "Unknown command", Role.SINK, IntegrityError),
        (1041, "Out of memory", Role.SOURCE, RetryableError),
        (1020, "Record has changed since last read in table 't'", Role.SINK, SinkBusyError),
    ],
)
def test_errors_are_sorted_by_what_helps(
    number: int, text: str, role: Role, kind: type[CdcError]
) -> None:
    error = translated(pymysql.err.OperationalError(number, text), "here", role=role)
    assert type(error) is kind
    assert text in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("role", "way"),
    [(Role.SOURCE, "pipeline file's `tables`"), (Role.SINK, "`reset` with --table")],
)
def test_a_table_that_is_gone_is_told_with_its_way_back(role: Role, way: str) -> None:
    error = translated(pymysql.err.ProgrammingError(1146, "no such table"), "here", role=role)
    assert way in error.remedy
    assert error.risk.startswith("none: " if role is Role.SOURCE else "the table's rows")


def test_a_refused_statement_is_named_without_its_values(server: SqlServer) -> None:
    account = source_account(server)
    with (
        least_privileged(account),
        closing(connect(Endpoint.parse(account.dsn), purpose="test")) as connection,
    ):
        for ask in (partial(query, connection), RawConnection(connection).execute):
            with pytest.raises(AccessDeniedError) as denied:
                ask("SET GLOBAL max_connections = 12345, GLOBAL init_connect = 'planted'")
            assert "SET GLOBAL max_connections = ?, GLOBAL init_connect = ?" in denied.value.what
            assert not re.search("12345|planted", str(denied.value))


@pytest.mark.parametrize("spare", [1, 0, -1, -FULL_PACKET + 1, -FULL_PACKET])
def test_a_statement_of_any_size_arrives_whole(
    server: SqlServer, database: str, spare: int
) -> None:
    server.execute("SET GLOBAL max_allowed_packet = 1073741824")
    head, tail = f"INSERT INTO {database}.t VALUES ('".encode(), b"')"
    length = FULL_PACKET - 1 - len(head) - len(tail) - spare  # 1 for the command
    with sink(server) as connection:
        raw = RawConnection(connection, role=Role.SINK)
        raw.execute(f"CREATE TABLE {database}.t (v LONGBLOB)")
        raw.send_statement([head, bytearray(b"x") * length, memoryview(tail)])
        assert raw.read_outcome().affected_rows == 1
        assert query(connection, f"SELECT LENGTH(v) FROM {database}.t") == [(length,)]


def test_rows_are_loaded_from_memory_and_counted(server: SqlServer, database: str) -> None:
    buffers = [b"1\ta\n2\t", b"b\n", b"3\t" + b"z" * 2_500_000 + b"\n", b"3\tdouble\n"]
    with sink(server) as connection:
        raw = RawConnection(connection, role=Role.SINK)
        raw.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT)")
        outcome = raw.load_rows(f"LOAD DATA LOCAL INFILE 'm' INTO TABLE {database}.t", buffers)
        held = query(connection, f"SELECT COUNT(*), MAX(LENGTH(v)) FROM {database}.t")
    assert (outcome.affected_rows, outcome.warnings) == (3, 1)
    assert outcome.message.startswith("Records: 4  Deleted: 0  Skipped: 1")
    assert held == [(3, 2_500_000)]


def test_rows_that_fail_on_the_way_leave_nothing_behind(server: SqlServer, database: str) -> None:
    def broken() -> Iterator[bytes]:
        yield b"1\n"
        yield b"2\n" * 600_000
        raise ValueError("the rows end here")

    with sink(server) as connection:
        raw = RawConnection(connection, role=Role.SINK)
        raw.execute(f"CREATE TABLE {database}.t (id INT)")
        with pytest.raises(ValueError, match="end here"):
            raw.load_rows(f"LOAD DATA LOCAL INFILE 'm' INTO TABLE {database}.t", broken())
        assert not connection.open
    assert server.execute(f"SELECT COUNT(*) FROM {database}.t") == [(0,)]


def test_no_server_gets_a_file_of_this_machine(server: SqlServer, database: str) -> None:
    """A hostile server may answer any query by asking for a file."""
    server.execute(f"CREATE TABLE {database}.t (v TEXT)")
    statement = f"LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE {database}.t"
    with sink(server) as connection, pytest.raises(RefusedError, match="asked for a file"):
        RawConnection(connection, role=Role.SINK).start_query(statement)
    with source(server) as connection, pytest.raises(CdcError):
        query(connection, statement)
    assert server.execute(f"SELECT COUNT(*) FROM {database}.t") == [(0,)]


def test_a_connection_cut_in_a_result_is_not_its_end(server: SqlServer) -> None:
    with source(server) as connection:
        session = query(connection, "SELECT CONNECTION_ID()")[0][0]
        raw = RawConnection(connection)
        raw.start_query("SELECT REPEAT('x', 1000) FROM information_schema.COLUMNS")
        buffer = memoryview(bytearray(1 << 16))
        raw.recv_into(buffer[:10])
        server.execute(f"KILL {session}")

        def read_on() -> None:
            for _ in range(100_000):
                raw.recv_into(buffer)

        with pytest.raises(SourceUnreachableError):
            read_on()


def test_a_connection_is_usable_after_a_result_was_read_raw(server: SqlServer) -> None:
    with source(server) as connection:
        raw = RawConnection(connection)
        (field,) = raw.start_query("SELECT 'abc' AS name")
        buffer = memoryview(bytearray(1 << 16))
        have = raw.recv_into(buffer)
        while bytes(buffer[have - 5 : have - 4]) != b"\xfe":
            have += raw.recv_into(buffer[have:])
        raw.finish_result()
        assert field.name == "name"
        assert bytes(buffer[:8]).endswith(b"\x03abc")
        assert query(connection, "SELECT 1") == [(1,)]


def test_an_error_in_a_result_is_understood(server: SqlServer) -> None:
    with source(server) as connection:
        raw = RawConnection(connection)
        with pytest.raises(RefusedError, match="1064"):
            raw.start_query("SELEC 1")
        packet = b"\xff" + (1205).to_bytes(2, "little") + b"#HY000Lock wait timeout"
        assert type(raw.error_of(packet)) is RetryableError


@pytest.fixture
def tls_endpoint(mysql_server: SqlServer) -> Endpoint:
    """The server under the authority that signed its own generated certificate."""
    if not isinstance(mysql_server, ThrowawayServer):
        pytest.skip("the certificates of a given server are not known")
    authority = mysql_server.datadir / "ca.pem"
    if not authority.exists():
        pytest.skip("this server generated no certificates")
    return replace(Endpoint.parse(mysql_server.dsn()), ssl_ca=str(authority))


def test_raw_bytes_pass_through_tls_both_ways(tls_endpoint: Endpoint, mysql_database: str) -> None:
    endpoint = replace(tls_endpoint, ssl_verify_identity=False)
    opened = connect(endpoint, purpose="test", role=Role.SINK, local_infile=True)
    with closing(opened) as connection:
        assert query(connection, "SHOW SESSION STATUS LIKE 'Ssl_version'")[0][1].startswith("TLS")
        raw = RawConnection(connection, role=Role.SINK)
        raw.execute(f"CREATE TABLE {mysql_database}.t (v LONGTEXT)")
        rows = [b"y" * 3_000_000 + b"\n", b"z\n"]
        raw.load_rows(f"LOAD DATA LOCAL INFILE 'm' INTO TABLE {mysql_database}.t", rows)
        raw.send_statement([f"INSERT INTO {mysql_database}.t VALUES ('".encode(), b"x" * 99, b"')"])
        assert raw.read_outcome().affected_rows == 1
        raw.start_query(f"SELECT v FROM {mysql_database}.t")
        buffer, have = memoryview(bytearray(1 << 23)), 0
        while have < 5 or bytes(buffer[have - 5 : have - 4]) != b"\xfe":
            have += raw.recv_into(buffer[have:])
        raw.finish_result()
        assert bytes(buffer[:have]).count(b"y" * 1000) == 3000


def test_a_certificate_of_another_host_is_refused(tls_endpoint: Endpoint) -> None:
    with pytest.raises(RefusedError, match="ssl_verify_identity"):
        connect(tls_endpoint, purpose="test")


def test_an_unknown_certificate_authority_is_refused(mysql_server: SqlServer) -> None:
    """Asked for by an option on this machine, always off it."""
    endpoint = replace(
        Endpoint.parse(mysql_server.dsn()), ssl_ca="/etc/ssl/certs/ca-certificates.crt"
    )
    with pytest.raises(RefusedError, match="ssl_ca"):
        connect(endpoint, purpose="test")


def test_missing_certificate_files_are_named(mysql_server: SqlServer) -> None:
    endpoint = replace(Endpoint.parse(mysql_server.dsn()), ssl_ca="/nowhere/ca.pem")
    with pytest.raises(RefusedError, match="ssl_ca"):
        connect(endpoint, purpose="test")
