"""The commits of one table in a change log: which file counts since when, and up to which place.

A commit is a version of the manifest. All rows of the snapshot are of one commit, the hand-off:
before it a split may be read again, and another file then counts in place of the first. From the
hand-off on files are only added, so a reader that has read the first N files goes on behind them.

A log that is begun anew by `reset` has files of its own, and another `id`. The time of a commit is
its writer's clock; where clocks of two writers differ, it never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CorruptLogError,
    RefusedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace, place_of
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import MANIFEST, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.opening import Root, files_at


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file of one table, with the commit that it counts by."""

    version: int
    committed_us: int
    begin: LogPosition
    """Where the log stood before the commit."""
    end: LogPosition
    file: SealedFile
    first_row: int
    """The number of the table's rows that the same commit has in files before this one."""
    is_snapshot: bool
    is_joined: bool = False
    """Its rows were read beside the stream: they are at the place where the log stood."""


class TableCommits:
    """The commits of one table's change log, read from its manifests."""

    def __init__(self, root: Root, table: TableId) -> None:
        self.root, self.table = files_at(root), table
        self.files: list[CommittedFile] = []
        """The files that count, in the order to read them; empty before the hand-off."""
        self.id = ""
        """Which log it is: another one after `reset`, and in a folder that was replaced."""
        self.first_version = 0
        """The version by which this log was begun."""
        self.first_us = 0
        self.last_us = 0
        """The time of the last commit, of any table, in microseconds since the epoch."""
        self.has_former_log = False
        """Whether an earlier log of this folder had rows that do not count any more."""
        self.begin: LogPosition | None = None
        """Where the stream began; None before the hand-off."""
        self.is_one_server = True
        """Whether places in the log only grow, so that each is one place."""
        self._folder = table_folder(table)
        self._manifest = Manifest(self.root, "")
        self._state = LogState()
        self._last: Record | None = None

    @property
    def last_version(self) -> int:
        """The newest version that was read."""
        return self._state.version

    @property
    def end(self) -> LogPosition | None:
        """Where the log stands; None before the hand-off."""
        return None if self._state.stream is None else self._state.stream.start

    @property
    def types(self) -> str:
        """The types of the log's values in Parquet, as the manifest says."""
        return self._state.types

    def read_on(self) -> None:
        """Read the commits that are new since the last call."""
        version = self._state.version
        newest = self._manifest.commits(after=max(0, version - 1))
        if version and next(newest, None) != self._last:
            raise self._replaced()
        for record in newest:
            self._add(record)
            self._last = record
        if not self._state.version:
            self._require_log()

    def sample(self, behind: int | None = None) -> SealedFile | None:
        """Return the last file with the table's columns, None if nothing was written of it yet.

        `behind` is a number of files: the last one before that place.
        """
        if self.files:
            return self.files[(behind or len(self.files)) - 1].file
        return next(iter(self._state.files(self._folder)), None)

    def require_table(self) -> None:
        """Refuse a table that is not in the log."""
        if self.table in self._state.targets or self.sample() is not None:
            return
        known = ", ".join(map(str, sorted(self._state.targets))) or "none yet"
        raise RefusedError(
            f"{self.table} is not in this change log; its tables: {known}",
            where=str(self.root),
            risk=NOTHING_STARTED,
            remedy="name one of these, as the sink has it",
        )

    def _add(self, record: Record) -> None:
        """Add one commit."""
        state, begin = self._state, self.end
        state.apply(record)
        self.last_us = max(self.last_us, record["at_us"])
        if not self.id:
            self._name_log(record)
        match record["do"]:
            case "start plan":
                self._begin_log(record)
            case "hand off" | "records" if _hands_off(record):
                known = {each.file for each in self.files}
                new = [file for file in state.files(self._folder) if file not in known]
                self._append(self.end, new, is_snapshot=True)
                self.begin = self.begin or self.end
            case "change":
                files = [SealedFile(**each) for each in record["files"].get(self._folder, ())]
                self._append(begin, files, is_snapshot=False)
            case "join" if record["folder"] == self._folder:
                files = [SealedFile(**each) for each in record["files"]]
                self._append(begin, files, is_snapshot=False, is_joined=True)
            case _:
                pass  # it changes no files
        self.is_one_server = self.is_one_server and _grows(begin, self.end)

    def _begin_log(self, record: Record) -> None:
        """Forget the files of a former log."""
        self.has_former_log = self.has_former_log or self.begin is not None
        self._name_log(record)
        self.files, self.begin, self.is_one_server = [], None, True

    def _name_log(self, record: Record) -> None:
        """Note by which commit this log was begun."""
        self.id = f"{record['pipeline']}@{record['version']}.{record['at_us']}"
        self.first_version, self.first_us = record["version"], self.last_us

    def _append(
        self,
        begin: LogPosition | None,
        files: Sequence[SealedFile],
        *,
        is_snapshot: bool,
        is_joined: bool = False,
    ) -> None:
        """Append the files of the last commit that was read."""
        end, first_row = self.end, 0
        if begin is None or end is None:
            return  # `LogState` refuses changes before the hand-off
        for file in files:
            made = CommittedFile(
                self.last_version, self.last_us, begin, end, file, first_row, is_snapshot
            )
            self.files.append(replace(made, is_joined=is_joined))
            first_row += file.rows

    def _replaced(self) -> SnapshotRequiredError:
        """Return the error for a folder that has another log since the last call."""
        return SnapshotRequiredError(
            f"manifest {self._state.version} is not the one that was read before: the folder was "
            "replaced",
            where=str(self.root),
            risk="what was read so far is of another log; nothing of this one was read",
            remedy="begin a new query with a new checkpoint: the log's snapshot comes first, so "
            "empty what the stream writes to",
        )

    def _require_log(self) -> None:
        """Refuse a folder without a change log, and one that lost its first manifests."""
        if self._manifest.read_any().version:
            raise CorruptLogError(
                "the first manifests are missing, which say when its files were committed",
                where=f"{self.root}/{MANIFEST}",
                risk="which rows are of which commit is unknown; nothing was read",
                remedy="restore the folder from a copy, or `reset` the pipeline",
            )
        raise RefusedError(
            "there is no change log",
            where=str(self.root),
            risk=NOTHING_STARTED,
            remedy="name the sink's path, as this machine and the executors see it, after the "
            "pipeline's first run",
        )


def _hands_off(record: Record) -> bool:
    """Tell whether a commit hands tables off to the stream."""
    if record["do"] == "hand off":
        return True
    return any(each["is"] == "stream stored" for each in record["records"])


def _grows(before: LogPosition | None, after: LogPosition | None) -> bool:
    """Tell whether a position's place in the log is at or behind another's, of the same server."""
    if before is None or after is None:
        return True
    if before.server != after.server:
        return False
    first, last = place_of(before), place_of(after)
    return first is not None and last is not None and first.is_before_or_at(last)


def require_place(commits: TableCommits, position: LogPosition) -> LogPlace:
    """Return a position's place in the log; refuse where that is not known."""
    place = place_of(position)
    if place is None or not commits.is_one_server:
        raise RefusedError(
            "the log was read from several servers, so a file and an offset are no one place",
            where=str(commits.root),
            risk=NOTHING_STARTED,
            remedy="give versions or times instead",
        )
    return place
