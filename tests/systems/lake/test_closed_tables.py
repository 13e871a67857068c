"""Tables that others have changed so that we may not commit to them are refused by their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.types import StringType

from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from tests.behaviours.sink_world import insert, update
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import begun, change, compared, published
from tests.systems.lake.world import LakeWorld

ORDERS = ("shop", "orders")


def set_by_others(folder: Path, *actions: object) -> None:
    """Commit actions to a Delta table that the library has no call for."""
    number = DeltaTable(str(folder)).version() + 1
    text = "\n".join(map(json.dumps, actions))
    (folder / f"_delta_log/{number:020d}.json").write_text(text)


def with_feature(folder: Path) -> None:
    features = ["clustering", "domainMetadata", "appendOnly", "invariants"]
    told = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    set_by_others(folder, {"protocol": told})


def with_unknown_reader(folder: Path) -> None:
    features = {"readerFeatures": ["someday"], "writerFeatures": ["someday"]}
    told = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    set_by_others(folder, {"protocol": told})


def with_constraint(folder: Path) -> None:
    DeltaTable(str(folder)).alter.add_constraint({"few": "id < 9"})


def append_only(folder: Path) -> None:
    DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "true"})


CLOSED: dict[str, Callable[[Path], None]] = {
    "table features required": with_feature,
    "someday": with_unknown_reader,
    "the constraint few": with_constraint,
    "append-only": append_only,
}


@pytest.mark.parametrize("world", ["delta", "delta_mirror"], indirect=True)
@pytest.mark.parametrize("why", CLOSED)
def test_a_closed_table_is_refused_by_its_name_and_holds_no_other_up(
    why: str, world: LakeWorld
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    CLOSED[why](world.root / "shop.orders")
    made = {*world.root.glob("shop.orders/mirror-*")}
    rows = [update((1, "a"), (1, "A")), insert(7, 70)]
    world.changes().apply(world.batch(rows[:1], start=100))
    world.changes().apply(world.batch(rows[1:], start=110, table="seats"))
    if why == "append-only" and not world.mirror_mb:
        world.lake.publish_tables()  # that is all that it does
        return
    with pytest.raises(
        RefusedError, match=rf"closed shop\.orders to this pipeline: .*{why}"
    ) as found:
        world.lake.publish_tables()
    assert found.value.tables == ("shop.orders",)
    assert "--table" in found.value.remedy
    assert table_of(world.form, world.root, "shop.seats").num_rows == 1
    assert {*world.root.glob("shop.orders/mirror-*")} == made  # no file that nobody names is left


@pytest.mark.parametrize("world", ["delta", "delta_mirror"], indirect=True)
def test_a_table_that_may_not_be_read_is_refused_by_its_name(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    with_unknown_reader(world.root / "shop.orders")
    with pytest.raises(RefusedError, match=r"closed shop\.orders to this pipeline: .*someday"):
        compared(world)


def test_null_is_not_written_where_others_allow_none(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    if world.form == "delta":
        folder = world.root / "shop.orders"
        told = DeltaTable(str(folder)).schema().to_json()
        columns = json.loads(told)["fields"]
        strict = [each | {"nullable": each["name"] != "name"} for each in columns]
        text = json.dumps({"type": "struct", "fields": strict})
        lines = (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        (metadata,) = (json.loads(each) for each in lines if "metaData" in each)
        metadata["metaData"]["schemaString"] = text
        set_by_others(folder, metadata)
    else:
        table = catalog_of(world.root).load_table(ORDERS)
        with table.update_schema(allow_incompatible_changes=True) as changed:
            changed.update_column("name", required=True)
    change(world, 11)
    world.lake.publish_tables()
    world.changes().apply(world.batch([insert(12, None)], start=120))
    with pytest.raises(RefusedError, match=r"others allow no NULL in name of shop\.orders"):
        world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


@pytest.mark.parametrize("world", ["iceberg_mirror"], indirect=True)
@pytest.mark.parametrize("how", ["renamed", "dropped", "exchanged"])
def test_rows_are_not_written_again_without_a_column_that_others_took(
    how: str, world: LakeWorld
) -> None:
    begun(world, (1, "a"), (2, "b"))
    change(world, 10)
    world.lake.publish_tables()
    with catalog_of(world.root).load_table(ORDERS).update_schema() as changed:
        if how == "renamed":
            changed.rename_column("name", "called")
        else:
            changed.delete_column("name")
    if how == "exchanged":
        with catalog_of(world.root).load_table(ORDERS).update_schema() as changed:
            changed.add_column("name", StringType())
    world.changes().apply(world.batch([update((1, "a"), (1, "A"))], start=110))
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r"others have taken name from shop\.orders"):
            world.lake.publish_tables()
    if how == "renamed":
        with catalog_of(world.root).load_table(ORDERS).update_schema() as changed:
            changed.rename_column("called", "name")
        world.lake.publish_tables()
        assert published(world) == [(1, "A"), (2, "b"), (10, "x")]
