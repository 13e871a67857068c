"""When rows may join, and who may join them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airflow_cdc_provider.core.codec import stream_to_text
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    SchemaMovedError,
    SplitOutdatedError,
)
from airflow_cdc_provider.engine.sink.selection import Selection
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.join_ledger import MySqlJoinLedger
from airflow_cdc_provider.systems.mysql.source import split_log
from tests.systems.mysql.sink.change_behaviours import kill_before
from tests.systems.mysql.sink.joins import REQUEST, TEXTS, JoinWorld, numbered


class JoinBehaviours:
    """Whatever the family."""

    def test_rows_join_once_the_stream_has_passed_h_and_not_before(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 40))
        world.start()
        world.at_source("UPDATE t SET name = 'newer' WHERE id < 20")
        read = world.read()
        assert read.join() is None
        assert read.asked == []
        world.advance()
        position = read.join()
        assert position == world.ledger.stream().start
        assert world.held() == world.held_at_source()
        (joined,) = world.joins().joined(REQUEST)
        assert (joined.split, joined.rows, joined.position) == (read.split, 39, position)

    def test_what_the_stream_has_written_past_h_is_in_the_rows_that_join(
        self, world: JoinWorld
    ) -> None:
        world.make(TEXTS, numbered(1, 60))
        world.start()
        read = world.read((10,), (40,))
        world.at_source(
            "UPDATE t SET name = 'changed' WHERE id IN (5, 15, 45)",
            "DELETE FROM t WHERE id IN (6, 16, 46)",
            "INSERT INTO t VALUES (100, 'outside')",
            "UPDATE t SET id = 200 WHERE id = 20",
            "UPDATE t SET id = 20, name = 'moved in' WHERE id = 50",
            "UPDATE t SET id = 30 + 5000 WHERE id = 30",
            "UPDATE t SET id = 30 WHERE id = 5030",
        )
        world.advance()
        assert read.join() is not None
        assert world.held() == world.held_at_source()

    def test_changes_that_the_stream_has_not_written_are_not_in_the_rows_that_join(
        self, world: JoinWorld
    ) -> None:
        """The rows are the table at the stream's place, not at the log's end."""
        world.make(TEXTS, numbered(1, 30))
        world.start()
        read = world.read()
        world.at_source("UPDATE t SET name = 'at the place' WHERE id = 1")
        place = world.end()
        at_place = world.held_at_source()
        world.at_source("UPDATE t SET name = 'later' WHERE id < 5", "DELETE FROM t WHERE id = 9")
        later = world.read(number=1)
        world.advance(place)
        assert later.join() is None
        assert place_of(read.join()) == place_of(place)
        assert world.held() == at_place
        world.advance()
        assert world.held() == world.held_at_source()

    def test_a_reader_that_has_read_on_still_gives_the_log_up_to_an_earlier_place(
        self, world: JoinWorld
    ) -> None:
        world.make(TEXTS, numbered(1, 30))
        world.start()
        read = world.read((1,), (10,))
        world.at_source("UPDATE t SET name = 'at the place' WHERE id < 5")
        place = world.end()
        at_place = world.held_at_source()
        world.at_source("UPDATE t SET name = 'later' WHERE id < 5")
        read.reader.read(world.split((10,), (20,), 1))
        list(read.reader.changes(read.split, read.report, world.end()))
        world.advance(place)
        assert place_of(read.join()) == place_of(place)
        assert world.held() == at_place

    # --- what does not join -----------------------------------------------------------------------

    def test_a_split_that_has_joined_is_left_alone(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.advance()
        position = read.join()
        world.at_sink("INSERT INTO t VALUES (77, 'marks that nothing is written again')")
        world.at_source("INSERT INTO t VALUES (10, 'on')")
        world.advance()
        assert read.join() == position
        assert world.read().join() == position
        assert (77, "marks that nothing is written again") in world.held()
        assert len(world.joins().joined(REQUEST)) == 1

    def test_what_is_forgotten_joins_again(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        sink = world.joins()
        for _ in range(2):
            world.at_sink("DELETE FROM t")
            read = world.read()
            world.advance()
            assert read.join(sink) is not None
            assert world.held() == world.held_at_source()
            sink.forget(REQUEST)
            assert sink.joined(REQUEST) == ()

    def test_two_requests_do_not_know_of_each_other(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.advance()
        assert read.join() is not None
        sink = world.joins()
        assert sink.joined("r2") == ()
        sink.forget("r2")
        assert len(sink.joined(REQUEST)) == 1

    def test_a_table_before_its_consistent_point_does_not_join(self, world: JoinWorld) -> None:
        """Its rows are of several places, and some of its changes are left out."""
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.at_source("UPDATE t SET name = 'on' WHERE id = 3")
        world.advance()
        stored = world.ledger.stream
        text = f"pipeline = '{world.pipeline}'"
        beyond = world.read().report
        world.at_source("UPDATE t SET name = 'further on' WHERE id = 3")
        stream = stored()
        (progress,) = stream.tables
        later = world.end()
        for waiting in (
            type(progress)(progress.table, progress.applied_through, (), (later,)),
            type(progress)(progress.table, later),
        ):
            stop = type(stream)(stream.start, None, (waiting,))
            with world.sink_server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE airflow_cdc.stream "
                    f"SET split = {literal(stream_to_text(stop))} WHERE {text}"
                )
                connection.commit()
            assert beyond.high is not None
            assert read.join() is None
        world.advance()
        assert read.join() is not None
        assert world.held() == world.held_at_source()

    def test_a_table_that_is_not_the_streams_does_not_join(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.advance()
        world.sink_server.execute(
            f"DELETE FROM airflow_cdc.stream_table WHERE pipeline = '{world.pipeline}'"
        )
        assert read.join() is None
        assert world.joins().joined(REQUEST) == ()

    def test_a_table_changed_since_the_read_has_to_be_read_again(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.advance()
        world.at_source("TRUNCATE TABLE t")
        with pytest.raises(SchemaMovedError, match="TRUNCATE"):
            list(read.reader.changes(read.split, read.report, world.end()))
        assert read.join() is not None  # the stream has not come to it

    def test_too_many_changes_since_the_read_have_it_read_again(
        self, world: JoinWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(split_log, "MAX_CHANGES_BYTES", 10_000)
        world.make(TEXTS, numbered(1, 400))
        world.start()
        read = world.read((1,), (10,))
        before = world.held()
        world.at_source("UPDATE t SET name = CONCAT(name, ' and on')")
        world.advance()
        with pytest.raises(SplitOutdatedError, match="read again"):
            read.join()
        assert [row[0] for row in world.held()] == [row[0] for row in before]
        assert world.joins().joined(REQUEST) == ()

    def test_the_position_of_another_server_has_the_split_read_again(
        self, world: JoinWorld
    ) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        end: Any = world.end()
        other = type(end)("another server", end.binlog, end.gtids)
        with pytest.raises(SplitOutdatedError, match="the split is read again"):
            read.reader.changes(read.split, read.report, other)

    # --- owners and kills -------------------------------------------------------------------------

    def test_an_old_generation_joins_nothing(
        self, world: JoinWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The new owner comes between the rows and the last check; nobody is ended by KILL."""
        world.make(TEXTS, numbered(1, 10))
        world.start()
        world.at_sink("DELETE FROM t WHERE id = 1")
        read = world.read()
        world.advance()
        sink, held = world.joins(), world.held()
        monkeypatch.setattr(
            "airflow_cdc_provider.systems.mysql.sink.writers.end_older", lambda *_: None
        )
        store = MySqlJoinLedger.store_joined

        def overtaken(*arguments: Any) -> None:
            store(*arguments)
            world.ledger.take_over(2)

        monkeypatch.setattr(MySqlJoinLedger, "store_joined", overtaken)
        with pytest.raises(FencedError, match="generation 2 owns"):
            read.join(sink)
        monkeypatch.undo()
        assert world.held() == held
        with pytest.raises(FencedError):
            read.join(sink)
        with pytest.raises(FencedError):
            sink.forget(REQUEST)
        assert world.joins(2).joined(REQUEST) == ()
        assert read.join(world.joins(2)) is not None
        assert world.held() == world.held_at_source()

    def test_a_connection_killed_between_any_two_statements_keeps_all_or_nothing(
        self, world: JoinWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        read = world.read()
        world.advance()
        sink: Any = world.joins()
        for step in range(1, 25):
            world.at_sink("UPDATE t SET name = 'wrong'")
            wrong = world.held()
            killed = kill_before(sink._store.session, step, cast("Any", world), monkeypatch)
            try:
                position = read.join(sink)
            except CdcError:
                sink = world.joins()
                joined = sink.joined(REQUEST)
                assert world.held() == (world.held_at_source() if joined else wrong)
                position = read.join(sink)
            assert position is not None
            assert world.held() == world.held_at_source()
            world.joins().forget(REQUEST)
            if not killed:
                assert step > 8, "the transaction has more steps than that"
                return
        pytest.fail("the transaction never ran to its end")


class MergedBehaviours:
    """Several writers, each with a place of its own."""

    def test_nothing_joins_while_the_writers_are_apart(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 40))
        world.start()
        read = world.read()
        world.at_source("UPDATE t SET name = 'on'")
        (batch,) = (each for each in world.batches() if each.changes)
        before = world.held()
        world.changes._writers[1].apply(Selection(batch, world.changes._captured))
        half = world.held()
        assert half != before
        assert read.join() is None
        assert world.held() == half
        world.changes.apply(batch)
        assert read.join() is not None
        assert world.held() == world.held_at_source()


def place_of(position: Any) -> Any:
    return position.binlog
