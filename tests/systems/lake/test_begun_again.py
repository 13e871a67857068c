"""A lake's table that is added, or begins again, is shown once all its rows are there."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import Row, insert, update
from tests.behaviours.source_log import at
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import as_numbers, published
from tests.systems.lake.world import LakeWorld


def begun(world: LakeWorld, *rows: Row) -> None:
    """Hand `orders` off with these rows, bring its table to the lake, and have it begin again."""
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    world.ledger.store_stream(world.hand_off(orders=rows))
    world.lake.publish_tables()
    change = altered(world.orders, through=100, rereads=True)
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)


def read(world: LakeWorld) -> None:
    world.ledger.change_tables(read=[world.orders.schema.table])


def test_a_table_that_begins_again_stays_what_it_was_until_all_its_rows_are_there(
    world: LakeWorld,
) -> None:
    begun(world, (1, "a"), (12, "l"))
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (2, "b"))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (12, "l")]
    world.changes().apply(world.batch([update((2, "b"), (2, "B"))]))
    world.lake.publish_tables()
    assert not world.lake.has_unpublished()
    assert published(world) == [(1, "a"), (12, "l")]
    join(world, joins, world.split(1, 10, None), (13, "m"), high=110)
    read(world)
    assert world.lake.has_unpublished()
    world.lake.publish_tables()
    assert published(world) == [(2, "B"), (13, "m")]


def test_a_reading_that_fails_is_never_shown(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (2, "half"))
    joins.forget("r")  # it failed: the next one begins the table again
    joins.begin("again", [world.orders.schema.table])
    join(world, joins, world.split(0, None, 10), (3, "c"), request="again")
    world.lake.publish_tables()
    assert published(world) == [(1, "a")]
    join(world, joins, world.split(1, 10, None), (12, "l"), request="again")
    read(world)
    world.lake.publish_tables()
    assert published(world) == [(3, "c"), (12, "l")]


def test_an_added_table_comes_with_all_its_rows(world: LakeWorld) -> None:
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    world.ledger.store_stream(world.hand_off("seats"))
    world.ledger.change_tables(added={world.orders.schema.table: at(100)})
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (1, "a"))
    world.lake.publish_tables()
    assert not (world.root / "shop.orders/_delta_log").exists()
    assert not (world.root / "shop.orders/metadata").exists()
    join(world, joins, world.split(1, 10, None), (12, "l"))
    read(world)
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == [(1, "a"), (12, "l")]


def test_a_table_of_other_types_is_exchanged_once_whoever_dies(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(), (2, "b"))
    read(world)
    as_numbers(world, "name")
    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "_take_over", lambda *_: died())
        with pytest.raises(KeyboardInterrupt):
            world.lake.publish_tables()
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == [(2, 7)]
        assert table_of(world.form, world.root, "shop.orders").schema.field("name").type == "int64"


def test_files_of_another_type_are_refused_where_the_table_does_not_begin_again(
    world: LakeWorld,
) -> None:
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    world.ledger.store_stream(world.hand_off(orders=[(1, "a")]))
    world.lake.publish_tables()
    world.changes().apply(world.batch([insert(2, "b")]))
    as_numbers(world, "name")
    with pytest.raises(RefusedError, match="is string in the lake and is to be int64"):
        world.lake.publish_tables()
    assert published(world) == [(1, "a")]


def died() -> None:
    raise KeyboardInterrupt
