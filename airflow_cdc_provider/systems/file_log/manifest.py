"""The manifest: a list of commits, each in a file of its own that only one writer can create.

A store of files has no transaction and no compare-and-swap. But a name can be given once
(`systems.files`). So the manifest is a row of files, `manifest-00000042.json`, each whole from the
moment its name is there. Who wants to commit reads up to the last one, judges by it, and creates
the next. If someone else was there first, it reads on and judges again.

**Fencing.** Every commit is judged by the generation in the version just before it. A new owner
raises the generation by a version of its own. An old writer's next version either comes before
that one, and the new owner goes on from it, or it is never created: its number is taken, and what
it then reads says that it is no longer the owner. No clock and no lock is asked.

A checkpoint says what all versions so far add up to. One is written after every so many versions,
and sooner where they are large: reading costs no more than about twice the state.

**Old versions.** Of a change log all are kept: its readers go by them. Where tables have taken over
the changes, old versions go in blocks of a thousand. A number that is free again could be taken
twice, so a block is closed before its files go: by a file that is never deleted. Who creates a
version looks behind that whether its block is closed, and takes it back then. A number of a block
was free only after that, so nobody who is late can miss it.

**Another folder.** A path may lead elsewhere from one moment to the next: a file system that is not
mounted any more, a folder that was moved or emptied. There each number is free, and what is created
is behind a gap. So whoever reads on first reads again what it has read last, and whoever has
created a version reads it; the files that a version names have to be there. What differs is an
outage, until the folder is what it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import chain, count, tee

from airflow_cdc_provider.core.errors import CorruptLogError, LedgerSetBackError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.engine.ledger.decisions import fenced
from airflow_cdc_provider.engine.ledger.state import Place
from airflow_cdc_provider.systems.file_log.layout import CHECKPOINTS, MANIFEST
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.opening import Root, files_at

CHECKPOINT_EVERY = 200
_CHECKPOINT_BYTES = 32 * 1024
"""Behind the last checkpoint, at the least, before the next; more where that is larger."""
_KEPT_CHECKPOINTS = 2
_BLOCK = 1_000
_TRIES = 20
_CHECKPOINT = f"{CHECKPOINTS}/checkpoint-"
_VERSION = "manifest-"
_ADDING = frozenset({"publish", "change", "join", "join again", "tell columns", "void"})
"""The commits that add files."""


class Manifest:
    """The commits of one pipeline's change log, each in a file that only one writer can create."""

    def __init__(self, root: Root, pipeline: str) -> None:
        self.root = files_at(root)
        self._pipeline = pipeline
        self._files = self.root.below(MANIFEST)
        self._state = LogState()
        self._is_new = True
        self._last: bytes | None = None
        """What the state's version holds, once it was read; a checkpoint does not say it."""
        self._counted_from = 0
        """The version of the last checkpoint that this manifest knows."""
        self._checkpoint_bytes, self._bytes_behind = 0, 0

    def read(self) -> LogState:
        """Return the state after all commits so far; another pipeline's log is refused.

        Nothing is created.
        """
        state = self.read_any()
        if state.pipeline not in ("", self._pipeline):
            raise RefusedError(
                f"the folder belongs to pipeline {state.pipeline}",
                where=str(self.root),
                risk="two pipelines would write into one folder; nothing was changed",
                remedy=f"give {self._pipeline} a folder of its own as the sink's path",
            )
        return state

    def read_any(self) -> LogState:
        """Return the state after all commits so far, of any pipeline's log."""
        while True:
            if self._is_new or self._is_closed(self._state.version):
                self._state, self._is_new, self._last = self._begun(), False, None
            first = self._state.version + 1
            is_read = self._read_on()
            if is_read and (first > self._state.version or not self._is_closed(first)):
                return self._state
            self._is_new = True  # a late owner's version may have been among those read

    def _read_on(self) -> bool:
        """Apply the versions behind the state's; False if its own is gone, with its block."""
        known = self._state.version
        versions = self._versions(after=max(0, known - 1))
        if known:
            _, text = next(versions, ("", None))
            if text is None and self._is_closed(known):
                return False
            if text is None or self._last not in (None, text):
                raise self._set_back(f"manifest {known} is {'gone' if text is None else 'another'}")
            self._last = text
        for name, text in versions:
            self._state.apply(self._parsed(name, text))
            self._last = text
            self._bytes_behind += len(text)
        return True

    def commits(self, *, after: int = 0) -> Iterator[Record]:
        """Yield the commits behind a version as they are stored, in order, of any pipeline's log.

        No checkpoint is used, for it does not say which commit a file is of.
        """
        for name, text in self._versions(after=after):
            yield self._parsed(name, text)

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
            if lost := self.root.lost(_files_of(record)):
                raise self._set_back(f"{lost} was written and is gone")
            if self._create(whole):
                state = self.read()
                if state.version < whole["version"]:
                    raise self._set_back(f"manifest {whole['version']} was created and is gone")
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

    def _set_back(self, what: str) -> LedgerSetBackError:
        """Return the error of a place that is not what it was."""
        return LedgerSetBackError(
            f"{what}: the place is not what it was a moment ago",
            where=str(self.root),
            risk="none: what is in the log stays, and nothing was added to it",
            remedy="bring back what was there, such as a file system that is not mounted, and the "
            "job goes on by itself; if it is lost, stop the job and `reset` the pipeline",
        )

    # --- files --------------------------------------------------------------------------------

    def _versions(self, *, after: int) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents of the versions behind one, up to the first that is not there.

        What is there behind a gap is of no account: the next call finds it.
        """
        names, again = tee(map(_version, count(after + 1)))
        for name, text in zip(names, self._files.read_each(again), strict=True):
            if text is None:
                return
            yield name, text

    def _parsed(self, name: str, text: bytes) -> Record:
        """Return the JSON of a commit or checkpoint."""
        try:
            record: Record = json.loads(text)
        except ValueError as error:
            raise CorruptLogError(
                f"{name.rpartition('/')[2]} is not JSON",
                where=f"{self._files}/{name}",
                risk="which files count is unknown; nothing was changed",
                remedy="restore the folder from a copy, or use an empty one",
            ) from error
        return record

    def _create(self, record: Record) -> bool:
        """Create the next version; False if it exists already, or did once."""
        version: int = record["version"]
        if not self._files.put_if_absent(_version(version), json.dumps(record).encode()):
            return False
        if self._is_closed(version):
            self._files.delete(_version(version))
            return False
        return True

    def _is_closed(self, version: int) -> bool:
        """Tell whether a version is of a block whose files are gone."""
        return self._files.read(_closed(version)) is not None

    def _begun(self) -> LogState:
        """Return the state of the newest checkpoint, or that before all commits."""
        for _ in range(_TRIES):
            found = self._last_checkpoint()
            if found is not None:
                return found
            if self._is_closed(1):
                continue
            if self._files.read(_version(1)) is None and self._files.list(_VERSION):
                raise CorruptLogError(
                    "the log's first commit is not there, but later ones are",
                    where=str(self._files),
                    risk="which files count is unknown; nothing was changed",
                    remedy="restore the folder from a copy, or use an empty one",
                )
            return LogState()
        raise CorruptLogError(
            "the log has no checkpoint, and its old commits are gone",
            where=str(self._files),
            risk="which files count is unknown; nothing was changed",
            remedy="restore the folder from a copy, or use an empty one",
        )

    def _last_checkpoint(self) -> LogState | None:
        """Return the state of the newest checkpoint, None if there is none."""
        for name in reversed(self._files.list(_CHECKPOINT)):
            text = self._files.read(name)  # None if a newer one has just taken its place
            if text is not None:
                state = LogState.from_json(self._parsed(name, text))
                self._count_from(state.version, len(text))
                return state
        return None

    def _count_from(self, version: int, size: int) -> None:
        """Count the commits behind a checkpoint of some bytes."""
        self._counted_from, self._checkpoint_bytes, self._bytes_behind = version, size, 0

    def _write_checkpoint_if_due(self, version: int, state: LogState) -> None:
        """Write a checkpoint after so many commits, or bytes of them, and delete old ones."""
        is_large = self._bytes_behind > max(_CHECKPOINT_BYTES, self._checkpoint_bytes)
        is_regular = version % CHECKPOINT_EVERY == 0
        if state.version != version or not (is_regular or is_large):
            return
        known = self._files.list(_CHECKPOINT)
        if not is_regular and known and known[-1] > _checkpoint(self._counted_from):
            self._count_from(version, self._checkpoint_bytes)  # another writer's is about as new
            return
        content = json.dumps(state.to_json()).encode()
        self._files.put_if_absent(_checkpoint(version), content)
        self._count_from(version, len(content))
        kept = sorted({*known, _checkpoint(version)})
        for old in kept[:-_KEPT_CHECKPOINTS]:
            self._files.delete(old)
        if state.taken and len(kept) >= _KEPT_CHECKPOINTS:
            self._close_blocks(before=_version_of(kept[-_KEPT_CHECKPOINTS]))

    def _close_blocks(self, *, before: int) -> None:
        """Close the blocks that are wholly before a version, the oldest first, and empty them."""
        blocks: list[range] = []
        for number in reversed(range(before // _BLOCK)):
            block = range(max(1, number * _BLOCK), (number + 1) * _BLOCK)
            if self._is_closed(block[0]) and self._files.read(_version(block[-1])) is None:
                break  # it is empty, and so are all before it
            blocks.append(block)
        for block in reversed(blocks):
            self._files.put_if_absent(_closed(block[0]), b"")
            for version in block:
                self._files.delete(_version(version))


def _checkpoint(version: int) -> str:
    """Return the name of a version's checkpoint."""
    return f"{_CHECKPOINT}{version:08d}.json"


def _version_of(name: str) -> int:
    """Return the version of a checkpoint, by its name."""
    return int(name.rpartition("-")[2].removesuffix(".json"))


def _closed(version: int) -> str:
    """Return the name of the file that closes the block of a version."""
    return f"closed-{version // _BLOCK:06d}"


def _version(version: int) -> str:
    """Return the name of the manifest's file with this version."""
    return f"{_VERSION}{version:08d}.json"


def _files_of(record: Record) -> Iterator[str]:
    """Yield the paths of the files that a commit adds to the log."""
    if record["do"] in _ADDING:
        files = record.get("files", [record["file"]] if "file" in record else [])
        lists = files.values() if isinstance(files, dict) else [files]
        yield from (each["path"] for each in chain(*lists))
