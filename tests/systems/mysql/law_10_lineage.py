"""What several tests need of `test_law_10_lineage`."""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from tests.servers.given import SqlServer
from tests.servers.replication import is_mariadb


def whole_position(server: SqlServer) -> MySqlPosition:
    """Ask a quiet server of either family for its place and its GTIDs."""
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        capabilities = read_capabilities(connection)
        place = log_end(connection, capabilities)
    if is_mariadb(server):
        told = server.execute("SELECT @@global.gtid_binlog_pos")[0][0]
        return MySqlPosition(capabilities.server_uuid, place, MariaDbGtidPosition.parse(told))
    told = server.execute("SELECT @@global.gtid_executed")[0][0]
    gtids = GtidSet.parse(told) if capabilities.has_gtids else None
    return MySqlPosition(capabilities.server_uuid, place, gtids)


def make_table(server: SqlServer) -> None:
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
