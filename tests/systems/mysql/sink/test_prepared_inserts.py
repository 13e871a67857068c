"""Rows written as executions of prepared INSERTs: all of them, by name when one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RowRefusedError
from tests.behaviours.sink_world import Row, insert, update, worlds
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld

pytestmark = pytest.mark.mysql

MANY: list[Row] = [(i, None if i % 7 == 0 else "öx" * (i % 101)) for i in range(2_345)]


@pytest.fixture(scope="module")
def narrow() -> Iterator[MySqlServer]:
    """A server of this module's own that takes packets of a megabyte and no LOAD DATA LOCAL."""
    with MySqlServer({"max-allowed-packet": 1 << 20, "local-infile": "OFF"}) as server:
        yield server


@pytest.fixture
def world(
    narrow: MySqlServer, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    yield from worlds(MySqlSinkWorld(narrow, fresh_database(narrow)))


def executions(sink: Any) -> int:
    return int(sink._store.session.rows("SHOW SESSION STATUS LIKE 'Com_stmt_execute'")[0][1])


def test_a_split_of_many_rows_arrives_by_executions_alone(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.splits()
    sent: list[bytes] = []
    send = sink._store.session.raw.send_statement

    def sending(parts: Any) -> None:
        sent.append(bytes(parts[0]))
        send(parts)

    monkeypatch.setattr(sink._store.session.raw, "send_statement", sending)
    world.publish(sink, world.split(), *MANY)
    assert world.held() == MANY
    assert executions(sink) > 0
    assert not any(part.startswith(f"INSERT INTO `{world.database}".encode()) for part in sent)


def test_the_next_split_uses_the_statements_of_the_last(world: MySqlSinkWorld) -> None:
    sink = world.splits()
    world.publish(sink, world.split(end=5_000), *MANY)
    kept = dict(sink._store.session._prepared)
    world.publish(sink, world.split(1, 5_000), *((i + 5_000, name) for i, name in MANY))
    assert [row[0] for row in world.held()] == [*range(2_345), *range(5_000, 7_345)]
    assert {sql: each.number for sql, each in kept.items()} == {
        sql: each.number for sql, each in sink._store.session._prepared.items()
    }


def test_a_row_refused_in_the_middle_of_an_execution_is_named(world: MySqlSinkWorld) -> None:
    rows = [*MANY, (10_000, "x" * 201)]
    with pytest.raises(RowRefusedError, match="key 10000"):
        world.publish(world.splits(), world.split(), *rows)
    assert world.held() == []
    with pytest.raises(RowRefusedError, match="Duplicate entry '1234'"):
        world.publish(world.splits(), world.split(), *MANY[:2_000], (1_234, "again"), *MANY[2_000:])
    assert world.held() == []


def test_rows_that_fill_a_packet_arrive_among_small_ones(world: MySqlSinkWorld) -> None:
    world.take_long_texts()
    rows = [(i, "x" * (1_000_000 if i in {5, 1_500} else i % 9_000)) for i in range(3_000)]
    world.publish(world.splits(), world.split(), *rows)
    assert world.held() == rows
    with pytest.raises(RowRefusedError, match="key 4000"):
        world.publish(world.splits(), world.split(), *rows, (4_000, "x" * (1 << 20)))
    assert world.held() == rows


def test_a_server_that_prepares_nothing_gets_text(
    world: MySqlSinkWorld, narrow: MySqlServer
) -> None:
    narrow.execute("SET GLOBAL max_prepared_stmt_count = 0")
    try:
        sink = world.splits()
        world.publish(sink, world.split(), *MANY)
        assert executions(sink) == 0
    finally:
        narrow.execute("SET GLOBAL max_prepared_stmt_count = DEFAULT")
    assert world.held() == MANY


def test_changes_of_many_rows_are_upserted_by_executions(world: MySqlSinkWorld) -> None:
    world.put((1, "before"))
    world.hand_off("orders")
    sink = world.changes()
    batch = world.batch(
        [update((1, "before"), (1, "after"))], [insert(*row) for row in MANY if row[0] > 1]
    )
    sink.apply(batch)
    assert world.held() == [(1, "after"), *MANY[2:]]
    count = sink._store._sessions[0].rows("SHOW SESSION STATUS LIKE 'Com_stmt_execute'")[0][1]
    assert int(count) > 0


def test_statements_held_at_the_server_are_few(world: MySqlSinkWorld) -> None:
    session = world.splits()._store.session
    for rows in range(1, 60):
        row = ",".join(["?"] * 1_000)
        session.prepared(
            f"DO {','.join(['COALESCE(' + row + ')'] * (rows % 3 + 1))}, {rows}".encode()
        )
    assert sum(each.parameters for each in session._prepared.values()) <= 32_768
    held = session.rows("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1]
    assert int(held) == len(session._prepared)
