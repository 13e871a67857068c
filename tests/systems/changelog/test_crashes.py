"""A writer killed with SIGKILL: whoever comes next loses nothing and doubles nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviours.sink_world import insert
from tests.systems.changelog.killed import KILLED_IN, PIPELINE, STAGES
from tests.systems.changelog.world import ChangelogWorld


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_owner_goes_on_and_each_change_is_there_once(tmp_path: Path, stage: str) -> None:
    root = tmp_path / "log"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.systems.changelog.killed", str(root), stage], check=False
    )
    assert ran.returncode == -signal.SIGKILL
    left_behind = {file for file in root.rglob("*") if "stream-" in file.name}
    world = ChangelogWorld(root=root, pipeline=PIPELINE, generation=2)
    position = world.ledger.stream().start.binlog.offset
    committed = (position - 100) // 10
    assert committed == (KILLED_IN if stage == "behind the manifest" else KILLED_IN - 1)
    sink = world.changes(2)
    for number in range(1, 10):  # read again from the beginning: what is there is known
        sink.apply(world.batch([insert(number, "streamed")], start=90 + 10 * number))
    assert [event["key"]["id"] for event in world.events()] == [100, *range(1, 10)]
    assert [marker["status"] for marker in world.markers()] == ["BEGIN", "END"] * 9
    if stage == "between seal and manifest":
        assert any(not file.exists() for file in left_behind)
    assert len(list(root.rglob("*stream-*"))) == 2 * 9
