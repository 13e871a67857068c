"""What preflight looks at where both nodes are written: replication between them, and numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.preflight.edges import edge_findings
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from airflow_cdc_provider.systems.mysql.server.capabilities import (
    Capabilities,
    read_capabilities,
)
from airflow_cdc_provider.systems.mysql.server.connection import connect
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.read_logs import position_of
from tests.systems.mysql.splits import schema_of

WAIT_S = 30.0
FROM_MYSQL = (
    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, "
    "SOURCE_USER = 'root', SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = {offset}, "
    "SOURCE_AUTO_POSITION = 0, GET_SOURCE_PUBLIC_KEY = 1"
)
FROM_MARIADB = (
    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', "
    "MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {offset}, MASTER_USE_GTID = no"
)


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def kind(request: pytest.FixtureRequest) -> type[ThrowawayServer]:
    found: type[ThrowawayServer] = request.param
    return found


@pytest.fixture(scope="module")
def source(kind: type[ThrowawayServer]) -> Iterator[SqlServer]:
    with kind({"server_id": 7401}) as started:
        yield started


@pytest.fixture(scope="module")
def replica(kind: type[ThrowawayServer], source: SqlServer) -> Iterator[SqlServer]:
    """A server whose IO thread has read from the source; nothing is applied."""
    place = position_of(source).binlog
    assert place is not None
    with kind({"server_id": 7402}) as started:
        text = FROM_MARIADB if kind is MariaDbServer else FROM_MYSQL
        started.execute(text.format(port=source.port, file=place.file, offset=place.offset))
        is_mariadb = kind is MariaDbServer
        started.execute("START SLAVE IO_THREAD" if is_mariadb else "START REPLICA IO_THREAD")
        deadline = time.monotonic() + WAIT_S
        while not knows_source(started):
            assert time.monotonic() < deadline, "the replica does not connect"
            time.sleep(0.1)
        try:
            yield started
        finally:
            started.execute("STOP SLAVE" if is_mariadb else "STOP REPLICA")


def knows_source(server: SqlServer) -> bool:
    """Tell whether a replica has learned who its source is."""
    row = status_of(server)
    return bool(row.get("Source_UUID") or row.get("Master_Server_Id"))


def status_of(server: SqlServer) -> Mapping[str, object]:
    connection = connect(Endpoint.parse(server.dsn()), purpose="test")
    with closing(connection), connection.cursor() as cursor:
        capabilities = read_capabilities(connection)
        cursor.execute(capabilities.replica_status_statement)
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone() or (), strict=False))


def capabilities_of(server: SqlServer) -> Capabilities:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        return read_capabilities(connection)


def replicated(sink: SqlServer, source: SqlServer) -> list[Finding]:
    endpoint = Endpoint.parse(sink.dsn())
    found = [*edge_findings(endpoint, [], capabilities_of(source))]
    return [each for each in found if each.code is OwnLogCode.REPLICATED]


def test_native_replication_from_the_other_node_is_found(
    kind: type[ThrowawayServer], replica: SqlServer, source: SqlServer
) -> None:
    (found,) = replicated(replica, source)
    assert "server id 7401" in found.observed
    assert found.level is (Level.WARN if kind is MariaDbServer else Level.BLOCK)


def test_replication_from_another_server_is_no_finding(
    replica: SqlServer, source: SqlServer, mysql_server: SqlServer
) -> None:
    assert not replicated(replica, mysql_server)
    assert not replicated(source, replica)


def test_a_replica_with_filters_is_a_warning(
    kind: type[ThrowawayServer], replica: SqlServer, source: SqlServer
) -> None:
    if kind is MariaDbServer:
        return  # it warns without
    replica.execute("CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = (shop)")
    try:
        (found,) = replicated(replica, source)
    finally:
        replica.execute("CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = ()")
    assert found.level is Level.WARN


def test_nodes_that_may_give_out_the_same_numbers_are_a_warning(source: SqlServer) -> None:
    source.execute("CREATE DATABASE IF NOT EXISTS d")
    source.execute("CREATE TABLE IF NOT EXISTS d.counted (id INT AUTO_INCREMENT PRIMARY KEY)")
    schema = schema_of(source, TableId("d", "counted"))
    plan = TablePlan.alike(schema, schema.table, 0)
    endpoint = Endpoint.parse(source.dsn())
    (found,) = edge_findings(endpoint, [plan], None)
    assert (found.code, found.level) == (OwnLogCode.NUMBERS, Level.WARN)
    source.execute("SET GLOBAL auto_increment_increment = 2")
    try:
        assert not [*edge_findings(endpoint, [plan], None)]
    finally:
        source.execute("SET GLOBAL auto_increment_increment = 1")
