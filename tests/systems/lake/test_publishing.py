"""A lake's tables hold each row of the log once, whoever publishes, however often, or dies."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pyiceberg.table
import pytest
from pyiceberg.table.update import update_table_metadata

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    IntegrityError,
    RefusedError,
    SinkBusyError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.lake import left_behind
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from airflow_cdc_provider.systems.lake.tables import delta, iceberg, iceberg_commits
from airflow_cdc_provider.systems.lake.tables.table import TableMovedError
from tests.behaviours.sink_world import delete, insert, update
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import (
    again_by,
    append,
    begun,
    change,
    copied,
    foreign,
    keep_snapshots,
    published,
    sequence,
    versions,
)
from tests.systems.lake.world import LakeWorld

OPENED = {"iceberg": iceberg.IcebergTables, "delta": delta.DeltaTables}
LOADED = {"iceberg": iceberg.IcebergTable, "delta": delta.LoadedDelta}


def test_a_table_follows_the_log_and_holds_each_change_once(world: LakeWorld) -> None:
    begun(world, (1, "a"), (2, "b"))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (2, "b")]
    sink = world.changes()
    sink.apply(world.batch([update((1, "a"), (1, "A")), insert(3, "c")]))
    sink.apply(world.batch([update((3, "c"), (4, "c")), delete(2, "b")], start=110))
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == [(1, "A"), (4, "c")]
    sink.apply(world.batch([insert(5, "e")], start=120))
    world.lake.publish_tables()
    assert published(world) == [(1, "A"), (4, "c"), (5, "e")]
    folder = world.root / "shop.orders"
    assert list(folder.glob("stream-*")) == []  # the table has them
    made = len(list(folder.glob("changes-*"))), len(list(folder.glob("mirror-*")))
    assert made == ((0, 3) if world.mirror_mb else (2, 0))


def test_nothing_is_committed_to_a_table_that_nobody_changed(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    before = versions(world)
    world.lake.publish_tables()
    assert versions(world) == before


def test_a_table_without_rows_is_there_with_its_columns(world: LakeWorld) -> None:
    begun(world)
    world.lake.publish_tables()
    found = table_of(world.form, world.root, "shop.orders")
    assert (found.num_rows, found.column_names[:2]) == (0, ["id", "name"])
    change(world, 10)
    world.lake.publish_tables()
    assert published(world) == [(10, "x")]


@pytest.mark.parametrize("step", ["before", "after"])
def test_who_dies_at_a_commit_is_followed_by_one_that_goes_on(
    world: LakeWorld, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    with monkeypatch.context() as patched:
        around_commit(patched, world.form, step, died)
        with pytest.raises(KeyboardInterrupt):
            world.lake.publish_tables()
    assert published(world) == ([(1, "a")] if step == "before" else [(1, "a"), (10, "x")])
    change(world, 11)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


def test_a_commit_whose_outcome_is_unknown_is_looked_up(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)

    def lost() -> None:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patched:
        around_commit(patched, world.form, "after", lost)
        with pytest.raises(SinkUnreachableError, match="no answer"):
            world.lake.publish_tables()
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


def test_a_commit_that_fails_again_and_again_leaves_no_files_behind(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)

    def full() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        around_commit(patched, world.form, "before", full)
        for _ in range(3):
            with pytest.raises(SinkUnreachableError, match="No space left"):
                world.lake.publish_tables()
    assert not [*(world.root / "shop.orders").glob("[cm]*-*.parquet")]
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_folder_that_goes_away_in_a_commit_is_not_made_anew(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    put, away = iceberg_commits.put_files, world.root.with_name("away")

    def put_and_lost(*given: Any) -> None:
        put(*given)
        world.root.rename(away)

    with monkeypatch.context() as patched:
        patched.setattr(iceberg, "put_files", put_and_lost)
        with pytest.raises(CdcError):
            world.lake.publish_tables()
    assert not world.root.exists()
    away.rename(world.root)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


def test_a_kill_between_the_commit_and_the_log_leaves_nothing_twice(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "_take_over", lambda *_: died())
        with pytest.raises(KeyboardInterrupt):
            world.lake.publish_tables()
    change(world, 11)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


def test_several_who_publish_at_once_add_nothing_twice(world: LakeWorld) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    begun(world, (1, "a"))
    world.lake.publish_tables()
    over = threading.Event()
    errors: list[BaseException] = []

    def publish() -> None:
        while not over.wait(rng.random() / 50):
            try:
                world.under(1).publish_tables()
            except SinkBusyError:
                pass  # the others were first each time
            except BaseException as error:  # noqa: BLE001 - shown by the test
                errors.append(error)
                return

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10, 40):
            change(world, number)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert errors == []
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), *((number, "x") for number in range(10, 40))]


def test_a_new_plan_takes_the_place_of_all_that_was_there(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    again_by(world, 2, (1, "new"))
    assert published(world) == [(1, "a"), (10, "x")]  # until the new rows are there
    world.under(2).publish_tables()
    assert published(world) == [(1, "new")]
    change(world, 10, generation=2)
    world.under(2).publish_tables()
    assert published(world) == [(1, "new"), (10, "x")]


def test_an_old_owner_that_comes_late_adds_nothing(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)

    def taken_over() -> None:
        monkeypatch.undo()
        again_by(world, 2, (1, "new"))
        world.under(2).publish_tables()

    around_commit(monkeypatch, world.form, "before", taken_over)
    with pytest.raises(FencedError):
        world.lake.publish_tables()
    assert published(world) == [(1, "new")]
    with pytest.raises(FencedError):
        world.lake.publish_tables()


@pytest.mark.parametrize("after", ["rows", "columns alone"])
def test_a_commit_without_rows_is_made_on_the_table_as_it_was_loaded_or_not_at_all(
    after: str, world: LakeWorld
) -> None:
    """Else it would say that the table has less than it has, and the rest came twice."""
    begun(world, (1, "a"))
    world.lake.publish_tables()
    opened = {"iceberg": iceberg, "delta": delta}[world.form].open_tables
    name = str(world.pipeline)
    state = Manifest(world.store, name).read()
    late = opened(world.place, name, state).load(world.orders.sink_table)
    assert late is not None
    stamp = late.stamp
    assert stamp is not None
    if after == "rows":
        change(world, 10)
        world.lake.publish_tables()
    else:
        first = opened(world.place, name, state).load(world.orders.sink_table)
        assert first is not None
        first.append([], first.columns, replace(stamp, files=stamp.files + 2))
    with pytest.raises(TableMovedError):
        late.append([], late.columns, replace(stamp, files=stamp.files + 1))


def test_others_may_append_and_nothing_of_theirs_or_ours_is_lost(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    theirs = table_of(world.form, world.root, "shop.orders").slice(0, 1)
    columns = theirs.schema.names
    mark = pa.table([["x"] if name == "_op" else theirs.column(name) for name in columns], columns)
    append(world, mark.cast(theirs.schema))
    change(world, 10)
    world.lake.publish_tables()
    found = table_of(world.form, world.root, "shop.orders").column("_op").to_pylist()
    assert sorted(found) == ["c", "r", "x"]


@pytest.mark.parametrize("pipeline", ["another", ""])
def test_a_table_of_others_is_refused(world: LakeWorld, pipeline: str, tmp_path: Path) -> None:
    begun(world, (1, "a"))
    if pipeline:
        world.lake.publish_tables()
        moved = world.root.rename(tmp_path / "moved")
        other = LakeWorld(root=world.root, form=world.form, pipeline=PipelineName(pipeline))
        begun(other, (2, "b"))
        for name in ("catalog.db", "shop.orders"):
            if (moved / name).exists():
                copied(moved / name, world.root / name)
        world = other
    else:
        foreign(world, pa.table({"id": [7]}))
    with pytest.raises(RefusedError, match="the lake was made by"):
        world.under(1).publish_tables()


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_files_of_a_table_that_the_catalog_knows_are_missed(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    for each in (world.root / "shop.orders/metadata").glob("*.json"):
        each.unlink()
    for ask in (world.lake.publish_tables, world.lake.has_unpublished):
        with pytest.raises(RefusedError, match=r"files of that table are gone: .*json"):
            ask()


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_catalog_that_does_not_answer_is_told_by_whoever_asks(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    (world.root / "catalog.db").write_text("nonsense" * 1000)
    for ask in (world.lake.publish_tables, world.lake.has_unpublished):
        with pytest.raises(SinkUnreachableError, match="tables cannot be committed to: Database"):
            ask()


def test_a_table_that_its_library_cannot_read_holds_no_other_up(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    world.changes(1).apply(world.batch([insert(7, 70)], start=110, table="seats"))
    folder = world.root / "shop.orders"
    form = "_delta_log/*.json" if world.form == "delta" else "metadata/*.json"
    damaged = {each: each.read_text() for each in folder.glob(form)}
    for each in damaged:
        each.write_text("nonsense")
    for _ in range(2):
        with pytest.raises(
            SinkUnreachableError, match=r"^[^;]*shop\.orders cannot be com"
        ) as error:
            world.lake.publish_tables()
        assert error.value.tables == ("shop.orders",)
        assert table_of(world.form, world.root, "shop.seats").num_rows == 1
    with pytest.raises(SinkUnreachableError, match="tables cannot be committed to"):
        world.lake.has_unpublished()
    for each, text in damaged.items():
        each.write_text(text)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


def test_a_table_that_takes_long_to_fail_is_told_before_others_are_waited_for(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    asked = []

    def away(_: object, table: TableId) -> None:
        asked.append(table)
        raise OSError("no answer")

    monkeypatch.setattr(OPENED[world.form], "load", away)
    monkeypatch.setattr(left_behind, "_HANGS_S", 0.0)
    with pytest.raises(SinkUnreachableError, match="no answer"):
        world.lake.publish_tables()
    assert len(asked) == 1
    monkeypatch.setattr(left_behind, "_HANGS_S", 10.0)
    with pytest.raises(SinkUnreachableError, match=r"shop\.orders cannot .* shop\.seats cannot"):
        world.lake.publish_tables()


def test_a_table_that_may_not_be_committed_to_holds_no_other_up(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    foreign(world, pa.table({"id": [7]}))
    with pytest.raises(RefusedError, match="orders of the lake was made by nobody we know"):
        world.lake.publish_tables()
    assert table_of(world.form, world.root, "shop.seats").num_rows == 0


def test_a_file_that_is_gone_is_an_error_and_nothing_is_committed(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    change(world, 11)
    lost = min((world.root / "shop.orders").glob("stream-*"))
    lost.unlink()
    with pytest.raises(IntegrityError, match=lost.name):
        world.lake.publish_tables()
    assert published(world) == [(1, "a")]


def test_a_table_that_always_moves_is_tried_so_often_and_then_told(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)

    def moved() -> None:
        raise TableMovedError("again")

    with monkeypatch.context() as patched:
        around_commit(patched, world.form, "before", moved)
        with pytest.raises(SinkBusyError, match="in the lake 20 times"):
            world.lake.publish_tables()
    assert not [*(world.root / "shop.orders").glob("[cm]*-*.parquet")]
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_snapshots_expire_by_the_tables_own_settings_with_all_that_only_they_had(
    world: LakeWorld,
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    keep_snapshots(world, 5)
    for number in range(10, 40):
        change(world, number)
        world.lake.publish_tables()
    table = catalog_of(world.root).load_table(("shop", "orders"))
    assert 5 <= len(table.metadata.snapshots) <= 7
    lists = {each.manifest_list.removeprefix("file://") for each in table.metadata.snapshots}
    there = (world.root / "shop.orders/metadata").glob("snap-*.avro")
    assert {str(each) for each in there} == lists
    oldest = table.scan(snapshot_id=min(table.metadata.snapshots, key=sequence).snapshot_id)
    assert len(oldest.to_arrow()) >= 24
    assert published(world) == [(1, "a"), *((number, "x") for number in range(10, 40))]


def test_history_that_cannot_be_dropped_holds_nothing_up(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)

    def tidy(_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LOADED[world.form], "tidy", tidy)
    world.lake.publish_tables()
    assert not world.lake.has_unpublished()
    assert published(world) == [(1, "a"), (10, "x")]


# --- what the tests do to a table -----------------------------------------------------------


def around_commit(
    patched: pytest.MonkeyPatch, form: str, step: str, call: Callable[[], None]
) -> None:
    """Have something happen before or after each commit to a table."""
    for name in ("append", "exchange", "replace"):
        commit = getattr(LOADED[form], name)

        def committed(self: Any, *given: Any, _commit: Callable[..., None] = commit) -> None:
            if step == "before":
                call()
            _commit(self, *given)
            if step == "after":
                call()

        patched.setattr(LOADED[form], name, committed)


def died() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("world", ["iceberg", "iceberg_mirror"], indirect=True)
def test_a_commit_copies_the_tables_history_a_few_times_however_often_it_is_looked_at(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    copy, copied_by = update_table_metadata, list[object]()

    def counted(*of: Any, **how: Any) -> Any:
        copied_by.append(of or how)
        return copy(*of, **how)

    for module in (pyiceberg.table, pyiceberg.catalog):
        monkeypatch.setattr(module, "update_table_metadata", counted)
    world.lake.publish_tables()
    assert 2 <= len(copied_by) <= 4
    assert published(world) == [(1, "a"), (10, "x")]
