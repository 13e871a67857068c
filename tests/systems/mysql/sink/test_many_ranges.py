"""Very many ranges are stored in few statements, and read once as long as they stay."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.core import codec
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.engine.ledger.state import stored_anew
from airflow_cdc_provider.systems.mysql.sink.ledger_store import MySqlLedgerStore
from tests.behaviours.sink_world import worlds
from tests.benchmarks.ranges import place_of, plans_of, reports_of
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld


@pytest.fixture
def world(
    family: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    server = request.getfixturevalue("mysql_sink" if family == "mysql" else "mariadb_server")
    yield from worlds(MySqlSinkWorld(server, fresh_database(server)))


def ranges(tables: int, splits: int) -> StreamSplit:
    finished = reports_of(plans_of(tables), splits)
    return hand_off([FinishedSplit.of(*each, backfilled=True) for each in finished])


@FAMILIES
def test_a_hand_off_of_many_tables_is_stored_in_few_statements(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ranges(2500, 1)
    ledger = world.ledger
    store = ledger._store
    assert isinstance(store, MySqlLedgerStore)
    statements: list[str] = []
    execute = store._session.execute

    def counting(sql: str, *more: Any) -> Any:
        statements.append(sql[:40])
        return execute(sql, *more)

    monkeypatch.setattr(store._session, "execute", counting)
    ledger.store_stream(stream)
    assert len(statements) < 20, statements
    assert ledger.stream() == stream


@FAMILIES
def test_many_ranges_are_read_once_as_long_as_they_stay(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ledger.store_stream(ranges(2, 1000 + secrets.randbelow(1000)))  # that nobody has read
    read: list[int] = []
    loads = json.loads

    def counting(text: str) -> Any:
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr(json, "loads", counting)
    first = world.ledger.stream()
    assert max(read) > 100_000
    read.clear()
    with closing(world.under(1).open_ledger()) as another:
        assert another.stream() == world.ledger.stream() == first
    assert max(read) < 1000
    (one, other) = plans_of(2)
    changed = world.ledger.change_tables(removed=[one.schema.table])
    assert [each.table for each in changed.tables] == [other.schema.table]
    assert world.ledger.stream() == changed
    assert max(read) > 100_000


def test_a_stream_of_many_tables_is_written_again_few_times_until_all_are_consistent() -> None:
    stored, written = ranges(100, 5), 0
    for number in range(1, 501):
        end = place_of(number)
        left = stored.passed(end).inconsistent
        assert left == tuple(p.table for p in stored.tables if p.is_inconsistent_at(end))
        if (anew := stored_anew(stored, end)) is not None:
            assert anew == stored.passed(end)
            stored, written = anew, written + 1
    assert stored.inconsistent == ()
    assert 2 < written < 10


@FAMILIES
def test_a_table_that_was_consistent_before_it_was_written_so_can_change_its_key(
    world: MySqlSinkWorld,
) -> None:
    """Its ranges are of no use then, and the log has other names."""
    stream = ranges(3, 4)
    world.ledger.store_stream(stream)
    world.ledger.pass_over(IdleRange(stream.start, place_of(5), only_ledgers=False))
    assert len(world.ledger.stream().inconsistent) == 2
    (first, *_) = plans_of(3)
    world.ledger.change_tables(added={TableId("shop", "later"): place_of(5)})
    with closing(world.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT s.split FROM airflow_cdc.stream_split s JOIN airflow_cdc.stream p ON "
            "s.pipeline = p.pipeline AND p.split = CONCAT('sha256:', s.digest) "
            "WHERE p.pipeline = %s",
            (str(world.pipeline),),
        )
        written = codec.stream_from_text(cursor.fetchone()[0])
    progress = written.progress_of(first.schema.table)
    assert progress is not None
    assert (progress.finished, progress.consistent_at) == ((), ())


@FAMILIES
def test_a_commit_logs_its_position_and_not_the_split_of_many_ranges(
    world: MySqlSinkWorld,
) -> None:
    stream = ranges(2, 3000)
    world.ledger.store_stream(stream)
    size = len(codec.stream_to_text(stream))
    assert size > 150_000
    before = logged(world.server)
    for number in (1, 2, 3):
        world.ledger.pass_over(IdleRange(stream.start, place_of(number), only_ledgers=False))
        stream = world.ledger.stream()
    assert 0 < logged(world.server) - before < 3 * 4_000


@FAMILIES
def test_splits_that_an_older_release_stored_in_its_rows_are_read_and_moved(
    world: MySqlSinkWorld,
) -> None:
    stream = ranges(3, 4)
    world.ledger.store_stream(stream)
    (stopped, *_) = plans_of(3)
    left = world.ledger.stop_tables([stopped.schema.table], StoredError.saying("for a test"))
    alone = world.ledger.stopped()
    mine = (str(world.pipeline),)
    with closing(world.server.connect()) as connection, connection.cursor() as cursor:
        for table in ("stream", "stopped_table"):
            cursor.execute(
                f"UPDATE airflow_cdc.{table} t JOIN airflow_cdc.stream_split s ON s.pipeline = "
                "t.pipeline AND t.split = CONCAT('sha256:', s.digest) SET t.split = s.split "
                "WHERE t.pipeline = %s",
                mine,
            )
            assert cursor.rowcount == 1
        cursor.execute("DELETE FROM airflow_cdc.stream_split WHERE pipeline = %s", mine)
    with closing(world.under(1).open_ledger()) as ledger:
        assert (ledger.stream(), ledger.stopped()) == (left, alone)
        ledger.take_over(2)
        with closing(world.under(2).open_changes({})):
            assert (ledger.stream(), ledger.stopped()) == (left, alone)
    named = "SELECT COUNT(*) FROM airflow_cdc.{} WHERE pipeline = %s AND split LIKE 'sha256:%%'"
    for table in ("stream", "stopped_table"):
        assert world.server.execute(named.format(table), mine) == [(1,)]
    kept = "SELECT COUNT(*) FROM airflow_cdc.stream_split WHERE pipeline = %s"
    assert world.server.execute(kept, mine) == [(2,)]


@FAMILIES
def test_a_split_that_the_ledger_names_and_lacks_is_an_error(world: MySqlSinkWorld) -> None:
    world.ledger.store_stream(ranges(2, 5 + secrets.randbelow(1000)))  # that nobody has read
    mine = (str(world.pipeline),)
    world.server.execute("DELETE FROM airflow_cdc.stream_split WHERE pipeline = %s", mine)
    with pytest.raises(IntegrityError, match="lacks the stream split"):
        world.ledger.stream()


def logged(server: SqlServer) -> int:
    """Return how much a server has written to its log."""
    return sum(int(row[1]) for row in server.execute("SHOW BINARY LOGS"))


def test_a_watermark_is_read_alike_however_often_its_parts_were_seen() -> None:
    places = [place_of(number) for number in (1, 7, 1, 70_000)]
    texts = [codec.dumps(codec.position_to_json(place)) for place in places]
    assert [codec.position_from_json(json.loads(text)) for text in texts] == places
