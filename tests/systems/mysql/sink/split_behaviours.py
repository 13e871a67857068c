"""Law 4 and 8 as sinks of MySQL's protocol keep them beside what every sink does."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, FencedError, RowRefusedError
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.systems.mysql.sink import ledger as ledger_module
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.systems.mysql.sink.change_behaviours import kill_before
from tests.systems.mysql.sink.world import MySqlSinkWorld


class MySqlSplitBehaviours(SplitSinkBehaviours):
    """Locks, refusals of the server and connections that end."""

    def test_only_the_splits_own_range_is_replaced(self, world: MySqlSinkWorld) -> None:
        sink = world.splits()
        world.put((5, "below"), (10, "stale"), (19, "stale"), (20, "above"))
        world.publish(sink, world.split(1, 10, 20), (12, "new"))
        assert world.held() == [(5, "below"), (12, "new"), (20, "above")]

    def test_the_same_report_again_changes_nothing(self, world: MySqlSinkWorld) -> None:
        sink = world.splits()
        world.publish(sink, world.split(), (1, "a"))
        world.put((2, "marks that nothing is written again"))
        world.publish(sink, world.split(), (1, "a"))
        assert len(world.held()) == 2

    def test_a_refused_row_is_named_and_nothing_is_kept(self, world: MySqlSinkWorld) -> None:
        world.put((7, "before"))
        rows = [(i, "x") for i in range(400)]
        rows[321] = (321, "y" * 300)
        with pytest.raises(RowRefusedError, match=r"1406.*key 321\b"):
            world.publish(world.splits(), world.split(), *rows)
        assert world.held() == [(7, "before")]
        assert world.ledger.reports() == []

    def test_a_doubled_key_is_refused(self, world: MySqlSinkWorld) -> None:
        rows = [(i, "x") for i in range(400)]
        with pytest.raises(RowRefusedError, match=r"1062"):
            world.publish(world.splits(), world.split(), *rows, (399, "again"))
        assert world.held() == []

    def test_a_sink_is_usable_after_a_refusal(self, world: MySqlSinkWorld) -> None:
        sink = world.splits()
        with pytest.raises(RowRefusedError):
            world.publish(sink, world.split(), (1, "y" * 300))
        world.publish(sink, world.split(), (1, "fits"))
        assert world.held() == [(1, "fits")]

    def test_a_split_does_not_wait_for_its_uncommitted_neighbour(
        self, world: MySqlSinkWorld
    ) -> None:
        sink = world.splits()
        sink._store.session.execute("SET SESSION innodb_lock_wait_timeout = 1")
        neighbour = world.server.connect(world.database, autocommit=False)
        neighbour.cursor().execute("INSERT INTO orders VALUES (9, 'below'), (20, 'above')")
        world.publish(sink, world.split(1, 10, 20), (12, "new"))
        neighbour.commit()
        neighbour.close()
        assert world.held() == [(9, "below"), (12, "new"), (20, "above")]

    @pytest.mark.parametrize(
        "change", ["INSERT INTO orders VALUES (11, 'of a late reader')", "DELETE FROM orders"]
    )
    @pytest.mark.parametrize("outcome", ["commit", "rollback"])
    def test_a_split_waits_for_who_still_writes_in_its_range(
        self, world: MySqlSinkWorld, change: str, outcome: str
    ) -> None:
        sink = world.splits()
        if change.startswith("DELETE"):
            world.put((13, "of a late reader"))
        late = world.server.connect(world.database, autocommit=False)
        late.cursor().execute(change)
        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(world.publish, sink, world.split(1, 10, 20), (12, "new"))
            time.sleep(0.3)
            assert not publishing.done()
            getattr(late, outcome)()
            publishing.result(30)
        late.close()
        assert world.held() == [(12, "new")]

    def test_a_row_that_comes_behind_the_look_at_the_range_is_replaced(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = world.splits()
        look = sink._store.holds_nothing

        def looked(split: Any) -> bool:
            seen = bool(look(split))
            world.put((12, "of a late reader"))
            return seen

        monkeypatch.setattr(sink._store, "holds_nothing", looked)
        world.publish(sink, world.split(1, 10, 20), (12, "new"))
        assert world.held() == [(12, "new")]

    def test_rows_are_those_of_the_report_if_two_readers_publish_one_split_at_once(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        earlier, later, split = world.splits(), world.splits(), world.split()
        look = later._store.holds_nothing
        published: list[Future[Any]] = []

        with ThreadPoolExecutor(1) as pool:

            def looked(split: Any) -> bool:
                seen = bool(look(split))
                published.append(pool.submit(world.publish, earlier, split, (2, "deleted since")))
                wait(published, timeout=1)
                return seen

            monkeypatch.setattr(later._store, "holds_nothing", looked)
            world.publish(later, split, high=200)
            published[0].result(30)
        ((_, report),) = world.ledger.reports()
        assert len(world.held()) == report.rows

    def test_a_hand_off_of_many_splits_is_stored(self, world: MySqlSinkWorld) -> None:
        splits = [
            world.split(n, n * 10 if n else None, n * 10 + 10 if n < 4999 else None)
            for n in range(5000)
        ]
        empty = world.rows()
        finished = [
            FinishedSplit.of(split, world.report(split, empty, high=100 + n), backfilled=True)
            for n, split in enumerate(splits)
        ]
        stream = hand_off(finished)
        world.ledger.store_stream(stream)
        assert world.ledger.stream() == stream

    def test_a_zombie_that_has_written_its_rows_cannot_commit(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The new owner comes between the zombie's rows and its check; it is not ended by KILL."""
        old = world.splits(1)
        monkeypatch.setattr(
            "airflow_cdc_provider.systems.mysql.sink.writers.end_older", lambda *_: None
        )
        state_of = old._store.state_of

        def overtaken(split: Any, *, hold: bool = False) -> Any:
            if hold:
                world.ledger.take_over(2)
            return state_of(split, hold=hold)

        monkeypatch.setattr(old._store, "state_of", overtaken)
        with pytest.raises(FencedError, match="generation 2 owns"):
            world.publish(old, world.split(), (1, "zombie"))
        assert world.held() == []
        assert world.ledger.reports() == []

    def test_a_take_over_waits_for_a_commit_that_has_passed_its_check(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = world.splits(1)
        monkeypatch.setattr(
            "airflow_cdc_provider.systems.mysql.sink.writers.end_older", lambda *_: None
        )
        passed, taken = threading.Event(), []
        store = ledger_module.store_report

        def slow(*arguments: Any) -> None:
            passed.set()
            time.sleep(0.5)
            taken.append(world.server.execute("SELECT 1") and "row committed")
            store(*arguments)

        monkeypatch.setattr(ledger_module, "store_report", slow)
        other = world.opened(world.under(1).open_ledger())

        def take() -> None:
            passed.wait(10)
            other.take_over(2)
            taken.append("taken over")

        taker = threading.Thread(target=take)
        taker.start()
        world.publish(old, world.split(), (1, "in time"))
        taker.join()
        assert taken == ["row committed", "taken over"]
        assert world.held() == [(1, "in time")]

    def test_a_new_owner_ends_a_hung_writer_that_holds_locks(self, world: MySqlSinkWorld) -> None:
        hung = world.splits(1)
        world.put((1, "old"))
        session = hung._store.session
        session.begin()
        session.execute(f"UPDATE `{world.database}`.orders SET name = 'hung'")
        world.ledger.take_over(2)
        began = time.monotonic()
        world.publish(world.splits(2), world.split(), (1, "new"))
        assert time.monotonic() - began < 10
        assert world.held() == [(1, "new")]

    def test_a_connection_killed_in_the_middle_keeps_nothing(
        self, world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed before each statement in turn; the retry on a new connection is right."""
        world.put((1, "before"))
        for step in range(1, 20):
            sink = world.splits()
            killed = kill_before(sink._store.session, step, world, monkeypatch)
            try:
                world.publish(sink, world.split(), (2, f"step {step}"), high=100 + step)
            except CdcError:
                held, reports = world.held(), [r.high for _, r in world.ledger.reports()]
                assert (2, f"step {step}") not in held
                assert len(reports) <= 1
                world.publish(world.splits(), world.split(), (2, f"step {step}"), high=100 + step)
            assert world.held() == [(2, f"step {step}")]
            if not killed:
                assert step > 5, "the transaction has more steps than that"
                return
        pytest.fail("the transaction never ran to its end")

    def test_the_ledger_is_created_by_two_at_once(self, world: MySqlSinkWorld) -> None:
        world.server.execute("DROP DATABASE airflow_cdc")

        def create(_: int) -> None:
            ledger = world.under(1).open_ledger()
            ledger.take_over(1)
            ledger.close()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(4)))
        assert world.ledger.generation() == 1
