"""Tables that are added to a change log, or begin again: each row once, each change behind it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_cdc_provider.core.errors import (
    FencedError,
    RefusedError,
    SinkBusyError,
    SplitOutdatedError,
    StateMovedError,
)
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.engine.sink.port import JoinedRows, JoinedSplit
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.systems.changelog.reading import sealed_files
from airflow_cdc_provider.systems.file_log import changes as changes_module
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.file_log.changes import LogChangeSink
from airflow_cdc_provider.systems.file_log.joins import LogJoinSink, _Joining
from airflow_cdc_provider.systems.file_log.row_form import LogFiles
from airflow_cdc_provider.systems.file_log.tree import Constant, Members, number, numbers
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_change_behaviours import history
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import Row, delete, insert, update
from tests.behaviours.source_log import at
from tests.systems.changelog.world import ChangelogWorld


def begin(world: ChangelogWorld) -> None:
    """Hand `seats` off at 100, and add `orders` there."""
    world.hand_off("seats")
    world.ledger.change_tables(added={world.orders.schema.table: at(100)})


def read(world: ChangelogWorld) -> None:
    """Tell the ledger that all rows are read."""
    world.ledger.change_tables(read=[world.orders.schema.table])


def operations(world: ChangelogWorld) -> str:
    return "".join(event["op"] for event in world.events())


def test_rows_join_where_the_stream_is_once_it_is_past_h(world: ChangelogWorld) -> None:
    begin(world)
    joins, split = world.opened(world.sink.open_joins()), world.split()
    assert join(world, joins, split, (1, "a"), high=105) == (None, [])
    world.changes().apply(world.batch([insert(1, "a")]))
    place, asked = join(world, joins, split, (1, "a"), (2, "b"), high=105)
    assert (place, asked[-1]) == (at(110), at(110))
    assert joins.joined("r") == (JoinedSplit(split, 2, at(110)),)
    world.changes().apply(world.batch([update((1, "a"), (1, "A"))], start=110))
    read(world)
    world.changes().apply(world.batch([delete(2, "b")], start=120))
    assert (operations(world), world.held()) == ("rrud", [(1, "A")])


def test_changes_of_a_range_follow_its_rows_and_those_of_others_come_with_them(
    world: ChangelogWorld,
) -> None:
    begin(world)
    joins, low, high = (
        world.opened(world.sink.open_joins()),
        world.split(0, None, 10),
        world.split(1, 10, None),
    )
    join(world, joins, low, (1, "a"), (2, "b"))
    world.changes().apply(
        world.batch([update((1, "a"), (1, "A")), insert(12, "l"), update((2, "b"), (13, "b"))])
    )
    assert (operations(world), world.held()) == ("rrud", [(1, "A")])
    join(world, joins, high, (12, "l"), (13, "b"))
    read(world)
    world.changes().apply(world.batch([update((13, "b"), (3, "b"))], start=110))
    assert world.held() == [(1, "A"), (3, "b"), (12, "l")]


def test_a_split_joins_once_and_is_known_by_its_range(world: ChangelogWorld) -> None:
    begin(world)
    joins, split = world.opened(world.sink.open_joins()), world.split(0, None, 10)
    assert join(world, joins, split, (1, "a"))[0] == at(100)
    before = sealed_files(world.root, "shop.orders")
    assert join(world, joins, split, (1, "a")) == (at(100), [])
    assert sealed_files(world.root, "shop.orders") == before
    with pytest.raises(SplitOutdatedError, match="has joined as"):
        join(world, joins, world.split(0, None, 20), (1, "a"), (12, "b"))


def test_who_began_a_request_before_joins_nothing_any_more(world: ChangelogWorld) -> None:
    begin(world)
    old, new = (world.opened(world.sink.open_joins()) for _ in range(2))
    first = old.begin("r", [world.orders.schema.table])
    second = new.begin("r", [world.orders.schema.table])
    with pytest.raises(StateMovedError, match="request r was begun again"):
        join(world, old, world.split(), (1, "zombie"), epoch=first)
    assert join(world, new, world.split(0, None, 10), (1, "a"), epoch=second)[0] == at(100)
    new.forget("r")
    with pytest.raises(StateMovedError, match="or ended"):
        join(world, new, world.split(1, 10, None), (12, "zombie"), epoch=second)
    assert world.held() == [(1, "a")]


def test_only_the_owner_joins(world: ChangelogWorld) -> None:
    begin(world)
    joins = world.opened(world.sink.open_joins())
    epoch = joins.begin("r", [world.orders.schema.table])
    world.ledger.take_over(2)
    with pytest.raises(FencedError):
        join(world, joins, world.split(), (1, "zombie"), epoch=epoch)
    assert world.held() == []


def test_rows_that_join_count_as_changes_of_their_table(world: ChangelogWorld) -> None:
    begin(world)
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (1, "b"), (2, "d"))
    join(world, joins, world.split(1, 10, None))
    counted = world.ledger.table_changes()
    assert counted == {world.orders.schema.table: TableChangeCount(3, at(100))}


def test_a_table_that_the_log_has_already_takes_no_rows(world: ChangelogWorld) -> None:
    world.hand_off(orders=[(1, "a")])
    joins = world.opened(world.sink.open_joins())
    with pytest.raises(RefusedError, match=r"has each change of shop\.orders already"):
        join(world, joins, world.split(), (1, "again"))
    with pytest.raises(RefusedError, match="has each change"):
        joins.held_keys(world.split())
    assert joins.freed_keys("r", world.orders.schema.table).num_rows == 0


def test_a_table_that_begins_again_voids_what_the_log_has_of_it(world: ChangelogWorld) -> None:
    world.hand_off(orders=[(1, "gone without an event"), (2, "b")])
    change = altered(world.orders, through=110, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    world.changes().apply(world.batch([insert(9, "void")], [insert(3, "between")]))
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 3), (2, "B"))
    join(world, joins, world.split(1, 3, None), (3, "between"))
    read(world)
    assert (operations(world), world.held()) == ("rrtrr", [(2, "B"), (3, "between")])
    (void,) = [event for event in world.events() if event["op"] == "t"]
    assert (void["key"], void["before"], void["after"]) == (None, None, None)
    assert void["source"]["snapshot"] == "true"
    assert len(sealed_files(world.root, "shop.orders")) == 3


def test_a_request_that_was_given_up_is_begun_again_by_the_next_one(world: ChangelogWorld) -> None:
    begin(world)
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (1, "a"))
    world.changes().apply(world.batch([update((1, "a"), (1, "A"))]))
    joins.forget("r")
    world.changes().apply(world.batch([update((1, "A"), (1, "AA"))], start=110))
    assert world.held() == [(1, "AA")]
    joins.begin("other", [world.orders.schema.table])
    report = world.report(world.split(), world.rows((1, "AA"), (12, "b")))
    rows = JoinedRows(world.rows((1, "AA"), (12, "b")))
    joins.join("other", world.split(), report, lambda _: rows, epoch=1)
    read(world)
    assert (operations(world), world.held()) == ("ruutrr", [(1, "AA"), (12, "b")])


def test_a_request_does_not_go_on_with_a_table_that_has_begun_again(world: ChangelogWorld) -> None:
    begin(world)
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (1, "a"))
    change = altered(world.orders, through=110, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    world.changes().apply(world.batch([insert(12, "x")], start=100, end=110, table="orders"))
    with pytest.raises(SplitOutdatedError, match="has begun again since"):
        join(world, joins, world.split(1, 10, None), (12, "x"), high=110)


def test_rows_are_asked_for_again_when_the_stream_moves_while_they_are_written(
    world: ChangelogWorld,
) -> None:
    begin(world)
    joins, changes = world.opened(world.sink.open_joins()), world.changes()
    epoch = joins.begin("r", [world.orders.schema.table])
    asked: list[LogPosition] = []

    def rows_at(position: LogPosition) -> JoinedRows:
        asked.append(position)
        if len(asked) == 1:
            changes.apply(world.batch([insert(1, "a")]))
        return JoinedRows(world.rows(*([] if len(asked) == 1 else [(1, "a")])))

    report = world.report(world.split(), world.rows())
    assert joins.join("r", world.split(), report, rows_at, epoch=epoch) == at(110)
    assert asked == [at(100), at(110)]
    assert world.held() == [(1, "a")]


def test_a_batch_that_rows_have_overtaken_is_chosen_again(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch leaves out what would come with the rows, and the rows are there now."""
    begin(world)
    joins, changes = world.opened(world.sink.open_joins()), world.changes()
    epoch = joins.begin("r", [world.orders.schema.table])
    commit = manifest_module.Manifest.commit
    overtaken: list[bool] = []

    def overtake(self: Any, generation: int, judge: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            joins._join(joining)
        return commit(self, generation, judge)

    report = world.report(world.split(), world.rows())
    rows = JoinedRows(world.rows())
    joining = _Joining("r", epoch, world.split(), report.high, lambda _: rows)
    monkeypatch.setattr(manifest_module.Manifest, "commit", overtake)
    changes.apply(world.batch([insert(1, "a")]))
    assert (operations(world), world.held()) == ("c", [(1, "a")])
    assert len(list((world.root / "shop.orders").iterdir())) == 1


def test_rows_that_a_batch_of_another_process_has_overtaken_are_written_again(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(world)
    joins, changes = world.opened(world.sink.open_joins()), world.changes()
    epoch = joins.begin("r", [world.orders.schema.table])
    commit = manifest_module.Manifest.commit
    overtaken: list[bool] = []
    monkeypatch.setattr(changes_module, "turn_at", nullcontext)  # processes share no turns

    def overtake(self: Any, generation: int, judge: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            changes.apply(world.batch([insert(1, "a")]))
        return commit(self, generation, judge)

    def rows_at(position: LogPosition) -> JoinedRows:
        return JoinedRows(world.rows(*([] if position == at(100) else [(1, "a")])))

    report = world.report(world.split(), world.rows())
    monkeypatch.setattr(manifest_module.Manifest, "commit", overtake)
    assert joins.join("r", world.split(), report, rows_at, epoch=epoch) == at(110)
    assert (operations(world), world.held()) == ("r", [(1, "a")])
    assert len(list((world.root / "shop.orders").iterdir())) == 1


def test_a_transaction_in_parts_that_rows_have_overtaken_is_begun_again(
    world: ChangelogWorld,
) -> None:
    begin(world)
    joins, changes = world.opened(world.sink.open_joins()), world.changes()
    changes.apply(world.batch([insert(1, "a")], end=None))
    join(world, joins, world.split())
    with pytest.raises(SinkBusyError):
        changes.apply(world.batch([insert(2, "b")], end=110))
    again = world.changes()
    again.apply(world.batch([insert(1, "a"), insert(2, "b")]))
    assert world.held() == [(1, "a"), (2, "b")]


class Numbered:
    """Rows that have nothing but their events' numbers in the log."""

    def read(self, rows: Any, *_: object) -> Members:
        return Members((("n", Constant(-1, pa.int64())),))

    def changed(self, events: Any, places: Any, *_: object) -> Members:
        return Members((("n", numbers(places.in_log)),))

    def truncated(self, columns: Any, by: Any, *_: object) -> Members:
        return Members((("n", number(by.in_log)),))

    def joined(self, rows: Any, *_: object, first: int) -> Members:
        return Members((("n", numbers(np.arange(first, first + rows.num_rows))),))

    def voided(self, *_: object, number: int) -> Members:
        return Members((("n", Constant(number, pa.int64())),))


def test_rows_that_join_are_numbered_among_the_events_of_a_log_that_counts_them(
    world: ChangelogWorld,
) -> None:
    files = LogFiles(
        world.root, world.form, lambda *_: Numbered(), has_markers=False, counts_events=True
    )
    plans, owner = (world.orders, world.seats), world.sink.owner

    def changes() -> LogChangeSink:
        return LogChangeSink(files, owner, CapturedTables(plans, world.columns))

    begin(world)
    joins = LogJoinSink(files, owner, plans)
    changes().apply(world.batch([insert(1, 1)], [insert(2, 2)], table="seats"))
    join(world, joins, world.split(0, None, 10), (1, "a"), (2, "b"))
    changes().apply(world.batch([insert(3, "c")], start=120))
    join(world, joins, world.split(1, 10, None), (12, "d"))
    read(world)
    changes().apply(world.batch([insert(13, "e"), delete(3, "c")], start=130))
    change = altered(world.orders, through=140, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    joins.forget("r")
    join(world, joins, world.split(), (1, "a"))
    assert [event["n"] for event in world.events("seats")] == [0, 1]
    assert [event["n"] for event in world.events()] == [2, 3, 4, 5, 6, 7, 8, 9]


def test_any_history_with_joins_and_restarts_anywhere_makes_the_sources_rows(
    world: ChangelogWorld,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for round_ in range(4):
        made = replace_world(world, round_)
        begin(made)
        check_history(made, rng)


def replace_world(world: ChangelogWorld, round_: int) -> ChangelogWorld:
    root = world.root.with_name(f"log{round_}")
    return ChangelogWorld(root=root, form=world.form)


def check_history(world: ChangelogWorld, rng: random.Random) -> None:
    """Apply a history while splits join, with doubles, restarts and tables that begin again."""
    transactions, final = history(rng, 60)
    bounds = [None, 4, 8, None]
    left, requests, done = list(range(3)), 0, 0
    changes, joins = world.changes(), world.opened(world.sink.open_joins())
    orders = world.orders.schema.table
    while done < len(transactions) or left:
        act = rng.random()
        if act < 0.25 and left:
            number = left[0]
            split = world.split(number, bounds[number], bounds[number + 1])
            epoch = joins.begin(f"r{requests}", [orders])
            high = rng.randint(0, done)
            report = world.report(split, world.rows(), high=100 + 10 * high)
            rows = rows_within(transactions[:done], split)
            held = JoinedRows(world.rows(*rows))
            assert joins.join(f"r{requests}", split, report, lambda _, r=held: r, epoch=epoch)
            left.pop(0)
            if not left:
                read(world)
        elif act < 0.32 and len(left) < 3 and done < 40:
            # the table begins again where it is
            change = altered(world.orders, through=100 + 10 * done, rereads=True)
            world.ledger.begin_changes([change])
            world.ledger.end_change(change)
            requests, left = requests + 1, list(range(3))
            changes = world.changes()
        elif act < 0.4:
            changes.close()
            changes = world.changes()
            joins = world.opened(world.sink.open_joins())
        elif done < len(transactions):
            first = rng.randint(max(0, done - 3), done)
            last = rng.randint(done + 1, min(len(transactions), done + 6))
            changes.apply(world.batch(*transactions[first:last], start=100 + 10 * first))
            done = last
    assert dict(world.held()) == final


def rows_within(transactions: Sequence[Any], split: Any) -> list[Row]:
    """The rows of the source in a range behind some transactions."""
    rows: dict[Any, Row] = {}
    for changes in transactions:
        for _, before, after in changes:
            if before is not None:
                rows.pop(before[0])
            if after is not None:
                rows[after[0]] = after
    return [row for key, row in sorted(rows.items()) if split.keys.contains((key,))]
