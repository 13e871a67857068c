"""The sink behaviours on MySQL and MariaDB, with LOAD DATA LOCAL and without, and merged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_cdc_provider.core.jobspec import ApplyMode
from tests.behaviours.sink_join_behaviours import JoinSinkBehaviours
from tests.behaviours.sink_world import worlds
from tests.behaviours.target_behaviours import TargetBehaviours
from tests.behaviours.unlike_target_behaviours import (
    UnlikeTargetBehaviours,
    UnlikeTargetJoinBehaviours,
    UnlikeTargetVerifyBehaviours,
)
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.change_behaviours import (
    MySqlChangeBehaviours,
    TransactionalBehaviours,
)
from tests.systems.mysql.sink.mysql_sinks import Fresh, MariaDbByInsert, MySqlByLoad
from tests.systems.mysql.sink.split_behaviours import MySqlSplitBehaviours
from tests.systems.mysql.sink.world import MySqlSinkWorld


class MySqlByInsert:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[MySqlSinkWorld]:
        yield from worlds(MySqlSinkWorld(mysql_sink, fresh_database(mysql_sink), local_files=False))


class MariaDbByLoad:
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[MySqlSinkWorld]:
        yield from worlds(MySqlSinkWorld(mariadb_server, fresh_database(mariadb_server)))


class MySqlMerged:
    @pytest.fixture
    def world(self, mysql_sink: SqlServer, fresh_database: Fresh) -> Iterator[MySqlSinkWorld]:
        database = fresh_database(mysql_sink)
        yield from worlds(MySqlSinkWorld(mysql_sink, database, apply=ApplyMode.MERGED, writers=3))


class TestSplitsOnMySqlByLoad(MySqlByLoad, MySqlSplitBehaviours):
    pass


class TestSplitsOnMySqlByInsert(MySqlByInsert, MySqlSplitBehaviours):
    pass


class TestSplitsOnMariaDbByLoad(MariaDbByLoad, MySqlSplitBehaviours):
    pass


class TestSplitsOnMariaDbByInsert(MariaDbByInsert, MySqlSplitBehaviours):
    pass


class TestChangesOnMySqlByLoad(MySqlByLoad, TransactionalBehaviours):
    pass


class TestChangesOnMySqlByInsert(MySqlByInsert, TransactionalBehaviours):
    pass


class TestChangesOnMariaDbByLoad(MariaDbByLoad, TransactionalBehaviours):
    pass


class TestChangesOnMariaDbByInsert(MariaDbByInsert, TransactionalBehaviours):
    pass


class TestChangesMergedOnMySql(MySqlMerged, MySqlChangeBehaviours):
    pass


class TestJoinsOnMySql(MySqlByLoad, JoinSinkBehaviours):
    pass


class TestJoinsOnMariaDb(MariaDbByInsert, JoinSinkBehaviours):
    pass


class TestJoinsMergedOnMySql(MySqlMerged, JoinSinkBehaviours):
    pass


class TestUnlikeTargetsOnMySqlByLoad(MySqlByLoad, UnlikeTargetBehaviours):
    pass


class TestUnlikeTargetsOnMariaDbByInsert(MariaDbByInsert, UnlikeTargetBehaviours):
    pass


class TestUnlikeTargetsMergedOnMySql(MySqlMerged, UnlikeTargetBehaviours):
    pass


class TestUnlikeTargetJoinsOnMySql(MySqlByLoad, UnlikeTargetJoinBehaviours):
    pass


class TestUnlikeTargetJoinsOnMariaDb(MariaDbByInsert, UnlikeTargetJoinBehaviours):
    pass


class TestTargetsOnMySql(MySqlByLoad, TargetBehaviours):
    pass


class TestTargetsOnMariaDb(MariaDbByInsert, TargetBehaviours):
    pass


class TestUnlikeTargetsComparedOnMySql(MySqlByLoad, UnlikeTargetVerifyBehaviours):
    pass


class TestUnlikeTargetsComparedOnMariaDb(MariaDbByInsert, UnlikeTargetVerifyBehaviours):
    pass
