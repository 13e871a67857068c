"""What several tests need of `test_mysql_sinks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.behaviours.sink_world import worlds
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld

Fresh = Callable[[SqlServer], str]


class MySqlByLoad:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[MySqlSinkWorld]:
        yield from worlds(MySqlSinkWorld(mysql_sink, fresh_database(mysql_sink)))


class MariaDbByInsert:
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[MySqlSinkWorld]:
        database = fresh_database(mariadb_server)
        yield from worlds(MySqlSinkWorld(mariadb_server, database, local_files=False))
