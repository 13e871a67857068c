"""A lake's table gets a column that its source has got, also while no row is behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import FencedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Difference, SchemaChange
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from tests.behaviours.sink_world import insert
from tests.behaviours.source_log import at
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import begun, published, versions
from tests.systems.lake.test_publishing import around_commit, died
from tests.systems.lake.world import LakeWorld


def plan_with(world: LakeWorld, *names: str) -> TablePlan:
    """The plan of `orders` as it is made, with these columns more, of numbers."""
    schema = world.orders.schema
    more = tuple(Column(name, world.types[TypeKind.INTEGER]) for name in names)
    with_more = replace(schema, columns=(*schema.columns[:2], *more))
    return TablePlan.alike(with_more, TableId("shop", "orders"), 0)


def altered(world: LakeWorld, after: TablePlan, *, rereads: bool = False) -> None:
    """Have the source's table altered, and follow it."""
    found = Difference(added=("c",), reread="values may be others" if rereads else "")
    change = SchemaChange(world.orders, after, found, at(100), "ALTER TABLE")
    world.ledger.begin_changes([change])
    world.ledger.end_change(change)
    world.orders = after


def tell(world: LakeWorld, generation: int = 1) -> None:
    world.under(generation).tell_columns(world.columns)


def names(world: LakeWorld) -> list[str]:
    """The columns that the table has of the source's."""
    found = table_of(world.form, world.root, "shop.orders").column_names
    return [name for name in found if not name.startswith("_")]


def log_state(world: LakeWorld) -> LogState:
    return Manifest(world.root, str(world.pipeline)).read()


@pytest.mark.parametrize("rows", [[(1, "a")], []])
def test_a_table_gets_a_column_without_a_row(world: LakeWorld, rows: list[tuple[int, str]]) -> None:
    begun(world, *rows)
    world.lake.publish_tables()
    altered(world, plan_with(world, "c"))
    tell(world)
    assert world.lake.has_unpublished()
    world.lake.publish_tables()
    assert names(world) == ["id", "name", "c"]
    assert published(world) == [(*row, None) for row in rows]
    assert list((world.root / "shop.orders").glob("columns-*")) == []  # the table has it
    before = versions(world)
    for _ in range(2):
        tell(world)
        assert not world.lake.has_unpublished()
        world.lake.publish_tables()
    assert versions(world) == before
    world.changes().apply(world.batch([insert(9, "x", 7)]))
    world.lake.publish_tables()
    assert published(world) == [*((*row, None) for row in rows), (9, "x", 7)]


def test_columns_of_several_changes_are_told_by_the_definition_of_now(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    altered(world, plan_with(world, "gone", "c"))
    altered(world, plan_with(world, "c"))
    tell(world)
    world.lake.publish_tables()
    assert names(world) == ["id", "name", "c"]
    assert log_state(world).untold == {}


def test_who_knows_only_the_definition_of_before_tells_nothing(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    late = world.under(1)
    late_columns = world.columns
    altered(world, plan_with(world, "c"))
    late.tell_columns(late_columns)
    assert log_state(world).untold == {TableId("shop", "orders"): {"c"}}
    tell(world)
    world.lake.publish_tables()
    assert names(world) == ["id", "name", "c"]


def test_a_table_that_was_not_published_yet_comes_with_the_column(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    altered(world, plan_with(world, "c"))
    tell(world)
    world.lake.publish_tables()
    assert names(world) == ["id", "name", "c"]
    assert published(world) == [(1, "a", None)]


def test_the_next_owner_tells_what_the_one_before_did_not(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    altered(world, plan_with(world, "c"))
    left = world.root / "shop.orders/columns-g00000001-0123abcd.parquet"
    left.write_bytes(b"no manifest names it")
    world.opened(world.under(2).open_ledger()).take_over(2)
    assert not left.exists()
    with pytest.raises(FencedError):
        tell(world)
    assert LogState.from_json(log_state(world).to_json()).untold == log_state(world).untold != {}
    tell(world, 2)
    assert LogState.from_json(log_state(world).to_json()) == log_state(world)
    world.under(2).publish_tables()
    assert names(world) == ["id", "name", "c"]


@pytest.mark.parametrize("step", ["before", "after", "behind"])
def test_a_column_comes_once_whoever_dies_at_its_commit(
    world: LakeWorld, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    altered(world, plan_with(world, "c"))
    tell(world)
    with monkeypatch.context() as patched:
        if step == "behind":
            patched.setattr(publisher_module.Publisher, "_take_over", lambda *_: died())
        else:
            around_commit(patched, world.form, step, died)
        with pytest.raises(KeyboardInterrupt):
            world.lake.publish_tables()
    for _ in range(2):
        world.lake.publish_tables()
        assert names(world) == ["id", "name", "c"]
        assert published(world) == [(1, "a", None)]
        assert not world.lake.has_unpublished()


def test_of_a_table_that_is_read_again_the_rows_tell_the_columns(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    altered(world, plan_with(world, "b"))
    altered(world, plan_with(world, "c"), rereads=True)
    before = versions(world)
    tell(world)
    world.lake.publish_tables()
    assert versions(world) == before
    assert log_state(world).untold == {}
