"""The sink behaviours on MySQL and MariaDB, with LOAD DATA LOCAL and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_world import SinkWorld, worlds
from tests.servers.given import SqlServer

Fresh = Callable[[SqlServer], str]


class TestMySqlSplitsByLoad(SplitSinkBehaviours):
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mysql_sink, fresh_database(mysql_sink)))


class TestMySqlSplitsByInsert(SplitSinkBehaviours):
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mysql_sink, fresh_database(mysql_sink), local_files=False))


class TestMariaDbSplitsByLoad(SplitSinkBehaviours):
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mariadb_server, fresh_database(mariadb_server)))


class TestMariaDbSplitsByInsert(SplitSinkBehaviours):
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        database = fresh_database(mariadb_server)
        yield from worlds(SinkWorld(mariadb_server, database, local_files=False))
