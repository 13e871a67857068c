"""A lake's table that was set back or dropped is mended by having it read again, alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import insert
from tests.behaviours.source_log import at
from tests.systems.lake import damage
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import begun, change, compared, published, versions
from tests.systems.lake.test_publishing import died
from tests.systems.lake.world import LakeWorld


def damaged(world: LakeWorld, by: str) -> None:
    """Publish twice, and set the table back or drop it."""
    begun(world, (1, "a"))
    for number in (10, 11):
        change(world, number)
        world.lake.publish_tables()
    harm = damage.set_back if by == "set back" else damage.dropped
    harm(world.form, world.root, world.orders.sink_table)
    change(world, 12)
    with pytest.raises(IntegrityError, match="set back") as error:
        world.lake.publish_tables()
    assert "`reset` it with --table shop.orders" in error.value.remedy


def seats(world: LakeWorld) -> int:
    return int(table_of(world.form, world.root, "shop.seats").num_rows)


@pytest.mark.parametrize("by", ["set back", "dropped"])
def test_a_table_that_was_set_back_is_made_anew_by_the_rows_that_are_read_again(
    world: LakeWorld, by: str
) -> None:
    damaged(world, by)
    before = versions(world)
    orders = world.orders.schema.table
    world.ledger.change_tables(removed=[orders])
    world.changes().apply(world.batch([insert(1, 1)], start=130, table="seats"))
    world.lake.publish_tables()
    assert seats(world) == 1
    world.ledger.change_tables(added={orders: at(140)})
    world.lake.publish_tables()
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (2, "b"), high=140)
    world.changes().apply(world.batch([insert(3, "c")], start=140))
    world.lake.publish_tables()
    assert versions(world) == before
    join(world, joins, world.split(1, 10, None), (12, "l"), high=150)
    world.ledger.change_tables(read=[orders])
    assert compared(world) == [(2, "b"), (3, "c"), (12, "l")]
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == compared(world) == [(2, "b"), (3, "c"), (12, "l")]
        assert not world.lake.has_unpublished()
    change(world, 15)
    world.lake.publish_tables()
    damage.set_back(world.form, world.root, world.orders.sink_table)
    with pytest.raises(IntegrityError, match="set back"):  # the log has those rows no more
        world.lake.publish_tables()


def test_a_table_whose_files_are_gone_before_any_change_is_made_anew(tmp_path: Path) -> None:
    world = LakeWorld(root=tmp_path / "lake", form="delta")  # Iceberg's catalog still knows it
    begun(world, (1, "a"), (12, "b"))
    world.lake.publish_tables()
    shutil.rmtree(world.root / "shop.orders")
    with pytest.raises(IntegrityError, match="a file that the log names is gone") as error:
        world.lake.publish_tables()
    assert "`reset` its table with --table" in error.value.remedy
    orders = world.orders.schema.table
    world.ledger.change_tables(removed=[orders])
    world.ledger.change_tables(added={orders: at(100)})
    world.lake.publish_tables()
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(0, None, 10), (2, "b"))
    world.lake.publish_tables()
    join(world, joins, world.split(1, 10, None), (13, "c"))
    world.ledger.change_tables(read=[orders])
    world.changes().apply(world.batch([insert(3, "c")]))
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == compared(world) == [(2, "b"), (3, "c"), (13, "c")]


def test_a_table_that_was_set_back_is_made_anew_once_whoever_dies(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(world, "set back")
    orders = world.orders.schema.table
    world.ledger.change_tables(removed=[orders])
    world.ledger.change_tables(added={orders: at(130)})
    joins = world.opened(world.sink.open_joins())
    join(world, joins, world.split(), (2, "b"), high=130)
    world.ledger.change_tables(read=[orders])
    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "_take_over", lambda *_: died())
        with pytest.raises(KeyboardInterrupt):
            world.lake.publish_tables()
    change(world, 13)
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == compared(world) == [(2, "b"), (13, "x")]


def test_a_table_that_left_the_pipeline_may_be_dropped(world: LakeWorld) -> None:
    damaged(world, "dropped")
    world.ledger.change_tables(removed=[world.orders.schema.table])
    world.changes().apply(world.batch([insert(1, 1)], start=130, table="seats"))
    for _ in range(2):
        world.lake.publish_tables()
    assert seats(world) == 1
    assert versions(world) == 0
