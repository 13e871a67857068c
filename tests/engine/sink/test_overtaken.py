"""Somebody else is first, just before a transaction commits."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import FencedError
from airflow_cdc_provider.engine.sink.selection import Selection
from airflow_cdc_provider.engine.sink.slots import whole_table_slot
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import insert, update
from tests.behaviours.source_log import at
from tests.engine.sink.world import MemoryWorld


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def test_a_newer_owner_keeps_a_split_of_the_older_one_out(world: MemoryWorld) -> None:
    sink = world.splits()
    world.memory.before_commit = lambda: world.ledger.take_over(2)
    with pytest.raises(FencedError, match="generation 2 owns"):
        world.publish(sink, world.split(), (1, "late"))
    assert (world.held(), list(world.ledger.reports())) == ([], [])


def test_a_hand_off_keeps_a_split_of_its_table_out(world: MemoryWorld) -> None:
    sink = world.splits()
    world.memory.before_commit = lambda: world.hand_off("orders")
    with pytest.raises(FencedError, match="handed off"):
        world.publish(sink, world.split(), (1, "late"), high=50)
    assert world.held() == []


def test_a_newer_owner_keeps_changes_of_the_older_one_out(world: MemoryWorld) -> None:
    world.hand_off()
    sink = world.changes()
    world.memory.before_commit = lambda: world.ledger.take_over(2)
    with pytest.raises(FencedError, match="generation 2 owns"):
        sink.apply(world.batch([insert(1, "late")]))
    assert (world.held(), world.ledger.stream().start) == ([], at(100))


def test_a_double_of_a_writer_finds_that_its_batch_is_there(world: MemoryWorld) -> None:
    world.hand_off()
    sink, double = world.changes(), world.changes()
    batch = world.batch([insert(1, "once")])
    world.memory.before_commit = lambda: double.apply(batch)
    assert sink.apply(batch).changes == 0
    assert (world.held(), world.ledger.counts().changes) == ([(1, "once")], 1)


def test_writers_that_are_apart_have_reached_what_all_have(world: MemoryWorld) -> None:
    world.writers = 2
    world.hand_off()
    sink = world.changes()
    first = world.batch([insert(key, "a") for key in range(8)])
    sink.apply(first)
    second = world.batch([insert(key, "b") for key in range(10, 18)], start=110)
    ahead = sink._writers[1]
    ahead.apply(Selection(second, sink._captured))
    assert sink.apply(first).end == at(110)


def test_rows_join_where_the_stream_is_when_they_commit(world: MemoryWorld) -> None:
    world.hand_off(orders=[(1, "a"), (12, "wrong")])
    changes = world.changes()
    joins = world.opened(world.sink.open_joins())
    epoch = joins.begin("r", [world.orders.schema.table])
    batch = world.batch([insert(2, "b")])
    world.memory.before_commit = lambda: changes.apply(batch)
    place, asked = join(world, joins, world.split(1, 10, 20), (12, "b"), epoch=epoch)
    assert (place, asked) == (at(110), [at(100), at(110)])
    assert world.held() == [(1, "a"), (2, "b"), (12, "b")]


def test_a_newer_owner_keeps_joins_of_the_older_one_out(world: MemoryWorld) -> None:
    world.hand_off(orders=[(1, "a")])
    joins = world.opened(world.sink.open_joins())
    world.memory.before_commit = lambda: world.ledger.take_over(2)
    with pytest.raises(FencedError, match="generation 2 owns"):
        joins.begin("r", [world.orders.schema.table])
    assert world.memory.content.epochs == {}


def test_a_table_that_one_writer_had_to_itself_goes_on_where_that_one_was(
    world: MemoryWorld,
) -> None:
    """What it has would meet what came later: seat 20 is another's by then."""
    world.writers = 2
    world.hand_off(seats=[(1, 10), (2, 20)])
    sink = world.changes()
    exchanged = world.batch(
        [update((1, 10), (1, 99)), update((2, 20), (2, 10)), update((1, 99), (1, 20))],
        table="seats",
    )
    given_on = world.batch([update((1, 20), (1, 30)), insert(3, 20)], table="seats", start=110)
    owner = sink._writers[whole_table_slot(world.seats.schema.table, 2)]
    for batch in (exchanged, given_on):
        owner.apply(Selection(batch, sink._captured))
    sink.close()
    world.writers = 1
    again = world.changes()
    assert world.ledger.stream().start == at(100)
    for batch in (exchanged, given_on):
        again.apply(batch)
    assert world.held("seats") == [(1, 30), (2, 10), (3, 20)]
