"""Small files of changes become larger ones, and each row stays, whoever dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.systems.lake import compacting
from airflow_cdc_provider.systems.lake.tables import delta, iceberg
from airflow_cdc_provider.systems.lake.tables.table import TableMovedError
from tests.behaviours.sink_world import Row
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import (
    again_by,
    append,
    begun,
    change,
    compared,
    keep_snapshots,
    published,
    set_back,
)
from tests.systems.lake.world import FORMATS, LakeWorld

LOADED: dict[str, Any] = {"iceberg": iceberg.IcebergTable, "delta": delta.LoadedDelta}
of_changes = pytest.mark.parametrize("world", FORMATS, indirect=True)


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_MOST", 4)


def commits(world: LakeWorld, first: int, last: int) -> None:
    for number in range(first, last):
        change(world, number)
        world.lake.publish_tables()


def rows(first: int, last: int) -> list[Row]:
    return [(1, "a"), *((number, "x") for number in range(first, last))]


def files(world: LakeWorld) -> list[str]:
    """The files that the table has."""
    if world.form == "delta":
        return DeltaTable(str(world.root / "shop.orders")).file_uris()
    table = catalog_of(world.root).load_table(("shop", "orders"))
    return [task.file.file_path for task in table.scan().plan_files()]


def around_compaction(
    patched: pytest.MonkeyPatch, world: LakeWorld, before: Callable[[], None], after: Any = None
) -> None:
    """Have something happen before or after a table is compacted."""
    commit = LOADED[world.form].replace

    def committed(self: Any, *given: Any, **named: Any) -> None:
        before()
        commit(self, *given, **named)
        if after is not None:
            after()

    patched.setattr(LOADED[world.form], "replace", committed)


def died() -> None:
    raise KeyboardInterrupt


def nothing() -> None:
    pass


@of_changes
def test_a_table_never_has_many_small_files_and_each_row_stays(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    for number in range(10, 40):
        commits(world, number, number + 1)
        assert len(files(world)) < 4 + 1
    assert published(world) == compared(world) == rows(10, 40)
    found = table_of(world.form, world.root, "shop.orders")
    assert sorted(found.column("_order").to_pylist()) == [-1, *range(30)]


@of_changes
def test_a_file_that_a_snapshot_read_is_left_alone_unless_it_is_very_small(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    (read,) = files(world)
    with monkeypatch.context() as patched:
        patched.setattr(compacting, "_SMALL_READ_BYTES", 1)
        commits(world, 10, 30)
        assert read in files(world)
    commits(world, 30, 40)
    assert read not in files(world)
    assert published(world) == compared(world) == rows(10, 40)


@of_changes
def test_readers_of_commits_are_told_that_the_rows_are_the_same(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    commits(world, 10, 13)
    if world.form == "delta":
        log = max((world.root / "shop.orders/_delta_log").glob("*.json"))
        told = [json.loads(line) for line in log.read_text().splitlines()]
        actions = [each.get("add", each.get("remove")) for each in told]
        assert [each["dataChange"] for each in actions if each] == [False] * 5
    else:
        table = catalog_of(world.root).load_table(("shop", "orders"))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary.operation.value == "replace"
        assert snapshot.summary["total-records"] == "4"
        assert snapshot.summary["total-data-files"] == "1"
    assert not world.lake.has_unpublished()


@of_changes
def test_it_can_be_switched_off(world: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    place = replace(world.place, compacts=False)
    monkeypatch.setattr(LakeWorld, "place", place)
    begun(world, (1, "a"))
    world.lake.publish_tables()
    commits(world, 10, 20)
    assert len(files(world)) == 11


@of_changes
@pytest.mark.parametrize("step", ["before", "after"])
def test_who_dies_at_it_is_followed_by_one_that_goes_on(
    world: LakeWorld, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    with monkeypatch.context() as patched:
        around_compaction(patched, world, *((died,) if step == "before" else (nothing, died)))
        with pytest.raises(KeyboardInterrupt):
            commits(world, 10, 20)
    assert published(world) == rows(10, 13)
    commits(world, 13, 20)
    assert published(world) == rows(10, 20)
    assert len(files(world)) < 4 + 1


@of_changes
@pytest.mark.parametrize("arrives", [False, True])
def test_it_may_fail_or_its_answer_be_lost_and_holds_nothing_up(
    world: LakeWorld, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise OSError(5, "Input/output error")

    begun(world, (1, "a"))
    world.lake.publish_tables()
    with monkeypatch.context() as patched:
        around_compaction(patched, world, *((nothing, lost) if arrives else (lost,)))
        commits(world, 10, 15)
        assert published(world) == rows(10, 15)
    folder = world.root / "shop.orders"
    named = {name.rpartition("/")[2] for name in files(world)}
    assert {each.name for each in folder.glob("compact-*")} >= {n for n in named if "compact" in n}
    if not arrives:
        assert not [*folder.glob("compact-*")]
    commits(world, 15, 20)
    assert published(world) == rows(10, 20)


@of_changes
def test_who_commits_meanwhile_is_first(world: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    there = table_of(world.form, world.root, "shop.orders").schema
    theirs = pa.Table.from_pylist(
        [{"id": 2, "name": "theirs", "_op": "c", "_order": 10_000}], there
    )
    with monkeypatch.context() as patched:
        around_compaction(patched, world, lambda: append(world, theirs))
        commits(world, 10, 13)
    assert not [*(world.root / "shop.orders").glob("compact-*")]
    assert published(world) == [(1, "a"), (2, "theirs"), *rows(10, 13)[1:]]
    commits(world, 13, 14)
    assert len(files(world)) == 1
    assert published(world) == [(1, "a"), (2, "theirs"), *rows(10, 14)[1:]]


@of_changes
def test_one_that_arrives_late_is_refused(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    late: list[tuple[Any, ...]] = []
    compact = LOADED[world.form].replace

    def timed_out(*given: Any, **_: Any) -> None:
        late.append(given)
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(LOADED[world.form], "replace", timed_out)
        commits(world, 10, 14)
    with pytest.raises(TableMovedError):
        compact(*late[0], are_same_rows=True)
    assert published(world) == rows(10, 14)


@of_changes
def test_an_owner_that_comes_late_compacts_nothing(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    commits(world, 10, 12)
    change(world, 12)
    publisher = world.lake._publisher
    tidy = type(publisher)._tidy

    def overtaken(*given: Any) -> None:
        monkeypatch.undo()
        again_by(world, 2, (1, "new"))
        world.under(2).publish_tables()
        tidy(*given)

    monkeypatch.setattr(type(publisher), "_tidy", overtaken)
    with pytest.raises(Exception, match=r"generation|newer|owner"):
        publisher.publish()
    assert published(world) == [(1, "new")]


@of_changes
def test_a_table_that_is_set_back_to_before_it_is_gone_on_with(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    commits(world, 10, 13)
    assert len(files(world)) == 1
    set_back(world, commits=1)
    assert len(files(world)) == 4
    commits(world, 13, 16)
    assert published(world) == rows(10, 16)


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_files_that_no_kept_snapshot_has_are_deleted(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    keep_snapshots(world, 5)
    commits(world, 10, 40)
    assert published(world) == rows(10, 40)
    table = catalog_of(world.root).load_table(("shop", "orders"))
    for each in table.metadata.snapshots:
        assert table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows >= 26
    assert len([*(world.root / "shop.orders").glob("*.parquet")]) <= 16
