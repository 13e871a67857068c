"""Law 2: every split gets a fresh read view, opened after L and closed before H."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.server.connection import query
from tests.servers.given import SqlServer
from tests.systems.mysql.splits import Hooks, numbered, reader_of, runs, schema_of, split_of, tuples


def table_of(server: SqlServer, database: str) -> TableId:
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.execute(f"INSERT INTO {database}.t VALUES {numbered([1, 2, 8, 9])}")
    return TableId(database, "t")


def check_fresh_views(server: SqlServer, database: str) -> None:
    """Without backfill, only a view opened after L can show what was committed before it."""
    table = table_of(server, database)
    schema = schema_of(server, table)
    hooks = Hooks()
    with reader_of(server, schema, backfill=False, listener=hooks) as reader:
        rows, _ = reader.read(split_of(schema, None, (5,)))
        assert tuples(rows) == [(1, "v1"), (2, "v2")]
        server.execute(f"UPDATE {database}.t SET v = CONCAT(v, 'b')")
        hooks.actions["before_low"] = runs(server, f"INSERT INTO {database}.t VALUES (7, 'v7')")
        rows, _ = reader.read(split_of(schema, (5,), None, number=1))
        assert tuples(rows) == [(7, "v7"), (8, "v8b"), (9, "v9b")]


def test_law_2_a_split_sees_what_was_committed_before_its_own_l(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    check_fresh_views(mysql_server, mysql_database)


def test_law_2_a_split_on_mariadb_sees_what_was_committed_before_its_own_l(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    check_fresh_views(mariadb_server, mariadb_database)


def test_law_2_an_open_transaction_of_the_session_is_ended_before_the_rows_are_read(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = table_of(mysql_server, mysql_database)
    schema = schema_of(mysql_server, table)
    hooks = Hooks()
    with reader_of(mysql_server, schema, backfill=False, listener=hooks) as reader:
        reader.read(split_of(schema, None, (5,)))
        assert reader._session is not None
        session = reader._session.connection

        def open_view() -> None:
            query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            mysql_server.execute(f"UPDATE {table.database}.t SET v = 'new' WHERE id = 8")

        hooks.actions["before_low"] = open_view
        rows, _ = reader.read(split_of(schema, (5,), None))
        assert tuples(rows) == [(8, "new"), (9, "v9")]


def test_law_2_a_session_that_is_not_in_autocommit_mode_is_refused(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    table = table_of(mysql_server, mysql_database)
    schema = schema_of(mysql_server, table)
    hooks = Hooks()
    with reader_of(mysql_server, schema, listener=hooks) as reader:
        reader.read(split_of(schema, None, (5,)))
        assert reader._session is not None
        session = reader._session.connection
        hooks.actions["before_low"] = lambda: query(session, "SET autocommit = 0")
        with pytest.raises(IntegrityError, match="autocommit"):
            reader.read(split_of(schema, (5,), None))


def test_law_2_the_view_is_closed_before_the_log_is_replayed(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    table = table_of(mariadb_server, mariadb_database)
    schema = schema_of(mariadb_server, table)
    open_views: list[int] = []

    def count_views() -> None:
        counted = mariadb_server.execute("SELECT COUNT(*) FROM information_schema.innodb_trx")
        open_views.append(counted[0][0])

    with reader_of(mariadb_server, schema, listener=Hooks(after_high=count_views)) as reader:
        reader.read(split_of(schema))
    assert open_views == [0]
