"""The folder of a change log: what preflight says of it, whose it is, what is read from it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CorruptLogError, IntegrityError, RefusedError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.registry import open_source
from tests.behaviours.sink_world import insert
from tests.systems.changelog.world import ChangelogWorld


@pytest.fixture
def world(tmp_path: Path) -> ChangelogWorld:
    return ChangelogWorld(root=tmp_path / "log")


def found(world: ChangelogWorld, *plans: Any) -> list[tuple[str, Level]]:
    findings: tuple[Finding, ...] = world.sink.preflight(plans, SourceLook(()))
    return [(finding.code, finding.level) for finding in findings]


def test_a_folder_that_fits_is_left_as_it_was(world: ChangelogWorld) -> None:
    before = sorted(world.root.rglob("*"))
    assert found(world, world.orders) == []
    assert sorted(world.root.rglob("*")) == before


def test_a_file_system_without_links_is_refused_before_and_at_a_commit(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert found(world) == [("sink.folder", Level.BLOCK)]
    with pytest.raises(RefusedError, match="cannot link"):
        world.publish(world.splits(), world.split(), (1, "a"))
    assert world.held() == []


def test_a_file_system_that_gives_a_name_twice_is_refused(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda old, new: Path(old).rename(new))
    assert found(world) == [("sink.folder", Level.BLOCK)]


def test_tables_that_cannot_go_there_are_named(world: ChangelogWorld) -> None:
    by_text = replace(world.orders.schema, primary_key=("name",))
    long = TableId("d" * 64, "\u6c49" * 64)
    plans = [replace(world.orders, schema=by_text), TablePlan.alike(world.orders.schema, long, 0)]
    assert found(world, *plans) == [
        ("sink.exact_filter", Level.BLOCK),
        ("sink.folder_name", Level.BLOCK),
    ]


def test_files_of_others_in_a_tables_folder_are_a_conflict(world: ChangelogWorld) -> None:
    targets = world.sink.open_targets()
    targets.claim([world.orders])
    (world.root / "shop.seats").mkdir()
    (world.root / "shop.seats" / "part-0.json").write_text("{}")
    assert targets.conflicts([world.orders]) == ()
    with pytest.raises(RefusedError, match="holds files"):
        targets.claim([world.orders, world.seats])
    assert targets.routes() == ((TableId("shop", "orders"),) * 2,)


def test_a_dropped_log_stays_until_it_may_be_replaced(world: ChangelogWorld) -> None:
    targets = world.sink.open_targets()
    targets.claim([world.orders])
    world.ledger.start_plan("one")
    world.stream_from((1, "read"))
    world.changes().apply(world.batch([insert(2, "streamed")]))
    files = files_of(world)
    assert len(files) == 3
    world.ledger.start_plan("")
    targets.release()
    world.under(2).open_ledger().take_over(2)
    assert files_of(world) == files
    again = world.under(2).open_targets()
    with pytest.raises(RefusedError, match="holds files"):
        again.claim([world.orders])
    assert again.claim([world.orders], replace_rows=True) == (world.orders.sink_table,)
    world.under(3).open_ledger().take_over(3)
    assert files_of(world) == []


def files_of(world: ChangelogWorld) -> list[Path]:
    """The files of tables and markers, counted or not."""
    folders = (world.root / name for name in ("shop.orders", "shop.seats", "transaction"))
    return sorted(file for folder in folders for file in folder.glob("*"))


def test_a_pipeline_finds_the_folder_of_another_taken(world: ChangelogWorld) -> None:
    mine = world.under(1)
    other = replace(mine, owner=replace(mine.owner, pipeline=_other(world)))
    assert [each.pipeline for each in other.open_targets().conflicts([world.orders])] == [
        str(world.pipeline)
    ]


def test_a_state_read_from_a_checkpoint_is_the_one_added_up(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "CHECKPOINT_EVERY", 4)
    world.sink.open_targets().claim([world.orders])
    world.stream_from((1, "a"), (12, "b"), splits=(None, 10, None))
    sink = world.changes()
    for number in range(20, 25):
        sink.apply(world.batch([insert(number, "c")], start=100 + 10 * (number - 20)))
    by_checkpoint = Manifest(world.root, "").read_any()
    for checkpoint in (world.root / "_manifest" / "checkpoints").iterdir():
        checkpoint.unlink()
    assert by_checkpoint == Manifest(world.root, "").read_any()
    assert by_checkpoint.version > 8


def test_one_log_has_files_of_one_form(world: ChangelogWorld) -> None:
    world.publish(world.splits(), world.split(), (1, "a"))
    world.form = Format.PARQUET
    with pytest.raises(RefusedError, match="is now to be parquet"):
        world.publish(world.splits(), world.split(1), (2, "b"))
    world.ledger.start_plan("anew")
    world.publish(world.splits(), world.split(), (1, "a"))
    assert world.held() == [(1, "a")]


def test_a_manifest_that_is_not_understood_stops(world: ChangelogWorld) -> None:
    path = world.root / "_manifest" / "manifest-00000002.json"
    path.write_text('{"version": 2, "pipeline": "p", "generation": 1, "do": "compact"}')
    with pytest.raises(IntegrityError, match="'compact'"):
        Manifest(world.root, "p").read_any()
    path.write_text("{")
    with pytest.raises(CorruptLogError):
        Manifest(world.root, "p").read_any()


def _other(world: ChangelogWorld) -> Any:
    return type(world.pipeline)("another")


def test_a_comparison_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    nowhere = open_source(Endpoint.parse("mysql://nobody@127.0.0.1:1/"))
    with pytest.raises(RefusedError, match="verify cannot compare"):
        verify(nowhere, ChangelogWorld(root=tmp_path / "log").sink, [])


def test_large_commits_have_a_checkpoint_sooner(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "_CHECKPOINT_BYTES", 1_000)
    world.stream_from((1, "a"))
    sink = world.changes()
    for number in range(20, 60):
        sink.apply(world.batch([insert(number, "x")], start=100 + 10 * (number - 20)))
    last = Manifest(world.root, "").read_any().version
    checkpoints = sorted((world.root / "_manifest" / "checkpoints").iterdir())
    assert len(checkpoints) == 2
    newest = int(checkpoints[-1].stem.rpartition("-")[2])
    behind = [world.root / "_manifest" / f"manifest-{n:08d}.json" for n in range(newest + 1, last)]
    size = checkpoints[-1].stat().st_size
    assert sum(each.stat().st_size for each in behind) <= max(1_000, size)
