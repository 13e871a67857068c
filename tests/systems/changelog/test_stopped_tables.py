"""A table of a change log that stands still alone, and comes back: each change once."""

from __future__ import annotations

import random
from typing import Any

from airflow_cdc_provider.core.idle_log import IdleRange
from tests.behaviours.sink_change_behaviours import history
from tests.behaviours.sink_world import insert, update
from tests.behaviours.source_log import at
from tests.systems.changelog.world import ChangelogWorld


def alone(world: ChangelogWorld) -> Any:
    """The sink of `orders`, which is isolated."""
    table = world.orders.schema.table
    return world.opened(world.sink.open_stopped(table, {table: world.columns[table]}))


def test_a_table_stands_where_it_was_stopped_and_comes_back_where_the_stream_is(
    world: ChangelogWorld,
) -> None:
    world.hand_off(orders=[(1, "a")])
    orders, changes = world.orders.schema.table, world.changes()
    changes.apply(world.batch([insert(2, "b")]))
    world.ledger.stop_tables([orders])
    left_out = world.batch([insert(3, "c")], [update((3, "c"), (3, "C"))], start=110)
    changes.apply(left_out)
    assert (world.held(), world.ledger.stream().start) == ([(1, "a"), (2, "b")], at(130))
    catching_up, markers = alone(world), len(world.markers())
    assert catching_up.stream().start == at(110)
    catching_up.apply(left_out)
    catching_up.apply(left_out)
    further = world.batch([insert(4, "d")], start=130)
    catching_up.apply(further)
    assert len(world.markers()) == markers
    world.ledger.rejoin(orders)
    again = world.changes()
    for batch in (left_out, further, world.batch([insert(5, "e")], start=140)):
        again.apply(batch)
    assert world.held() == [(1, "a"), (2, "b"), (3, "C"), (4, "d"), (5, "e")]
    assert world.ledger.stream().start == at(150)


def test_of_two_that_bring_a_table_back_each_change_is_there_once(world: ChangelogWorld) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    world.hand_off()
    orders = world.orders.schema.table
    transactions, final = history(rng, 40)
    world.ledger.stop_tables([orders])
    sinks, done = [alone(world), alone(world)], 0
    while done < len(transactions):
        first = rng.randint(max(0, done - 3), done)
        last = rng.randint(done + 1, min(len(transactions), done + 6))
        rng.choice(sinks).apply(world.batch(*transactions[first:last], start=100 + 10 * first))
        done = last
    assert dict(world.held()) == final
    world.ledger.pass_over(IdleRange(at(100), at(100 + 10 * done), only_ledgers=False))
    world.ledger.rejoin(orders)
    assert world.ledger.stopped() == ()
