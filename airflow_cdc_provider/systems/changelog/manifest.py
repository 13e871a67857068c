"""The manifest: a list of commits, each in a file of its own that only one writer can create.

A file system has no transaction and no compare-and-swap. But a name can be given once: linking
a file to a name that exists fails. So the manifest is a row of files, `manifest-00000042.json`,
each whole from the moment its name is there. Who wants to commit reads up to the last one, judges
by it, and links the next. If someone else was there first, it reads on and judges again.

**Fencing.** Every commit is judged by the generation in the version just before it. A new owner
raises the generation by a version of its own. An old writer's next version either comes before
that one, and the new owner goes on from it, or it is never linked: its number is taken, and what
it then reads says that it is no longer the owner. No clock and no lock is asked.

**Where it works.** On local file systems and on NFS, whose `link` is atomic. A file system that
cannot link is refused. Object stores are not offered.

After every so many versions a checkpoint says what they add up to. Versions are kept, for a
number that is free again could be taken twice.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from airflow_cdc_provider.core.errors import CorruptLogError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.engine.ledger.decisions import fenced
from airflow_cdc_provider.engine.ledger.state import Place
from airflow_cdc_provider.systems.changelog.files import explained, flush_folder
from airflow_cdc_provider.systems.changelog.layout import CHECKPOINTS, MANIFEST
from airflow_cdc_provider.systems.changelog.state import LogState, Record

CHECKPOINT_EVERY = 200
_KEPT_CHECKPOINTS = 2
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Manifest:
    """The commits of one pipeline's change log, each in a file that only one writer can create."""

    def __init__(self, root: Path, pipeline: str) -> None:
        self.root = root
        self._pipeline = pipeline
        self._folder = root / MANIFEST
        self._state = LogState()
        self._is_new = True

    def read(self) -> LogState:
        """Return the state after all commits so far; another pipeline's log is refused.

        Nothing is created.
        """
        state = self.read_any()
        if state.pipeline not in ("", self._pipeline):
            raise RefusedError(
                f"the folder is the change log of pipeline {state.pipeline}",
                where=str(self.root),
                risk="two pipelines would write one log; nothing was changed",
                remedy=f"give {self._pipeline} a folder of its own as the sink's path",
            )
        return state

    def read_any(self) -> LogState:
        """Return the state after all commits so far, of any pipeline's log."""
        if self._is_new:
            self._state = self._last_checkpoint() or LogState()
            self._is_new = False
        while (record := self._read(self._version_path(self._state.version + 1))) is not None:
            self._state.apply(record)
        return self._state

    def commit(self, generation: int, judge: Callable[[LogState], Record | None]) -> LogState:
        """Commit the record that `judge` makes of the latest state; None commits nothing.

        `judge` is asked again whenever another writer was first.
        """
        while True:
            state = self.read()
            record = judge(state)
            if record is None:
                return state
            whole = {
                "version": state.version + 1,
                "pipeline": self._pipeline,
                "generation": generation,
                "at_us": time.time_ns() // 1000,
                **record,
            }
            if self._create(whole):
                state = self.read()
                self._write_checkpoint_if_due(whole["version"], state)
                return state

    def place(self, state: LogState) -> Place:
        """Return where a state is, for the errors about it."""
        return Place(
            PipelineName(self._pipeline),
            where=f"manifest {state.version} in {self.root}",
            book="manifest",
            undone="nothing of it was committed",
        )

    def require_owner(self, state: LogState, generation: int) -> None:
        """Refuse unless the generation is the one that may commit."""
        if state.generation != generation:
            raise fenced(self.place(state), state.generation, generation)

    # --- files --------------------------------------------------------------------------------

    def _version_path(self, version: int) -> Path:
        """Return the path of the manifest's file with this version."""
        return self._folder / f"manifest-{version:08d}.json"

    def _read(self, path: Path) -> Record | None:
        """Read one commit or checkpoint, None if there is no such file."""
        with explained(path):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            record: Record = json.loads(text)
        except ValueError as error:
            raise CorruptLogError(
                f"{path.name} is not JSON",
                where=str(path),
                risk="which files count is unknown; nothing was changed",
                remedy="restore the folder from a copy, or use an empty one",
            ) from error
        return record

    def _create(self, record: Record) -> bool:
        """Create the next version; False if it exists already."""
        path = self._version_path(record["version"])
        with explained(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with explained(path):
                write_whole(hidden, json.dumps(record).encode())
            return link_once(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)

    def _checkpoints(self) -> list[Path]:
        """Return the checkpoints' files, oldest first."""
        return sorted((self._folder / CHECKPOINTS).glob("checkpoint-*.json"))

    def _last_checkpoint(self) -> LogState | None:
        """Return the state of the newest checkpoint, None if there is none."""
        for path in reversed(self._checkpoints()):
            form = self._read(path)  # None if a newer one has just taken its place
            if form is not None:
                return LogState.from_json(form)
        return None

    def _write_checkpoint_if_due(self, version: int, state: LogState) -> None:
        """Write a checkpoint after every so many commits, and delete old ones."""
        if version % CHECKPOINT_EVERY or state.version != version:
            return
        folder = self._folder / CHECKPOINTS
        path = folder / f"checkpoint-{version:08d}.json"
        with explained(path):
            folder.mkdir(exist_ok=True)
            hidden = folder / f".{path.name}.{secrets.token_hex(8)}"
            write_whole(hidden, json.dumps(state.to_json()).encode())
            hidden.rename(path)
            flush_folder(folder)
            for old in self._checkpoints()[:-_KEPT_CHECKPOINTS]:
                old.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a new file and flush it to the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def link_once(hidden: Path, path: Path) -> bool:
    """Link a file to its final name; False if the name is taken."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        # over NFS the answer to a link that was made can be lost, and it is asked again
        return hidden.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            with explained(path):
                raise
        raise RefusedError(
            f"the file system cannot link a name that only one writer gets: {error.strerror}",
            where=str(path.parent),
            risk="two writers could both believe that they committed; nothing was written",
            remedy="use a folder on a local file system or on NFS",
        ) from error
    with explained(path):
        flush_folder(path.parent)
    return True
