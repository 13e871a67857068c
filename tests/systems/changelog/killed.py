"""`python -m tests.systems.changelog.killed PLACE STAGE`: a writer that is killed at a stage.

PLACE is a folder's path, or the URL of a log in a bucket. The writer appends one transaction after
the other, and is killed with SIGKILL in the third.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.endpoint import Folder, parse_sink
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.systems.file_log.files import OpenFile
from airflow_cdc_provider.systems.files import file_store
from airflow_cdc_provider.systems.files.bucket_store import BucketStore
from tests.behaviours.sink_world import insert
from tests.systems.changelog.world import ChangelogWorld

PIPELINE = PipelineName("killed")
KILLED_IN = 3


def main(place: str, stage: str) -> None:
    found = None if place.startswith("/") else parse_sink(place)
    bucket = found if isinstance(found, Folder) else None
    world = ChangelogWorld(root=Path(place), bucket=bucket, pipeline=PIPELINE)
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
    _put_and_die(is_put=False)


def _behind_the_manifest() -> None:
    link = file_store.link_once

    def link_and_die(hidden: Path, path: Path) -> bool:
        link(hidden, path)
        _killed()
        return True

    file_store.link_once = link_and_die
    _put_and_die(is_put=True)


def _put_and_die(*, is_put: bool) -> None:
    """Have a bucket's next manifest be put, or not, before the writer is killed."""
    put = BucketStore._put

    def put_and_die(self: BucketStore, key: str, content: bytes, token: str) -> None:
        is_manifest = "/manifest-" in key
        if is_put or not is_manifest:
            put(self, key, content, token)
        if is_manifest:
            _killed()

    BucketStore._put = put_and_die  # type: ignore[method-assign]


STAGES = {
    "before the seal": _before_the_seal,
    "between seal and manifest": _between_seal_and_manifest,
    "behind the manifest": _behind_the_manifest,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
