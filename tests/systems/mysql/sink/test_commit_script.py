"""A small batch is committed in two round trips, and otherwise statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    FencedError,
    RowRefusedError,
    SinkBusyError,
    SinkUnreachableError,
)
from airflow_cdc_provider.systems.mysql.server.scripts import ScriptOutcome
from airflow_cdc_provider.systems.mysql.sink.commit_script import CommitScripts
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.behaviours.sink_world import delete, insert, update
from tests.behaviours.source_log import at
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld


@pytest.fixture(
    params=[
        pytest.param("mysql_sink", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ]
)
def world(
    request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    """Rows 1 to 3, and a stream that stands at 100."""
    server: SqlServer = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        made = MySqlSinkWorld(stack=stack, server=server, database=fresh_database(server))
        made.hand_off(orders=[(1, "a"), (2, "b"), (3, "c")])
        yield made


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What became of each script: whether it was kept."""
    kept: list[bool] = []
    commit = CommitScripts.commit

    def noted(self: CommitScripts, **asked: Any) -> bool:
        kept.append(False)
        kept[-1] = commit(self, **asked)
        return kept[-1]

    monkeypatch.setattr(CommitScripts, "commit", noted)
    return kept


def sent_by(sink: Any, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note what a sink sends from here on."""
    sent: list[bytes] = []
    raw = sink._store._sessions[0].raw
    send = raw.send_statement

    def sending(parts: Any) -> None:
        sent.append(b"".join(bytes(part) for part in parts))
        send(parts)

    monkeypatch.setattr(raw, "send_statement", sending)
    return sent


def begun(world: MySqlSinkWorld) -> Any:
    """Return a sink that knows where it stands: at 120, and all is consistent there."""
    sink = world.changes()
    sink.apply(world.batch([insert(4, "wrong")], start=100, end=110))
    sink.apply(world.batch([update((4, "wrong"), (4, "d"))], start=110, end=120))
    return sink


def test_a_small_batch_takes_two_round_trips(
    world: MySqlSinkWorld, said: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = begun(world)
    sent = sent_by(sink, monkeypatch)
    changes = [update((1, "a"), (1, "it's; \\ ü")), delete(2, "b")], [insert(5, "e")]
    applied = sink.apply(world.batch(*changes, start=120, end=140))
    assert (applied.end, applied.changes, applied.transactions) == (at(140), 3, 2)
    assert said == [True]
    assert len(sent) == 2
    assert sent[1] == b"COMMIT"
    assert world.held() == [(1, "it's; \\ ü"), (3, "c"), (4, "d"), (5, "e")]
    assert world.ledger.stream().start == at(140)
    counts = world.ledger.counts()
    assert (counts.changes, counts.transactions) == (5, 4)
    assert world.ledger.table_changes()[world.orders.schema.table].changes == 5


def test_a_batch_of_many_rows_is_written_by_statements(
    world: MySqlSinkWorld, said: list[bool]
) -> None:
    sink = begun(world)
    rows = [insert(number, "many") for number in range(100, 400)]
    sink.apply(world.batch(rows, start=120, end=140))
    assert said == []
    assert len(world.held()) == 304


def test_a_position_that_another_moved_is_looked_at_anew(
    world: MySqlSinkWorld, said: list[bool]
) -> None:
    sink, other = begun(world), world.changes()
    batch = world.batch([insert(5, "e")], start=120, end=140)
    other.apply(batch)
    world.server.execute(f"UPDATE `{world.database}`.orders SET name = 'not again' WHERE id = 5")
    assert sink.apply(batch).changes == 0
    assert said == [False]
    assert (5, "not again") in world.held()
    sink.apply(world.batch([insert(6, "f")], start=140, end=160))
    assert said == [False, True]


def test_a_split_that_was_changed_meanwhile_is_looked_at_anew(
    world: MySqlSinkWorld, said: list[bool]
) -> None:
    sink = begun(world)
    world.ledger.change_tables(removed=[world.orders.schema.table], added={})
    sink.apply(world.batch([insert(5, "e")], start=120, end=140))
    assert said == [False]
    assert [row[0] for row in world.held()] == [1, 2, 3, 4]


def test_an_older_owner_keeps_nothing(world: MySqlSinkWorld, said: list[bool]) -> None:
    sink = begun(world)
    world.server.execute(
        "UPDATE airflow_cdc.pipeline SET generation = 2 WHERE pipeline = %s", (str(world.pipeline),)
    )
    with pytest.raises(FencedError):
        sink.apply(world.batch([insert(5, "e")], start=120, end=140))
    assert said == [False]
    assert [row[0] for row in world.held()] == [1, 2, 3, 4]
    assert world.ledger.stream().start == at(120)


def test_a_row_that_the_sink_refuses_is_named_and_nothing_is_kept(
    world: MySqlSinkWorld, said: list[bool]
) -> None:
    sink = begun(world)
    with pytest.raises(RowRefusedError, match="Data too long"):
        sink.apply(world.batch([insert(5, "e")], [insert(6, "no" * 200)], start=120, end=140))
    assert said == [False]
    assert [row[0] for row in world.held()] == [1, 2, 3, 4]
    assert world.ledger.stream().start == at(120)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_applied_twice(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    sink = begun(world)
    session = sink._store._sessions[0]
    commit = session.commit

    def lost() -> None:
        if is_kept:
            commit()
        else:
            session.rollback()
        raise SinkUnreachableError("the answer is lost", "test")

    monkeypatch.setattr(session, "commit", lost)
    batch = world.batch([insert(5, "e")], start=120, end=140)
    with pytest.raises(SinkUnreachableError):
        sink.apply(batch)
    assert world.ledger.stream().start == at(140 if is_kept else 120)
    assert world.changes().apply(batch).changes == (0 if is_kept else 1)
    assert [row[0] for row in world.held()] == [1, 2, 3, 4, 5]


def test_a_server_that_takes_no_scripts_is_sent_one_statement_after_the_other(
    world: MySqlSinkWorld, said: list[bool]
) -> None:
    sink = begun(world)
    sink._store._sessions[0].takes_scripts = False
    sink.apply(world.batch([insert(5, "e")], start=120, end=140))
    assert said == []
    assert [row[0] for row in world.held()] == [1, 2, 3, 4, 5]


def test_a_sink_that_was_busy_is_sent_commands_all_the_same(
    world: MySqlSinkWorld, said: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = begun(world)
    begin_with = SinkSession.begin_with

    def busy(self: SinkSession, statements: Sequence[bytes]) -> ScriptOutcome:
        return replace(begin_with(self, statements), error=SinkBusyError("a deadlock", "test"))

    with monkeypatch.context() as patched:
        patched.setattr(SinkSession, "begin_with", busy)
        for number in range(4):
            place = 120 + 10 * number
            sink.apply(world.batch([insert(5 + number, "e")], start=place, end=place + 10))
    assert said == [False] * 4
    sink.apply(world.batch([insert(9, "f")], start=160, end=170))
    assert said[-1]
    assert [row[0] for row in world.held()] == [*range(1, 10)]
