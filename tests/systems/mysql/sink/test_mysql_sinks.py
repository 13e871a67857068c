"""The sink behaviours on MySQL and MariaDB, with LOAD DATA LOCAL and without, and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_cdc_provider.core.jobspec import ApplyMode
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours, TransactionalBehaviours
from tests.behaviours.sink_world import SinkWorld, worlds
from tests.servers.given import SqlServer

Fresh = Callable[[SqlServer], str]


class MySqlByLoad:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mysql_sink, fresh_database(mysql_sink)))


class MySqlByInsert:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mysql_sink, fresh_database(mysql_sink), local_files=False))


class MariaDbByLoad:
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        yield from worlds(SinkWorld(mariadb_server, fresh_database(mariadb_server)))


class MariaDbByInsert:
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        database = fresh_database(mariadb_server)
        yield from worlds(SinkWorld(mariadb_server, database, local_files=False))


class MySqlMerged:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[SinkWorld]:
        database = fresh_database(mysql_sink)
        yield from worlds(SinkWorld(mysql_sink, database, apply=ApplyMode.MERGED, writers=3))


class TestSplitsOnMySqlByLoad(MySqlByLoad, SplitSinkBehaviours):
    pass


class TestSplitsOnMySqlByInsert(MySqlByInsert, SplitSinkBehaviours):
    pass


class TestSplitsOnMariaDbByLoad(MariaDbByLoad, SplitSinkBehaviours):
    pass


class TestSplitsOnMariaDbByInsert(MariaDbByInsert, SplitSinkBehaviours):
    pass


class TestChangesOnMySqlByLoad(MySqlByLoad, TransactionalBehaviours):
    pass


class TestChangesOnMySqlByInsert(MySqlByInsert, TransactionalBehaviours):
    pass


class TestChangesOnMariaDbByLoad(MariaDbByLoad, TransactionalBehaviours):
    pass


class TestChangesOnMariaDbByInsert(MariaDbByInsert, TransactionalBehaviours):
    pass


class TestChangesMergedOnMySql(MySqlMerged, ChangeSinkBehaviours):
    pass
