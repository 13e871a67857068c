"""The source behaviours on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.behaviours.source_behaviours import SourceBehaviours
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer
from tests.systems.mysql.source_world import MySqlSourceWorld

Fresh = Callable[[SqlServer], str]


@pytest.fixture(scope="module")
def lonely_mysql() -> Iterator[SqlServer]:
    """A server whose log may be thrown away."""
    with MySqlServer() as server:
        yield server


@pytest.fixture(scope="module")
def lonely_mariadb() -> Iterator[SqlServer]:
    """A server whose log may be thrown away."""
    with MariaDbServer() as server:
        yield server


class TestMySqlAsASource(SourceBehaviours):
    @pytest.fixture
    def world(self, mysql_server: SqlServer, fresh_database: Fresh) -> MySqlSourceWorld:
        return MySqlSourceWorld(fresh_database(mysql_server), mysql_server)

    @pytest.fixture
    def lonely_world(self, lonely_mysql: SqlServer, fresh_database: Fresh) -> MySqlSourceWorld:
        return MySqlSourceWorld(fresh_database(lonely_mysql), lonely_mysql)


class TestMariaDbAsASource(SourceBehaviours):
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> MySqlSourceWorld:
        return MySqlSourceWorld(fresh_database(mariadb_server), mariadb_server)

    @pytest.fixture
    def lonely_world(self, lonely_mariadb: SqlServer, fresh_database: Fresh) -> MySqlSourceWorld:
        return MySqlSourceWorld(fresh_database(lonely_mariadb), lonely_mariadb)
