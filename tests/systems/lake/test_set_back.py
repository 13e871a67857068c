"""A table that others set back is never gone on with, whatever they do to its history."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.errors import IntegrityError, SinkUnreachableError
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from airflow_cdc_provider.systems.lake.behind import Behind
from airflow_cdc_provider.systems.lake.next_commit import Appended
from airflow_cdc_provider.systems.lake.tables import delta, iceberg
from tests.behaviours.sink_world import delete, insert
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.steps import (
    again_by,
    begun,
    change,
    copied,
    expired,
    published,
    rewritten,
    set_back,
    versions,
)
from tests.systems.lake.world import LakeWorld

if TYPE_CHECKING:
    from deltalake import CommitProperties

WITHOUT_HISTORY = [
    ("iceberg", None),
    ("iceberg", 1234567890123),
    ("delta", None),
    ("iceberg_mirror", None),
    ("delta_mirror", None),
]
"""Each format; of Iceberg as PyIceberg expires snapshots, and as Java does."""
forgotten = pytest.mark.parametrize(("world", "parent"), WITHOUT_HISTORY, indirect=["world"])


def publish_untold(world: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish, and do not tell the log, which keeps the files."""
    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "_take_over", lambda *_: None)
        world.lake.publish_tables()


def test_a_table_that_was_set_back_behind_our_back_is_an_error(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    for number in (10, 11):
        change(world, number)
        world.lake.publish_tables()
    set_back(world, 1)
    assert published(world) == [(1, "a"), (10, "x")]
    for number in (12, 13):
        change(world, number)
        with pytest.raises(IntegrityError, match="it was dropped or set back"):
            world.lake.publish_tables()
    again_by(world, 2, (1, "new"))
    world.under(2).publish_tables()
    assert published(world) == [(1, "new")]


def test_a_log_that_was_set_back_behind_its_table_is_an_error(
    world: LakeWorld, tmp_path: Path
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    log, kept = world.root / "_manifest", tmp_path / "kept"
    shutil.copytree(log, kept)
    for number in (11, 12):
        change(world, number)
        world.lake.publish_tables()
    before = published(world)
    shutil.rmtree(log)
    shutil.copytree(kept, log)
    for generation in (1, 2):  # the second one writes as much as was lost, and more
        with pytest.raises(IntegrityError, match="changes of the log that the log does not have"):
            world.under(generation).publish_tables()
        assert published(world) == before
        if generation == 1:
            world.under(2).open_ledger().take_over(2)
            for number in (11, 12, 13):
                change(world, number, 2)


def test_a_table_that_was_set_back_to_before_its_new_rows_is_an_error(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    again_by(world, 2, (1, "new"))
    change(world, 10, 2)
    world.under(2).publish_tables()
    set_back(world, 1)
    change(world, 11, 2)
    with pytest.raises(IntegrityError, match="it was dropped or set back"):
        world.under(2).publish_tables()


def test_a_table_that_was_set_back_gets_again_what_the_log_has_still(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    change(world, 11)
    publish_untold(world, monkeypatch)
    set_back(world, 1)
    change(world, 12)
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == [(1, "a"), (10, "x"), (11, "x"), (12, "x")]


def test_a_table_that_is_compacted_and_changed_by_others_is_gone_on_with(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    for number in (10, 11):
        change(world, number)
        world.lake.publish_tables()
        rewritten(world)
    change(world, 12)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x"), (12, "x")]


def test_a_table_that_was_dropped_behind_our_back_is_an_error(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    change(world, 11)
    if world.form == "iceberg":
        catalog_of(world.root).drop_table(("shop", "orders"))
    else:
        copied(world.root / "shop.orders/_delta_log", world.root / "away", moves=True)
    with pytest.raises(IntegrityError, match="it was dropped or set back"):
        world.lake.publish_tables()


@forgotten
@pytest.mark.parametrize("left", [0, 1])
def test_a_set_back_is_noticed_when_no_history_tells_of_it(
    world: LakeWorld, parent: int | None, left: int
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    for number in range(10, 11 + 2 * left):
        change(world, number)
        world.lake.publish_tables()
    set_back(world, 1 + left)
    forget(world, parent)
    rows = [(1, "a"), (10, "x")][: 1 + left]
    assert published(world) == rows
    change(world, 11 + 2 * left)
    for _ in range(2):
        with pytest.raises(IntegrityError, match="it was dropped or set back"):
            world.lake.publish_tables()
    with pytest.raises(IntegrityError, match="it was dropped or set back"):
        world.lake.open_side().definition(world.orders.sink_table)
    assert published(world) == rows


@forgotten
def test_a_table_without_its_history_is_gone_on_with(world: LakeWorld, parent: int | None) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    forget(world, parent)
    for number in (10, 11):
        change(world, number)
        world.lake.publish_tables()
        forget(world, parent)
        assert not world.lake.has_unpublished()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]
    again_by(world, 2, (1, "new"))
    for number in (10, 11):  # their orders begin anew
        world.under(2).publish_tables()
        change(world, number, generation=2)
        world.under(2).publish_tables()
        forget(world, parent)
    assert not world.under(2).has_unpublished()
    assert published(world) == [(1, "new"), (10, "x"), (11, "x")]


@forgotten
def test_rows_of_a_snapshot_prove_a_table_without_its_history(
    world: LakeWorld, parent: int | None
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    forget(world, parent)
    before = versions(world)
    world.lake.publish_tables()
    assert versions(world) == before
    change(world, 10)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


def test_the_greatest_order_never_falls_by_a_commit_that_adds(world: LakeWorld) -> None:
    read = Behind([SealedFile("", 1, 1)], (), pa.schema([]), is_anew=False)
    appended = Appended(world.store, {}, compacts=False)
    orders = [appended.next(world.orders.sink_table, None, read, n).order for n in (3, None)]
    assert orders == [3, -1]
    nothing = replace(read, read=())
    assert appended.next(world.orders.sink_table, None, nothing, None).order is None


@forgotten
def test_an_empty_table_without_its_history_is_gone_on_with(
    world: LakeWorld, parent: int | None
) -> None:
    begun(world)
    world.lake.publish_tables()
    if world.form == "delta":  # of Iceberg it has no snapshot
        expired(world, parent)
    change(world, 10)
    world.lake.publish_tables()
    again_by(world, 2)
    world.under(2).publish_tables()
    expired(world, parent)
    change(world, 10, generation=2)
    world.under(2).publish_tables()
    assert published(world) == [(10, "x")]


@forgotten
def test_a_set_back_table_that_got_all_again_is_gone_on_with_without_its_history(
    world: LakeWorld, parent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    publish_untold(world, monkeypatch)
    set_back(world, 1)
    world.lake.publish_tables()
    forget(world, parent)
    change(world, 11)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


@forgotten
def test_a_table_that_was_set_back_behind_a_delete_is_not_believed_without_its_history(
    world: LakeWorld, parent: int | None
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    world.changes().apply(world.batch([delete(10, "x")], start=110))
    world.lake.publish_tables()
    set_back(world, 1)
    forget(world, parent)
    world.changes().apply(world.batch([insert(11, "x")], start=120))
    with pytest.raises(IntegrityError, match="dropped or set back"):
        world.lake.publish_tables()


@forgotten
def test_a_table_of_an_older_version_is_believed_without_its_history(
    world: LakeWorld, parent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    with monkeypatch.context() as patched:
        as_before(patched)
        world.lake.publish_tables()
    forget(world, parent)
    for number in (11, 12):
        change(world, number)
        world.lake.publish_tables()
        assert not world.lake.has_unpublished()
        forget(world, parent)
    assert published(world) == [(1, "a"), (10, "x"), (11, "x"), (12, "x")]


# --- the catalog beside the tables ----------------------------------------------------------


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_catalog_that_is_gone_is_waited_for(world: LakeWorld, tmp_path: Path) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    change(world, 11)
    catalog, away = world.root / "catalog.db", tmp_path / "away.db"
    catalog.rename(away)
    asks: tuple[Callable[[], object], ...] = (
        world.lake.publish_tables,
        world.lake.has_unpublished,
        lambda: world.lake.open_side().definition(world.orders.sink_table),
    )
    for ask in asks:
        with pytest.raises(SinkUnreachableError, match=r"the catalog .* is gone") as caught:
            ask()
        assert "`reset` the pipeline" in caught.value.remedy
        assert not catalog.exists()
    catalog.touch()
    with pytest.raises(SinkUnreachableError, match=r"the catalog .* is gone"):
        world.lake.publish_tables()
    assert catalog_of(world.root).list_namespaces() == []  # a reader makes one without tables
    with pytest.raises(SinkUnreachableError, match=r"the catalog .* is gone"):
        world.lake.publish_tables()
    away.rename(catalog)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_catalog_that_is_gone_for_good_is_made_anew_after_a_reset(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    (world.root / "catalog.db").unlink()
    again_by(world, 2, (1, "new"))
    world.under(2).publish_tables()
    change(world, 10, generation=2)
    world.under(2).publish_tables()
    assert published(world) == [(1, "new"), (10, "x")]


@pytest.mark.parametrize("name", ["a b", "one#two", "ä&b"])
def test_a_catalog_is_found_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    world = LakeWorld(root=tmp_path / name, form="iceberg")
    begun(world, (1, "a"))
    for number in (10, 11):
        change(world, number)
        world.lake.publish_tables()
    assert not world.lake.has_unpublished()


def forget(world: LakeWorld, parent: int | None) -> None:
    """Rewrite the table, and drop its history, so that no commit of ours is known."""
    rewritten(world)
    expired(world, parent)


def as_before(patched: pytest.MonkeyPatch) -> None:
    """Stamp commits as an older version did: the greatest order is not told."""
    told_delta, told_iceberg = delta._stamped, iceberg._stamped

    def in_delta(stamp: Any) -> CommitProperties:
        found = told_delta(stamp)
        found.app_transactions = [
            each for each in found.app_transactions or () if not each.app_id.endswith(":order")
        ]
        return found

    def in_iceberg(stamp: Any) -> dict[str, str]:
        found = told_iceberg(stamp)
        return {name: value for name, value in found.items() if name != "cdc.order"}

    patched.setattr(delta, "_stamped", in_delta)
    patched.setattr(iceberg, "_stamped", in_iceberg)
