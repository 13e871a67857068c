"""The sink dies, loses replies, is locked, or takes only small packets."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    RowRefusedError,
    SinkBusyError,
    SinkTableChangedError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from tests.behaviours.sink_world import insert, update, worlds
from tests.behaviours.source_log import at
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld

pytestmark = pytest.mark.mysql


@pytest.fixture(scope="module")
def mortal() -> Iterator[MySqlServer]:
    """A server of this module's own, to be killed; it takes packets of 64 KiB."""
    with MySqlServer({"max-allowed-packet": 65536}) as server:
        yield server


@pytest.fixture
def mortal_world(
    mortal: MySqlServer, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    yield from worlds(MySqlSinkWorld(mortal, fresh_database(mortal)))


@pytest.fixture
def world(
    mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    yield from worlds(MySqlSinkWorld(mysql_sink, fresh_database(mysql_sink)))


def kill_server_before(
    words: str, session: Any, server: MySqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL the server just before the statement that begins with `words` is sent."""
    raw = session.raw
    send = raw.send_statement

    def sending(parts: Any) -> Any:
        if bytes(parts[0]).startswith(words.encode()):
            server.kill()
        return send(parts)

    monkeypatch.setattr(raw, "send_statement", sending)


@pytest.mark.parametrize("words", ["REPLACE INTO `airflow_cdc`", "COMMIT"])
def test_a_server_killed_before_the_end_keeps_neither_rows_nor_report(
    mortal_world: MySqlSinkWorld, mortal: MySqlServer, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mortal_world
    world.publish(world.splits(), world.split(), (1, "before"))
    sink = world.splits()
    kill_server_before(words, sink._store.session, mortal, monkeypatch)
    with pytest.raises(SinkUnreachableError):
        world.publish(sink, world.split(), (2, "after"), high=200)
    mortal.start()
    world.ledger = world.opened(world.sink.open_ledger())
    assert world.held() == [(1, "before")]
    assert [report.high for _, report in world.ledger.reports()] == [at(100)]
    world.publish(world.splits(), world.split(), (2, "after"), high=200)
    assert world.held() == [(2, "after")]


@pytest.mark.parametrize(
    "words", ["INSERT INTO", "UPDATE `airflow_cdc`", "INSERT INTO `airflow_cdc`.changed", "COMMIT"]
)
def test_a_server_killed_between_two_statements_has_rows_and_position_together(
    mortal_world: MySqlSinkWorld, mortal: MySqlServer, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mortal_world
    world.put((1, "a"))
    world.hand_off()
    sink = world.changes()
    batch = world.batch([update((1, "a"), (1, "b"))], [insert(2, "c")])
    kill_server_before(words, sink._store._sessions[0], mortal, monkeypatch)
    with pytest.raises(SinkUnreachableError):
        sink.apply(batch)
    mortal.start()
    world.ledger = world.opened(world.sink.open_ledger())
    assert world.held() == [(1, "a")]
    assert world.ledger.stream().start == at(100)
    world.changes().apply(batch)
    assert world.held() == [(1, "b"), (2, "c")]


def test_a_commit_whose_reply_was_lost_is_recognised(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.splits()
    _lose_commit_replies(sink._store.session, monkeypatch)
    with pytest.raises(SinkUnreachableError):
        world.publish(sink, world.split(), (1, "a"))
    world.server.execute(f"UPDATE `{world.database}`.orders SET name = 'not written again'")
    world.publish(world.splits(), world.split(), (1, "a"))
    assert world.held() == [(1, "not written again")]


def test_a_batch_whose_commit_lost_its_reply_is_not_applied_again(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.hand_off()
    sink = world.changes()
    _lose_commit_replies(sink._store._sessions[0], monkeypatch)
    batch = world.batch([insert(1, "a")])
    with pytest.raises(SinkUnreachableError):
        sink.apply(batch)
    world.server.execute(f"UPDATE `{world.database}`.orders SET name = 'not written again'")
    assert world.changes().apply(batch).changes == 0
    assert world.held() == [(1, "not written again")]


def _lose_commit_replies(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = session.commit

    def committed_but_unheard() -> None:
        commit()
        session.close()
        raise SinkUnreachableError("the reply was lost")

    monkeypatch.setattr(session, "commit", committed_but_unheard)


def test_a_lock_that_is_released_in_time_is_waited_out(world: MySqlSinkWorld) -> None:
    world.put((1, "locked"))
    sink = world.splits()
    sink._store.session.execute("SET SESSION innodb_lock_wait_timeout = 1")
    other = world.server.connect(world.database, autocommit=False)
    other.cursor().execute("SELECT * FROM orders WHERE id = 1 FOR UPDATE")
    release = threading.Timer(1.5, other.rollback)
    release.start()
    began = time.monotonic()
    world.publish(sink, world.split(), (1, "written"))
    assert time.monotonic() - began > 1
    assert world.held() == [(1, "written")]
    release.join()
    other.close()


def test_a_lock_that_stays_is_named_as_busy(world: MySqlSinkWorld) -> None:
    world.put((1, "locked"))
    sink = world.splits()
    sink._store.session.execute("SET SESSION innodb_lock_wait_timeout = 1")
    other = world.server.connect(world.database, autocommit=False)
    other.cursor().execute("SELECT * FROM orders WHERE id = 1 FOR UPDATE")
    with pytest.raises(SinkBusyError, match="1205"):
        world.publish(sink, world.split(), (1, "written"))
    other.close()
    assert world.held() == [(1, "locked")]


def test_statements_fill_the_packet_to_the_last_byte_and_never_more(
    mortal_world: MySqlSinkWorld,
) -> None:
    world = mortal_world
    world.take_long_texts()
    sink = world.opened(world.under(1, local_files=False).open_splits())
    with pytest.raises(RowRefusedError, match="key 7") as refused:
        world.publish(sink, world.split(), (1, "fits"), (7, "x" * 70_000))
    assert world.held() == []
    found = re.search(r"a row is (\d+) bytes as SQL, the sink takes (\d+)", str(refused.value))
    assert found is not None
    largest = 70_000 - (int(found[1]) - int(found[2]))
    with pytest.raises(RowRefusedError, match="key 7"):
        world.publish(sink, world.split(), (7, "x" * (largest + 1)))
    world.publish(sink, world.split(), (7, "x" * largest))
    assert [len(name) for _, name in world.held()] == [largest]
    many = [(i, "y" * (i % 977)) for i in range(3000)]
    world.publish(sink, world.split(), *many, high=300)
    assert world.held() == many


def test_a_sink_of_small_packets_is_not_sent_large_ones_by_load(
    mortal_world: MySqlSinkWorld,
) -> None:
    rows = [(i, "x" * 190) for i in range(20_000)]
    mortal_world.publish(mortal_world.splits(), mortal_world.split(), *rows)
    assert mortal_world.held() == rows


def test_rows_of_many_megabytes_are_loaded(world: MySqlSinkWorld) -> None:
    world.take_long_texts()
    rows = [(i, "x") for i in range(300)] + [(900, "z" * 20_000_000), (901, "end")]
    world.publish(world.splits(), world.split(), *rows)
    assert world.held() == rows


def test_a_table_of_many_splits_is_handed_off_to_a_sink_of_small_packets(
    mortal_world: MySqlSinkWorld,
) -> None:
    world, count = mortal_world, 1500
    bounds = [None, *range(1, count), None]
    finished = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        split = world.split(number, start, end)
        finished.append(FinishedSplit(split, at(100 + number), at(100 + number)))
    stream = hand_off(finished)
    world.ledger.store_stream(stream)
    assert world.ledger.stream() == stream
    changes = world.changes()
    changes.apply(world.batch([insert(1, "one")], [insert(700, "seen")], start=100))
    assert world.held() == [(1, "one")]


@pytest.mark.parametrize("local_files", [True, False])
@pytest.mark.parametrize("count", [1, 300, 1500])
def test_digits_that_a_column_altered_at_the_sink_has_no_place_for_are_not_dropped(
    world: MySqlSinkWorld, local_files: bool, count: int
) -> None:
    sink = world.opened(world.under(1, local_files=local_files).open_splits())
    world.publish(sink, world.split())  # it has looked at the table just before
    world.server.execute(f"ALTER TABLE `{world.database}`.orders MODIFY name DECIMAL(9,1)")
    rows = ((number, "1.25") for number in range(count))
    with pytest.raises(RowRefusedError, match="1265"):
        world.publish(sink, world.split(), *rows, high=200)
    assert world.held() == []


def test_a_table_that_was_changed_at_the_sink_takes_no_split(world: MySqlSinkWorld) -> None:
    world.server.execute(f"ALTER TABLE `{world.database}`.orders MODIFY name VARCHAR(199)")
    with pytest.raises(SinkTableChangedError, match=r"name is varchar\(199\)"):
        world.publish(world.splits(), world.split(), (1, "one"))
    assert world.held() == []


@pytest.mark.parametrize("local_files", [True, False])
def test_a_row_that_is_larger_as_sql_than_a_statement_may_be_is_written_all_the_same(
    world: MySqlSinkWorld, local_files: bool
) -> None:
    """As SQL text each byte of such a row takes two."""
    world.take_long_texts()
    packet = world.server.execute("SELECT @@max_allowed_packet")[0][0]
    large = "\n" * (packet * 6 // 10)
    world.publish(
        world.opened(world.under(1, local_files=local_files).open_splits()),
        world.split(),
        (1, large),
    )
    world.hand_off()
    changes = world.opened(world.under(1, local_files=local_files).open_changes(world.columns))
    changes.apply(world.batch([insert(2, large), update((1, large), (1, "small"))]))
    assert [(key, len(name)) for key, name in world.held()] == [(1, 5), (2, len(large))]
