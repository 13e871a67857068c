"""Old commits of a lake's log go, and nobody who comes late takes their numbers for free ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import CorruptLogError, FencedError
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.file_store import FileStore
from tests.behaviours.sink_world import insert
from tests.systems.lake.steps import begun, change, published
from tests.systems.lake.world import LakeWorld


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "_BLOCK", 10)
    monkeypatch.setattr(manifest_module, "CHECKPOINT_EVERY", 4)


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> LakeWorld:
    """A lake with a published table; the format does not matter."""
    world = LakeWorld(root=tmp_path_factory.mktemp("world") / "lake", form="delta")
    begun(world, (1, "a"))
    world.lake.publish_tables()
    return world


def versions(world: LakeWorld) -> list[int]:
    """The numbers of the commits whose files are there."""
    names = [each.name for each in (world.root / "_manifest").glob("manifest-*.json")]
    return sorted(int(name[9:17]) for name in names)


def commits(world: LakeWorld, first: int, count: int) -> None:
    """Insert some rows, each in a commit, and have the table take them over."""
    for number in range(first, first + count):
        change(world, number)
        if number % 3 == 0:
            world.lake.publish_tables()
    world.lake.publish_tables()


def moved(world: LakeWorld, generation: int) -> Callable[[LogState], Record | None]:
    """A commit that its owner alone may make."""
    manifest = Manifest(world.root, str(world.pipeline))

    def judge(state: LogState) -> Record:
        manifest.require_owner(state, generation)
        return {"do": "taken", "files": {}}

    return judge


def test_old_commits_go_and_the_state_stays(lake: LakeWorld) -> None:
    before = Manifest(lake.root, "").read_any().version
    commits(lake, 10, 60)
    state = Manifest(lake.root, "").read_any()
    there = versions(lake)
    assert before < there[0] < there[-1] == state.version
    assert there == list(range(there[0], there[-1] + 1))
    assert len(there) < 30 < state.version
    assert [row[0] for row in published(lake)] == [1, *range(10, 70)]
    commits(lake, 70, 5)
    assert len(published(lake)) == 66


def test_an_owner_that_is_late_by_many_commits_is_fenced_and_leaves_nothing(
    lake: LakeWorld,
) -> None:
    late = Manifest(lake.root, str(lake.pipeline))
    stale = late.read().version
    lake.under(2).open_ledger().take_over(2)
    for number in range(10, 60):
        change(lake, number, generation=2)
        lake.under(2).publish_tables()
    there = versions(lake)
    assert stale + 1 < there[0]
    with pytest.raises(FencedError):
        late.commit(1, moved(lake, 1))
    assert versions(lake) == there


def test_who_took_a_number_of_a_closed_block_takes_it_back(
    lake: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its look whether it may commit was before all that the others did."""
    late = Manifest(lake.root, str(lake.pipeline))
    late.read()
    commits(lake, 10, 60)
    there, asked = versions(lake), []
    read = late.read

    def stale_once() -> LogState:
        asked.append(1)
        return late._state if len(asked) == 1 else read()

    monkeypatch.setattr(late, "read", stale_once)
    state = late.commit(1, moved(lake, 1))
    assert state.version == there[-1] + 1
    assert len(asked) > 2
    assert versions(lake) == [*there, state.version]


def test_what_a_late_owner_left_in_a_closed_block_is_not_read(lake: LakeWorld) -> None:
    behind = Manifest(lake.root, "")
    stale = behind.read_any().version
    commits(lake, 10, 60)
    ghost = lake.root / "_manifest" / f"manifest-{stale + 1:08d}.json"
    assert not ghost.exists()
    ghost.write_text('{"version": 0, "pipeline": "x", "generation": 0, "do": "unknown"}')
    state = behind.read_any()
    assert state == Manifest(lake.root, "").read_any()
    assert state.version == versions(lake)[-1]


def test_files_that_a_crash_left_of_a_closed_block_go_with_the_next(
    lake: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = []
    delete = FileStore.delete

    def dies(store: FileStore, name: str) -> None:
        if name.startswith("manifest-"):
            deleted.append(name)
            if len(deleted) == 5:
                raise KeyboardInterrupt
        delete(store, name)

    monkeypatch.setattr(FileStore, "delete", dies)
    with pytest.raises(KeyboardInterrupt):
        commits(lake, 10, 60)
    left = versions(lake)
    assert left[0] < 10
    number = Manifest(lake.root, "").read_any().counts.changes + 10
    commits(lake, number, 40)
    assert versions(lake)[0] > 10
    assert len(published(lake)) == 1 + number - 10 + 40


def test_without_a_checkpoint_nothing_is_guessed(lake: LakeWorld) -> None:
    commits(lake, 10, 60)
    for each in (lake.root / "_manifest" / "checkpoints").iterdir():
        each.unlink()
    with pytest.raises(CorruptLogError, match="no checkpoint"):
        Manifest(lake.root, "").read_any()


def test_a_log_that_no_table_takes_over_keeps_all(lake: LakeWorld) -> None:
    sink = lake.changes()
    for number in range(40):
        sink.apply(lake.batch([insert(10 + number, "x")], start=100 + 10 * number))
    assert versions(lake)[0] == 1
