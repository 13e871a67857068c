"""Rows read again join the stream at its position: right at once, and never older than before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.given import SqlServer
from tests.systems.mysql.sink.join_behaviours import JoinBehaviours, MergedBehaviours
from tests.systems.mysql.sink.join_intervals import IntervalBehaviours
from tests.systems.mysql.sink.join_keys import KeyBehaviours
from tests.systems.mysql.sink.join_race import RaceBehaviours
from tests.systems.mysql.sink.join_writing import WritingBehaviours
from tests.systems.mysql.sink.joins import JoinWorld

Fresh = Callable[[SqlServer], str]


class OnMySql:
    @pytest.fixture
    def world(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, fresh_database: Fresh
    ) -> Iterator[JoinWorld]:
        made = JoinWorld(
            mysql_server, mysql_sink, fresh_database(mysql_server), fresh_database(mysql_sink)
        )
        with made.stack:
            yield made


class OnMariaDb:
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[JoinWorld]:
        databases = fresh_database(mariadb_server), fresh_database(mariadb_server)
        made = JoinWorld(mariadb_server, mariadb_server, *databases)
        with made.stack:
            yield made


class OnMySqlByInsert:
    @pytest.fixture
    def world(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, fresh_database: Fresh
    ) -> Iterator[JoinWorld]:
        databases = fresh_database(mysql_server), fresh_database(mysql_sink)
        made = JoinWorld(mysql_server, mysql_sink, *databases, local_files=False)
        with made.stack:
            yield made


class TestJoinsOnMySql(OnMySql, JoinBehaviours, KeyBehaviours, RaceBehaviours, WritingBehaviours):
    pass


class TestJoinsOnMariaDb(
    OnMariaDb, JoinBehaviours, KeyBehaviours, RaceBehaviours, WritingBehaviours
):
    pass


class TestIntervalsOnMySql(OnMySql, IntervalBehaviours):
    pass


class TestIntervalsOnMariaDb(OnMariaDb, IntervalBehaviours):
    pass


class TestJoinsOnMySqlByInsert(OnMySqlByInsert, WritingBehaviours):
    pass


class OnMySqlMerged:
    @pytest.fixture
    def world(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, fresh_database: Fresh
    ) -> Iterator[JoinWorld]:
        databases = fresh_database(mysql_server), fresh_database(mysql_sink)
        made = JoinWorld(mysql_server, mysql_sink, *databases, writers=2)
        with made.stack:
            yield made


class TestJoinsOnMySqlMerged(OnMySqlMerged, MergedBehaviours, RaceBehaviours):
    pass
