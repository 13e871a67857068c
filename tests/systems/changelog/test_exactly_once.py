"""Laws 4 to 8 as a change log keeps them beside what every sink does: each change is in it once."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.errors import (
    FencedError,
    IntegrityError,
    RefusedError,
    TableChangedError,
)
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.files import file_store
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from tests.behaviours.sink_world import Change, delete, insert, update
from tests.behaviours.source_log import at, point
from tests.systems.changelog.world import ChangelogWorld


class TestSplits:
    """Law 4: a split is published whole or not at all."""

    def test_a_split_read_again_and_empty_leaves_no_row(self, world: ChangelogWorld) -> None:
        sink = world.splits()
        world.publish(sink, world.split(), (1, "a"))
        world.publish(sink, world.split(), high=200)
        assert world.held() == []

    def test_the_same_report_again_writes_nothing(self, world: ChangelogWorld) -> None:
        sink = world.splits()
        world.publish(sink, world.split(), (1, "a"))
        before = sorted(world.root.rglob("*"))
        world.publish(sink, world.split(), (1, "a"))
        assert sorted(world.root.rglob("*")) == before

    def test_rows_that_are_not_the_reports_are_refused(self, world: ChangelogWorld) -> None:
        rows = world.rows((1, "a"))
        report = replace(world.report(world.split(), rows), rows=2)
        with pytest.raises(IntegrityError, match="1 rows, its report says 2"):
            world.splits().publish(world.split(), rows, report)

    def test_a_new_plan_forgets_the_rows_of_the_old_one(self, world: ChangelogWorld) -> None:
        world.ledger.start_plan("one")
        world.publish(world.splits(), world.split(), (1, "a"))
        world.ledger.start_plan("one")
        assert world.held() == [(1, "a")]
        world.ledger.start_plan("two")
        assert (world.held(), list(world.ledger.reports())) == ([], [])


class TestHandOff:
    """Laws 5 and 6: a change log is filtered exactly, or the table is refused."""

    def test_a_change_that_its_split_has_read_is_not_repeated(self, world: ChangelogWorld) -> None:
        world.stream_from((1, "A"), (12, "B"), splits=(None, 10, None))
        world.changes().apply(
            world.batch(
                [insert(2, "of the stream"), insert(12, "B")],  # ends at 110, the H of the second
                [update((12, "B"), (12, "b"))],
            )
        )
        assert world.held() == [(1, "A"), (2, "of the stream"), (12, "b")]

    def test_a_key_that_moves_into_a_later_split_is_judged_by_both(
        self, world: ChangelogWorld
    ) -> None:
        world.stream_from((1, "a"), (12, "a"), splits=(None, 10, None))
        world.changes().apply(world.batch([update((1, "a"), (12, "a"))]))
        assert world.held() == [(12, "a")]
        assert [event["op"] for event in world.events()] == ["r", "r", "d"]

    def test_a_table_that_cannot_be_filtered_is_refused(self, world: ChangelogWorld) -> None:
        split = world.split()
        report = world.publish(world.splits(), split, (1, "a"))
        stream = hand_off([FinishedSplit.of(split, report, backfilled=False)], backfilled=False)
        with pytest.raises(RefusedError, match=r"shop\.orders cannot be told"):
            world.ledger.store_stream(stream)
        assert world.ledger.stream() is None

    def test_a_key_that_is_text_is_refused_before_anything_is_read(
        self, world: ChangelogWorld
    ) -> None:
        schema = replace(world.orders.schema, primary_key=("name",))
        with pytest.raises(RefusedError, match=r"shop\.orders cannot be told"):
            world.sink.open_tables().require_fit([replace(world.orders, schema=schema)])

    def test_a_split_that_is_not_in_the_log_is_not_handed_off(self, world: ChangelogWorld) -> None:
        split = world.split()
        report = world.report(split, world.rows((1, "a")))
        stream = hand_off([FinishedSplit.of(split, report, backfilled=True)])
        with pytest.raises(IntegrityError, match="not in the log"):
            world.ledger.store_stream(stream)


class TestChanges:
    """Law 7: changes and position are one commit."""

    def test_changes_and_position_are_committed(self, world: ChangelogWorld) -> None:
        world.stream_from((1, "a"), (2, "b"))
        sink = world.changes()
        applied = sink.apply(
            world.batch([insert(3, "c"), update((1, "a"), (1, "A"))], [delete(2, "b")])
        )
        assert world.held() == [(1, "A"), (3, "c")]
        assert (applied.changes, applied.transactions, applied.committed_us) == (3, 2, 7)
        assert applied.end == world.ledger.stream().start == sink.stream().start == at(120)
        assert world.ledger.counts().changes == 3

    def test_a_replayed_batch_adds_nothing(self, world: ChangelogWorld) -> None:
        world.stream_from()
        batch = world.batch([insert(1, "a")], [delete(1, "a")], [insert(1, "b")])
        sink = world.changes()
        sink.apply(batch)
        assert sink.apply(batch).changes == 0
        assert world.changes().apply(batch).changes == 0
        assert [event["op"] for event in world.events()] == ["c", "d", "c"]

    def test_a_doubled_writer_adds_nothing_twice(self, world: ChangelogWorld) -> None:
        world.stream_from()
        batch = world.batch([insert(1, "a")], [insert(2, "b")])
        one, other = world.changes(), world.changes()
        barrier = threading.Barrier(2)

        def apply(sink: Any) -> int:
            barrier.wait()
            return int(sink.apply(batch).changes)

        with ThreadPoolExecutor(2) as pool:
            counts = sorted(pool.map(apply, (one, other)))
        assert counts == [0, 2]
        assert world.held() == [(1, "a"), (2, "b")]

    def test_a_transaction_in_parts_counts_only_when_it_is_whole(
        self, world: ChangelogWorld
    ) -> None:
        world.stream_from()
        sink = world.changes()
        assert sink.apply(world.batch([insert(1, "a")], end=None)) is None
        assert (world.held(), world.ledger.stream().start) == ([], at(100))
        applied = sink.apply(world.batch([insert(2, "b")]))
        assert (applied.changes, applied.transactions) == (2, 1)
        assert world.held() == [(1, "a"), (2, "b")]
        assert [e["transaction"]["total_order"] for e in world.events()] == [1, 2]
        assert [(m["status"], m["event_count"]) for m in world.markers()] == [
            ("BEGIN", None),
            ("END", 2),
        ]

    def test_what_was_written_of_a_transaction_is_gone_with_its_writer(
        self, world: ChangelogWorld
    ) -> None:
        world.stream_from()
        sink = world.changes()
        sink.apply(world.batch([insert(1, "a")], end=None))
        sink.close()
        world.changes().apply(world.batch([insert(1, "a"), insert(2, "b")]))
        assert world.held() == [(1, "a"), (2, "b")]
        assert [file for file in world.root.rglob("*") if ".unfinished" in file.name] == []

    def test_a_truncate_is_an_event_and_the_log_goes_on(self, world: ChangelogWorld) -> None:
        world.stream_from((1, "a"))
        sink = world.changes()
        sink.apply(world.batch([insert(2, "b")], barrier=_statement("TRUNCATE TABLE orders", 110)))
        sink.apply(world.batch([insert(1, "new")], start=110))
        events = [(event["op"], event["key"]) for event in world.events()]
        assert events == [("r", {"id": 1}), ("c", {"id": 2}), ("t", None), ("c", {"id": 1})]

    def test_a_truncate_that_a_split_may_have_seen_stops(self, world: ChangelogWorld) -> None:
        world.stream_from((1, "a"), (12, "b"), splits=(None, 10, 20, None))
        batch = world.batch([insert(2, "b")], end=110)
        batch = replace(batch, barrier=_statement("TRUNCATE TABLE orders", 110))
        with pytest.raises(TableChangedError):
            world.changes().apply(batch)

    def test_a_changed_table_stops_behind_what_came_before(self, world: ChangelogWorld) -> None:
        world.stream_from()
        altered = _statement("ALTER TABLE orders ADD COLUMN x INT", 110)
        with pytest.raises(TableChangedError):
            world.changes().apply(world.batch([insert(1, "a")], end=120, barrier=altered))
        assert world.held() == [(1, "a")]
        assert world.ledger.stream().start == at(110)


class TestOwners:
    """Law 8: one owner."""

    def test_a_writer_that_is_overtaken_between_its_files_and_its_commit_is_refused(
        self, world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.stream_from()
        late = world.changes()
        link = file_store.link_once
        owner = world.under(2).open_ledger()

        def overtaken(*paths: Any) -> bool:
            monkeypatch.setattr(file_store, "link_once", link)
            owner.take_over(2)
            return link(*paths)

        monkeypatch.setattr(file_store, "link_once", overtaken)
        with pytest.raises(FencedError):
            late.apply(world.batch([insert(1, "late")]))
        assert world.held() == []
        world.changes(2).apply(world.batch([insert(1, "in time")]))
        assert world.held() == [(1, "in time")]

    def test_what_nobody_committed_is_deleted_by_the_next_owner(
        self, world: ChangelogWorld
    ) -> None:
        world.sink.open_targets().claim([world.orders])
        world.publish(world.splits(), world.split(), (1, "old"))
        world.publish(world.splits(), world.split(), (1, "new"), high=200)
        kept = world.root / "shop.orders" / "notes.txt"
        kept.write_text("not ours")
        assert len(list(kept.parent.iterdir())) == 3
        world.under(2).open_ledger().take_over(2)
        assert len(list(kept.parent.iterdir())) == 2
        assert kept.exists()
        assert world.held() == [(1, "new")]

    def test_another_pipelines_folder_is_refused(self, world: ChangelogWorld) -> None:
        other = ChangelogWorld.__new__(ChangelogWorld)
        with pytest.raises(RefusedError, match="the folder belongs to pipeline"):
            ChangelogWorld.__init__(other, root=world.root, form=world.form)


def test_any_schedule_of_doubles_and_replays_holds_each_change_once(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "CHECKPOINT_EVERY", 7)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    world.stream_from()
    rows: dict[int, str] = {}
    transactions: list[list[Change]] = [_transaction(draw, rows) for _ in range(60)]
    sinks = [world.changes() for _ in range(3)]
    done = 0
    while done < len(transactions):
        if draw.random() < 0.2:
            place = draw.randrange(3)
            sinks[place] = world.changes()
        first = draw.randint(max(0, done - 3), done)
        last = draw.randint(first + 1, min(len(transactions), first + 6))
        batch = world.batch(*transactions[first:last], start=100 + 10 * first)
        draw.choice(sinks).apply(batch)
        done = max(done, last)
    assert world.held() == sorted(rows.items())
    assert len(world.events()) == sum(map(len, transactions))
    assert [marker["status"] for marker in world.markers()] == ["BEGIN", "END"] * 60


def _transaction(draw: random.Random, rows: dict[int, str]) -> list[Change]:
    changes: list[Change] = []
    for _ in range(draw.randint(1, 3)):
        key, name = draw.randrange(10), f"name {draw.random()}"
        if key not in rows:
            changes.append(insert(key, name))
            rows[key] = name
        elif draw.random() < 0.5:
            changes.append(update((key, rows[key]), (key, name)))
            rows[key] = name
        else:
            changes.append(delete(key, rows.pop(key)))
    return changes


def _statement(sql: str, start: int) -> Statement:
    return Statement("shop", sql, point(start, start + 10), effect_of(sql, default_database="shop"))


class TestQuietLog:
    """Log that holds nothing for the sink makes no manifest of its own."""

    def test_a_batch_without_changes_commits_nothing_and_the_next_one_follows(
        self, world: ChangelogWorld
    ) -> None:
        world.stream_from()
        sink = world.changes()
        sink.apply(world.batch([insert(1, "a")]))
        before = sorted(world.root.rglob("*"))
        sink.apply(world.batch([], start=110))
        sink.apply(world.batch([], start=120))
        assert sorted(world.root.rglob("*")) == before
        assert sink.quiet == IdleRange(at(110), at(130), only_ledgers=False)
        sink.apply(world.batch([insert(2, "b")], start=130))
        assert (world.held(), sink.quiet) == ([(1, "a"), (2, "b")], None)
        assert world.ledger.stream().start == at(140)

    def test_the_ledger_moves_over_quiet_log_only_from_where_it_is(
        self, world: ChangelogWorld
    ) -> None:
        world.stream_from()
        world.ledger.pass_over(IdleRange(at(110), at(150), only_ledgers=False))
        assert world.ledger.stream().start == at(100)
        world.ledger.pass_over(IdleRange(at(90), at(150), only_ledgers=False))
        assert world.ledger.stream().start == at(150)
        assert world.ledger.counts().batches == 0

    def test_an_older_generation_moves_over_nothing(self, world: ChangelogWorld) -> None:
        world.stream_from()
        world.under(2).open_ledger().take_over(2)
        with pytest.raises(FencedError):
            world.ledger.pass_over(IdleRange(at(100), at(150), only_ledgers=False))
