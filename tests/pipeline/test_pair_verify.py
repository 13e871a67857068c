"""Verify on a pair: what is on its way between the nodes is no difference."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.pairs import Edge, MakePair, Node, Pair
from tests.servers.accounts import least_privileged, source_account
from tests.servers.given import SqlServer


def compared(edge: Edge, settle_s: float = 5.0) -> list[tuple[int, int, int, int]]:
    """Return of each table what is missing, extra, different and unsettled."""
    with edge.opened() as run:
        found = verify(run, settle_s=settle_s)
    return [(each.missing, each.extra, each.different, each.unsettled) for each in found.tables]


def unlogged(node: Node, sql: str) -> None:
    """Change rows at a node so that no edge brings it."""
    with closing(node.server.connect(node.database)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute(sql)
        connection.commit()


class Verified:
    @pytest.fixture
    def pair(
        self,
        mysql_server: SqlServer,
        mysql_sink: SqlServer,
        make_pair: MakePair,
    ) -> Pair:
        made = make_pair(mysql_server, mysql_sink, winner="one")
        made.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v INT)")
        made.one.execute("INSERT INTO items VALUES (1, 1), (2, 2), (3, 3)")
        made.begin()
        return made

    def test_what_has_not_come_back_yet_is_waited_for(self, pair: Pair) -> None:
        pair.two.execute("UPDATE items SET v = 20 WHERE id = 2")
        with pytest.raises(RetryableError, match="written at two did not come to one within 1 s"):
            compared(pair.there, settle_s=1.0)
        late = threading.Timer(1.0, pair.back.catch_up)
        late.start()
        assert compared(pair.there, settle_s=60.0) == [(0, 0, 0, 0)]
        late.join()

    def test_rows_that_differ_are_told_though_no_edge_commits_idle_log(self, pair: Pair) -> None:
        unlogged(pair.two, "UPDATE items SET v = 20 WHERE id = 2")
        unlogged(pair.two, "DELETE FROM items WHERE id = 3")
        unlogged(pair.two, "INSERT INTO items VALUES (4, 4)")
        assert compared(pair.there) == compared(pair.back) == [(1, 1, 1, 0)]

    def test_an_account_that_does_not_see_the_edge_back_compares_all_the_same(
        self, pair: Pair, caplog: pytest.LogCaptureFixture
    ) -> None:
        unlogged(pair.two, "UPDATE items SET v = 20 WHERE id = 2")
        account = source_account(pair.one.server, pair.one.database)
        with least_privileged(account):
            pair.there.environment["one_DSN"] = account.dsn
            assert compared(pair.there) == [(0, 0, 1, 0)]
        assert "let the source's account read airflow_cdc" in caplog.text


class TestMySqlToMySql(Verified):
    pass


class TestMySqlToMariaDb(Verified):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_json_that_one_node_prints_anew_is_compared_by_its_meaning(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair
    ) -> None:
        pair = make_pair(mysql_server, mysql_sink, winner="one")
        for node in (pair.one, pair.two):
            node.execute("CREATE TABLE docs (id INT PRIMARY KEY, doc JSON, note VARCHAR(9))")
        pair.one.execute("INSERT INTO docs VALUES (1, '{\"a\": 1}', 'one')")
        pair.begin()
        text = r'{"b":1,  "a":["\\u00e9", 1.50, {"c":null}]}'
        pair.two.execute(f"INSERT INTO docs VALUES (2, '{text}', 'two'), (3, '[1]', 'two')")
        pair.catch_up()
        assert compared(pair.there) == compared(pair.back) == [(0, 0, 0, 0)]
        unlogged(pair.two, "UPDATE docs SET doc = '[2]' WHERE id = 3")
        assert compared(pair.there) == compared(pair.back) == [(0, 0, 1, 0)]
