"""MariaDB's log begun anew under the same file names is not taken for the former one."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.gtid import MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from airflow_cdc_provider.systems.mysql.source.log_start import check_start
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer
from tests.systems.mysql.read_logs import insert


def whole_position(server: SqlServer) -> MySqlPosition:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        capabilities = read_capabilities(connection)
        end = log_end(connection, capabilities)
    gtids = server.execute("SELECT @@global.gtid_binlog_pos")[0][0]
    return MySqlPosition(capabilities.server_uuid, end, MariaDbGtidPosition.parse(gtids))


def start_at(server: SqlServer, position: MySqlPosition) -> None:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        assert check_start(connection, read_capabilities(connection), position).by_file


def test_a_reset_mariadb_is_another_history_even_where_its_log_is_long_enough_again() -> None:
    with MariaDbServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        for key in range(20):
            insert(server, TableId("d", "t"), key)
        before = whole_position(server)
        start_at(server, before)
        server.execute("RESET MASTER")
        server.execute("INSERT INTO d.t VALUES (1000, REPEAT('x', 60000))")
        with pytest.raises(SourceIdentityError, match="reset"):
            start_at(server, before)


def test_a_place_is_good_right_behind_a_restart_of_the_server() -> None:
    with MariaDbServer() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        before = whole_position(server)
        server.restart()
        insert(server, TableId("d", "t"), 1)
        start_at(server, before)
        assert before.binlog is not None
        following = MySqlPosition(
            before.server_uuid,
            type(before.binlog)(before.binlog.file_number + 1, 4, before.binlog.base),
            before.gtids,
        )
        start_at(server, following)
        start_at(server, whole_position(server))
