"""Law 7 as sinks of MySQL's protocol keep it beside what every sink does."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, FencedError, RetryableError, RowRefusedError
from airflow_cdc_provider.systems.mysql.sink import ledger as ledger_module
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_world import Change, delete, insert, update
from tests.behaviours.source_log import at
from tests.systems.mysql.sink.world import MySqlSinkWorld


class MySqlChangeBehaviours(ChangeSinkBehaviours):
    """A sink of MySQL's protocol, in whatever mode."""

    def test_of_a_batch_half_committed_only_the_rest_is_applied(
        self, world: MySqlSinkWorld
    ) -> None:
        world.hand_off()
        sink = world.changes()
        sink.apply(world.batch([insert(1, "a")], [insert(2, "b")]))
        world.server.execute(f"DELETE FROM `{world.database}`.orders WHERE id = 1")
        applied = sink.apply(world.batch([insert(1, "a")], [insert(2, "b")], [insert(3, "c")]))
        assert (applied.changes, applied.transactions) == (1, 1)
        assert world.held() == [(2, "b"), (3, "c")]

    def test_an_old_generation_is_refused_in_the_middle_of_a_transaction(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.hand_off()
        old = world.changes(1)
        monkeypatch.setattr(
            "airflow_cdc_provider.systems.mysql.sink.writers.end_older", lambda *_: None
        )
        claim = ledger_module.claim_commit
        overtaken: list[int] = []

        def overtake(*arguments: Any) -> str:
            if not overtaken:
                overtaken.append(1)
                world.ledger.take_over(2)
            return claim(*arguments)

        monkeypatch.setattr(ledger_module, "claim_commit", overtake)
        with pytest.raises(FencedError):
            old.apply(world.batch([insert(1, "zombie")]))
        assert world.ledger.stream().start == at(100)

    def test_a_taken_unique_value_is_refused_and_changes_no_other_row(
        self, world: MySqlSinkWorld
    ) -> None:
        world.hand_off()
        world.put((1, 10), table="seats")  # a row the source does not have
        with pytest.raises(RowRefusedError, match="1062"):
            world.changes().apply(world.batch([insert(2, 10)], table="seats"))
        assert world.held("seats") == [(1, 10)]


class TransactionalBehaviours(MySqlChangeBehaviours):
    """A sink with one slot: all of a batch is there or nothing, and the position with it."""

    def test_a_refused_row_keeps_nothing_of_its_batch(self, world: MySqlSinkWorld) -> None:
        world.put((1, "a"))
        world.hand_off()
        sink = world.changes()
        rows: list[Change] = [insert(i, "x") for i in range(100, 700)]
        with pytest.raises(RowRefusedError, match=r"1406.*key 900\b"):
            sink.apply(world.batch([delete(1, "a")], rows, [insert(900, "y" * 300)]))
        assert world.held() == [(1, "a")]
        assert world.ledger.stream().start == at(100)
        sink.apply(world.batch([insert(2, "fits")]))
        assert (2, "fits") in world.held()

    def test_a_huge_transaction_that_fails_half_way_is_undone(self, world: MySqlSinkWorld) -> None:
        world.hand_off()
        sink = world.changes()
        sink.apply(world.batch([insert(1, "a")], end=None))
        with pytest.raises(RowRefusedError):
            sink.apply(world.batch([insert(2, "y" * 300)], end=None))
        with pytest.raises(RetryableError, match="middle of a source transaction"):
            sink.apply(world.batch([insert(3, "the end without the beginning")], end=110))
        assert world.held() == []
        assert world.ledger.stream().start == at(100)

    def test_a_connection_killed_between_any_two_statements_keeps_rows_and_position_together(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.put((1, "v0"))
        world.hand_off()
        for version, step in enumerate(range(1, 20)):
            sink = world.changes()
            session = sink._store._sessions[0]
            killed = kill_before(session, step, world, monkeypatch)
            batch = world.batch(
                [update((1, f"v{version}"), (1, f"v{version + 1}"))], start=100 + 10 * version
            )
            try:
                sink.apply(batch)
            except CdcError:
                position = world.ledger.stream().start
                assert world.held() == [(1, f"v{(position.binlog.offset - 100) // 10}")]
                world.changes().apply(batch)
            assert world.held() == [(1, f"v{version + 1}")]
            assert world.ledger.stream().start == at(110 + 10 * version)
            if not killed:
                return
        pytest.fail("the transaction never ran to its end")


def kill_before(
    session: Any, step: int, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Kill a session's connection before its `step`-th statement; the list says if that was."""
    number = session.connection.thread_id()
    count, killed = 0, []

    def counting(original: Any) -> Any:
        def run(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                killed.append(step)
                world.server.execute(f"KILL {number}")
            return original(*arguments)

        return run

    raw = session.raw
    monkeypatch.setattr(session, "rows", counting(session.rows))
    monkeypatch.setattr(raw, "send_statement", counting(raw.send_statement))
    return killed
