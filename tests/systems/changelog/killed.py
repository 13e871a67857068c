"""`python -m tests.systems.changelog.killed ROOT STAGE`: a writer that is killed at a stage.

It appends one transaction after the other, and is killed with SIGKILL in the third.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.systems.file_log.files import OpenFile
from airflow_cdc_provider.systems.files import file_store
from tests.behaviours.sink_world import insert
from tests.systems.changelog.world import ChangelogWorld

PIPELINE = PipelineName("killed")
KILLED_IN = 3


def main(root: str, stage: str) -> None:
    world = ChangelogWorld(root=Path(root), pipeline=PIPELINE)
    world.sink.open_targets().claim([world.orders])
    world.stream_from((100, "read"))
    sink = world.changes()
    for number in range(1, 10):
        if number == KILLED_IN:
            STAGES[stage]()
        sink.apply(world.batch([insert(number, "streamed")], start=90 + 10 * number))


def _killed(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before_the_seal() -> None:
    OpenFile.seal = _killed  # type: ignore[method-assign,assignment]


def _between_seal_and_manifest() -> None:
    file_store.link_once = _killed  # type: ignore[assignment]


def _behind_the_manifest() -> None:
    link = file_store.link_once

    def link_and_die(hidden: Path, path: Path) -> bool:
        link(hidden, path)
        _killed()
        return True

    file_store.link_once = link_and_die


STAGES = {
    "before the seal": _before_the_seal,
    "between seal and manifest": _between_seal_and_manifest,
    "behind the manifest": _behind_the_manifest,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
