"""The path of a log leads elsewhere for a while: nothing is committed there, and nothing is lost.

So it is with a file system that is not mounted any more: an empty folder has its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CorruptLogError, LedgerSetBackError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.changes import LogChangeSink
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.file_store import FileStore
from tests.behaviours.sink_world import insert
from tests.systems.changelog.world import ChangelogWorld


@pytest.fixture
def world(tmp_path: Path) -> ChangelogWorld:
    return ChangelogWorld(root=tmp_path / "log")


class Mount:
    """A folder that can be taken away, and an empty one that then has its name."""

    def __init__(self, root: Path) -> None:
        self.root, self._away = root, root.with_name("away")

    def goes(self) -> None:
        self.root.rename(self._away)
        self.root.mkdir()

    def comes_back(self) -> None:
        shutil.rmtree(self.root)
        self._away.rename(self.root)


def names(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())


def claimed(name: str, first: Callable[[], None] = lambda: None) -> Callable[[LogState], Record]:
    def judge(_: LogState) -> Record:
        first()
        return {"do": "claim", "targets": {"shop.orders": name}}

    return judge


def taken_over(root: Path) -> Manifest:
    """A manifest of a few versions that knows them all."""
    manifest = Manifest(root, "shop")
    manifest.commit(1, lambda _: {"do": "take over"})
    for name in ("a.a", "a.b", "a.c"):
        manifest.commit(1, claimed(name))
    return manifest


def test_a_stream_adds_nothing_where_its_log_is_not_and_then_goes_on(
    world: ChangelogWorld,
) -> None:
    world.stream_from((1, "a"))
    sink = world.changes()
    sink.apply(world.batch([insert(2, "b")]))
    before = names(world.root)
    mount = Mount(world.root)
    mount.goes()
    with pytest.raises(LedgerSetBackError, match="is gone"):
        sink.apply(world.batch([insert(2, "b")], [insert(3, "c")]))
    with pytest.raises(LedgerSetBackError, match="is gone, or set back"):
        world.under(1).open_ledger().require_owner()
    assert not any("manifest" in each for each in names(world.root))
    mount.comes_back()
    assert names(world.root) == before
    world.changes().apply(world.batch([insert(2, "b")], [insert(3, "c")]))
    assert world.held() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_folder_that_is_swapped_while_it_is_judged_takes_no_commit(tmp_path: Path) -> None:
    root = tmp_path / "log"
    manifest = taken_over(root)
    mount = Mount(root)
    with pytest.raises(LedgerSetBackError, match="manifest 4 is gone"):
        manifest.commit(1, claimed("a.lost", mount.goes))
    mount.comes_back()
    state = manifest.commit(1, claimed("a.kept"))
    found = Manifest(root, "shop").read()
    assert (state.version, found.version) == (5, 5)
    assert found.targets == state.targets
    assert [*found.targets.values()] == [(TableId.parse("a.kept"),)]


def test_a_commit_that_went_elsewhere_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "log"
    manifest = taken_over(root)
    mount = Mount(root)
    put = FileStore.put_if_absent

    def elsewhere(store: FileStore, name: str, content: bytes) -> bool:
        mount.goes()
        done = put(store, name, content)
        mount.comes_back()
        return done

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "put_if_absent", elsewhere)
        with pytest.raises(LedgerSetBackError, match="manifest 5 was created and is gone"):
            manifest.commit(1, claimed("a.lost"))
    assert manifest.commit(1, claimed("a.kept")).version == 5
    assert Manifest(root, "shop").read().version == 5


def test_a_commit_names_no_file_that_went_elsewhere(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream_from((1, "a"))
    sink = world.changes()
    mount = Mount(world.root)
    begin, commit = LogChangeSink._begin, Manifest.commit

    def begins(self: LogChangeSink) -> Any:
        found = begin(self)
        mount.goes()
        return found

    def commits(self: Manifest, *arguments: Any) -> LogState:
        mount.comes_back()
        return commit(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LogChangeSink, "_begin", begins)
        patched.setattr(Manifest, "commit", commits)
        with pytest.raises(
            LedgerSetBackError, match=r"shop\.orders/stream-.* was written and is g"
        ):
            sink.apply(world.batch([insert(2, "b")]))
    world.changes().apply(world.batch([insert(2, "b")]))
    assert world.held() == [(1, "a"), (2, "b")]


def test_a_copy_of_before_in_its_place_takes_no_commit(tmp_path: Path) -> None:
    root = tmp_path / "log"
    manifest = taken_over(root)
    shutil.copytree(root, tmp_path / "copy")
    manifest.commit(1, claimed("a.d"))
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    with pytest.raises(LedgerSetBackError, match="manifest 5 is gone"):
        manifest.read()
    Manifest(root, "shop").commit(1, claimed("a.e"))
    with pytest.raises(LedgerSetBackError, match="manifest 5 is another"):
        manifest.commit(1, claimed("a.f"))
    assert Manifest(root, "shop").read().version == 5


def test_a_log_without_its_first_commit_is_no_new_log(tmp_path: Path) -> None:
    root = tmp_path / "log"
    taken_over(root)
    (root / "_manifest" / "manifest-00000001.json").unlink()
    with pytest.raises(CorruptLogError, match="first commit is not there"):
        Manifest(root, "shop").read()
