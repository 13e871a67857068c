"""Whatever a sink was doing when its session ended, it has done all of it or nothing (laws 4, 7).

Each session ends at an act that chance picks, in front of it or behind a commit whose answer is
lost. Whoever opens the sink again goes on from what the ledger says. After each end the rows are
those of the source where the ledger says that the sink is, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.sink.change_sink import SlotChangeSink
from airflow_cdc_provider.engine.sink.port import JoinedRows
from tests.behaviours.sink_change_behaviours import history
from tests.behaviours.sink_world import Change, Row, update
from tests.engine.sink.world import MemoryWorld

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=80, deadline=None)


class Source:
    """A history of `orders`, ten bytes of log a transaction from 100 on, and its rows anywhere."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.transactions, _ = history(rng, count)
        self.rows: list[dict[int, str]] = [{}]
        for changes in self.transactions:
            self.rows.append(_changed(self.rows[-1], changes))

    @property
    def end(self) -> int:
        return 100 + 10 * len(self.transactions)

    def at(self, offset: int) -> list[Row]:
        """The rows at a place of the log."""
        return sorted(self.rows[(offset - 100) // 10].items())

    def number(self, offset: int) -> int:
        return (offset - 100) // 10


def _changed(rows: dict[int, str], changes: Sequence[Change]) -> dict[int, str]:
    found = dict(rows)
    for op, before, after in changes:
        if op is not Op.INSERT and before is not None:
            del found[before[0]]
        if op is not Op.DELETE and after is not None:
            found[after[0]] = after[1]
    return found


def offset(position: LogPosition) -> int:
    found = position.facts()["pos"]
    assert isinstance(found, int)
    return found


def _apply_all(
    world: MemoryWorld, sink: SlotChangeSink, source: Source, rng: random.Random
) -> None:
    """Apply transactions, in batches and in parts of them, until the end of the log or a kill."""
    stream = sink.stream()
    assert stream is not None
    start = offset(stream.start)
    while start < source.end:
        first = source.number(start)
        if len(source.transactions[first]) > 1 and rng.random() < 0.3:
            changes = source.transactions[first]
            cut = rng.randrange(1, len(changes))
            assert sink.apply(world.batch(changes[:cut], start=start, end=None)) is None
            last = first + 1
            sink.apply(world.batch(changes[cut:], start=start))
        else:
            last = rng.randint(first + 1, min(first + 5, len(source.transactions)))
            begin = max(0, first - rng.randrange(3))  # some of it is there already
            sink.apply(world.batch(*source.transactions[begin:last], start=100 + 10 * begin))
        start = 100 + 10 * last


@MANY
@given(seed=SEEDS)
def test_of_changes_rows_and_position_are_there_together(seed: int) -> None:
    rng = random.Random(seed)
    world, source = MemoryWorld(), Source(rng, 25)
    world.hand_off()
    is_done = False
    while not is_done:
        sink = world.changes(fuse=rng.randint(2, 120))
        try:
            _apply_all(world, sink, source, rng)
            is_done = True
        except SinkUnreachableError:
            pass
        sink.close()
        assert world.held() == source.at(offset(world.ledger.stream().start))
    counts = world.ledger.counts()
    assert counts.transactions == len(source.transactions)
    assert counts.changes == sum(map(len, source.transactions))
    assert world.held() == source.at(source.end)


@MANY
@given(seed=SEEDS)
def test_of_several_writers_each_goes_on_from_its_own_position(seed: int) -> None:
    rng = random.Random(seed)
    world, source = MemoryWorld(), Source(rng, 25)
    world.hand_off()
    before, is_done = 0, False
    while not is_done:
        world.writers = rng.randint(1, 4)
        sink = world.changes(fuse=rng.randint(2, 120))
        try:
            _apply_all(world, sink, source, rng)
            is_done = True
        except SinkUnreachableError:
            pass
        sink.close()
        reached = offset(world.ledger.stream().start)
        assert reached >= before
        before = reached
    assert world.held() == source.at(source.end)


@MANY
@given(seed=SEEDS)
def test_unique_values_are_exchanged_by_one_writer_whatever_their_number(seed: int) -> None:
    """A table with a second unique key is one writer's, and goes on where that one was."""
    rng = random.Random(seed)
    world, seats = MemoryWorld(), {key: 10 * key for key in range(1, 5)}
    world.hand_off(seats=sorted(seats.items()))
    transactions = [_exchanged(seats, *rng.sample(sorted(seats), 2)) for _ in range(12)]
    batches = [
        world.batch(changes, table="seats", start=100 + 10 * number)
        for number, changes in enumerate(transactions)
    ]
    reached = 100
    while reached < 100 + 10 * len(batches):
        world.writers = rng.randint(1, 4)
        sink = world.changes(fuse=rng.randint(5, 60))
        try:
            for batch in batches[(reached - 100) // 10 :]:
                sink.apply(batch)
        except SinkUnreachableError:
            pass
        sink.close()
        reached = offset(world.ledger.stream().start)
    assert dict(world.held("seats")) == seats


def _exchanged(seats: dict[int, int], one: int, other: int) -> list[Change]:
    """Let two rows exchange their seats, by way of one that is free."""
    first, second = seats[one], seats[other]
    seats[one], seats[other] = second, first
    return [
        update((one, first), (one, 99)),
        update((other, second), (other, first)),
        update((one, 99), (one, second)),
    ]


@MANY
@given(seed=SEEDS)
def test_of_a_split_rows_and_report_are_there_together(seed: int) -> None:
    """Splits are read again and again, each time with other rows, by sessions that end."""
    rng = random.Random(seed)
    world = MemoryWorld()
    bounds = [None, 10, 20, None]
    splits = [world.split(number, *ends) for number, ends in enumerate(pairwise(bounds))]
    read: dict[tuple[str, int], list[Row]] = {}
    left = {split.split_id for split in splits}
    while left:
        sink = world.opened(world.under(1, fuse=rng.randint(2, 40)).open_splits())
        try:
            for split in rng.sample(splits, 3):
                high = 100 + len(read)
                keys = rng.sample(range(10 * split.number, 10 * split.number + 10), 4)
                rows: list[Row] = [(key, f"read at {high}") for key in sorted(keys)]
                read[split.split_id, high] = rows
                world.publish(sink, split, *rows, high=high)
                left.discard(split.split_id)
        except SinkUnreachableError:
            pass
        wanted: list[Row] = []
        for split, report in world.ledger.reports():
            wanted += read[split.split_id, offset(report.high)]
        assert world.held() == sorted(wanted)


@MANY
@given(seed=SEEDS)
def test_rows_join_where_the_stream_is_or_not_at_all(seed: int) -> None:
    """The sink has drifted; all is read again, in ranges, while the stream flows and owners die."""
    rng = random.Random(seed)
    world, source = MemoryWorld(writers=rng.randint(1, 3)), Source(rng, 25)
    world.hand_off(orders=[(key, "drifted") for key in range(1, 13)])
    bounds = [None, 4, 9, None]
    left = [world.split(number, *ends) for number, ends in enumerate(pairwise(bounds))]
    while left or offset(world.ledger.stream().start) < source.end:
        fuse = rng.randint(2, 80)
        try:
            if rng.random() < 0.5:
                changes = world.changes(fuse=fuse)
                _apply_few(world, changes, source, rng)
            elif left:
                _join(world, source, rng, left, fuse)
        except SinkUnreachableError:
            pass
        _joined_ranges_are_right(world, source, left)
    assert world.held() == source.at(source.end)


def _apply_few(
    world: MemoryWorld, sink: SlotChangeSink, source: Source, rng: random.Random
) -> None:
    """Apply a few transactions from the ledger's position on."""
    stream = sink.stream()
    assert stream is not None
    first = source.number(offset(stream.start))
    last = min(len(source.transactions), first + rng.randint(1, 4))
    if first < last:
        sink.apply(world.batch(*source.transactions[first:last], start=100 + 10 * first))


def _join(
    world: MemoryWorld, source: Source, rng: random.Random, left: list[SnapshotSplit], fuse: int
) -> None:
    joins = world.opened(world.under(1, fuse=fuse).open_joins())
    epoch = joins.begin("r", [world.orders.schema.table])
    split = rng.choice(left)
    stream = world.ledger.stream()
    high = rng.randint(100, offset(stream.start) + 30) // 10 * 10

    def rows_at(position: LogPosition) -> JoinedRows:
        rows = [row for row in source.at(offset(position)) if split.keys.contains(row[:1])]
        return JoinedRows(world.rows(*rows))

    report = world.report(split, world.rows(), high=min(high, source.end))
    joins.join("r", split, report, rows_at, epoch=epoch)


def _joined_ranges_are_right(world: MemoryWorld, source: Source, left: list[SnapshotSplit]) -> None:
    """What has joined is the source where the stream is, if all writers are there."""
    content = world.memory.content
    joined = [each.split for each, _ in content.joined.values()]
    left[:] = [split for split in left if split not in joined]
    places = {offset(slot.position) for slot in content.state.slots or ()}
    if len(places) > 1:
        return
    at_source = source.at(places.pop())
    for split in joined:
        ours = [row for row in world.held() if split.keys.contains(row[:1])]
        assert ours == [row for row in at_source if split.keys.contains(row[:1])]
