"""Conflicts in a batch that is sent as one command: settled before it, and looked for behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.systems.mysql.server.scripts import ScriptOutcome
from airflow_cdc_provider.systems.mysql.sink.commit_script import CommitScripts
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.pipeline.pairs import Edge, MakePair, Pair, conflicts_of
from tests.servers.given import SqlServer

ROWS = 90


@pytest.fixture(params=["mysql to mariadb", "mariadb to mysql"])
def pair(
    request: pytest.FixtureRequest,
    mysql_server: SqlServer,
    mariadb_server: SqlServer,
    make_pair: MakePair,
) -> Pair:
    """A pair, the first node of which wins."""
    servers = (mysql_server, mariadb_server)
    made = make_pair(
        *(servers if request.param.startswith("mysql") else servers[::-1]), winner="one"
    )
    made.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(9,2))")
    rows = ", ".join(f"({n}, 'first', 0)" for n in range(1, ROWS + 1))
    made.one.execute(f"INSERT INTO items VALUES {rows}")
    made.begin()
    made.catch_up()  # so that each edge knows where the other one is
    return made


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What became of each batch that was sent as one command: whether it was kept."""
    found: list[bool] = []
    commit = CommitScripts.commit

    def noted(self: CommitScripts, **asked: Any) -> bool:
        found.append(False)
        found[-1] = commit(self, **asked)
        return found[-1]

    with monkeypatch.context() as patched:
        patched.setattr(CommitScripts, "commit", noted)
        yield found


def change_first(patched: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1) -> None:
    """Have something done before a batch is sent as one command, the first `times` times."""
    begin_with, left = SinkSession.begin_with, [times]

    def after_it(self: SinkSession, statements: Sequence[bytes]) -> ScriptOutcome:
        if left[0]:
            left[0] -= 1
            change()
        return begin_with(self, statements)

    patched.setattr(SinkSession, "begin_with", after_it)


def second_batch(src: Edge, back: Edge, statement: str) -> None:
    """Have an edge's source change a row, hear of its sink, and change what the statement says.

    So the statement is in a batch of its own, behind one by which the edge knows where it is.
    """
    src.src.execute(f"UPDATE items SET n = n + 1 WHERE id = {ROWS}")
    src.dst.execute(f"UPDATE items SET n = n + 1 WHERE id = {ROWS - 1}")
    back.catch_up()
    src.src.execute(statement)


@pytest.mark.parametrize("most", [1, 5, 80], ids=["one row", "few rows", "columns"])
@pytest.mark.sample(2)
def test_what_loses_is_left_out_of_the_command_and_noted_with_it(
    pair: Pair, kept: list[bool], most: int
) -> None:
    second_batch(pair.back, pair.there, f"UPDATE items SET v = 'by two' WHERE id <= {most}")
    pair.one.execute("UPDATE items SET v = 'by one' WHERE id = 1")
    kept.clear()
    pair.back.catch_up()
    assert kept == [True]
    values = pair.one.execute("SELECT v, COUNT(*) FROM items GROUP BY v")
    assert {("by one", 1), ("first", ROWS - most)} <= {*values}
    ((key, winner, source, sink),) = conflicts_of(pair.back)
    assert (json.loads(str(key)), winner) == ({"id": 1}, "one")
    assert json.loads(str(source)) == {
        "before": {"id": 1, "v": "first", "n": "0.00"},
        "after": {"id": 1, "v": "by two", "n": "0.00"},
    }
    assert json.loads(str(sink))["after"]["v"] == "by one"
    pair.catch_up()
    assert pair.is_equal
    assert len(conflicts_of(pair.there)) == 1


def test_what_wins_is_written_and_noted_with_it(pair: Pair, kept: list[bool]) -> None:
    second_batch(pair.there, pair.back, "UPDATE items SET v = 'it''s; one' WHERE id <= 2")
    pair.two.execute("UPDATE items SET v = 'by two' WHERE id <= 3")
    kept.clear()
    pair.there.catch_up()
    assert kept == [True]
    assert [row[1] for row in conflicts_of(pair.there)] == ["one", "one"]
    assert pair.two.execute("SELECT v FROM items WHERE id <= 2") == [("it's; one",)] * 2
    pair.catch_up()
    assert pair.is_equal


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.sample(2)
def test_a_change_that_comes_before_the_command_has_the_rows_locks_is_seen(
    pair: Pair, kept: list[bool], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    second_batch(pair.back, pair.there, "UPDATE items SET v = 'by two' WHERE id <= 10")
    changed = iter(range(1, 10))
    kept.clear()
    with monkeypatch.context() as patched:
        change_first(
            patched,
            lambda: pair.one.execute(f"UPDATE items SET v = 'by one' WHERE id = {next(changed)}"),
            times,
        )
        pair.back.catch_up()
    assert kept == [*[False] * times, True][:3]
    assert pair.one.execute("SELECT COUNT(*) FROM items WHERE v = 'by one'") == [(times,)]
    assert len(conflicts_of(pair.back)) == times
    pair.catch_up()
    assert pair.is_equal


def test_a_winners_change_that_was_overtaken_is_kept_all_the_same(
    pair: Pair, kept: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    second_batch(pair.there, pair.back, "UPDATE items SET v = 'by one' WHERE id = 1")
    kept.clear()
    with monkeypatch.context() as patched:
        change_first(
            patched, lambda: pair.two.execute("UPDATE items SET v = 'by two' WHERE id = 1")
        )
        pair.there.catch_up()
    assert kept == [True]
    assert pair.two.execute("SELECT v FROM items WHERE id = 1") == [("by one",)]
    assert len(conflicts_of(pair.there)) == 1
    pair.catch_up()
    assert pair.is_equal


def test_conflicts_that_cannot_be_noted_keep_nothing(
    pair: Pair, kept: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    second_batch(pair.there, pair.back, "UPDATE items SET v = 'by one' WHERE id <= 2")
    pair.two.execute("UPDATE items SET v = 'by two' WHERE id = 1")
    kept.clear()
    commit_with = SinkSession.commit_with

    def fails(self: SinkSession, statements: Sequence[str]) -> None:
        commit_with(self, [*statements, "INSERT INTO no_such_table VALUES (1)"])

    with monkeypatch.context() as patched:
        patched.setattr(SinkSession, "commit_with", fails)
        with pytest.raises(RefusedError, match="No database selected"):
            pair.there.catch_up()
    assert conflicts_of(pair.there) == []
    assert pair.two.execute("SELECT v FROM items WHERE id <= 2") == [("by two",), ("first",)]
    pair.catch_up()
    assert pair.is_equal
