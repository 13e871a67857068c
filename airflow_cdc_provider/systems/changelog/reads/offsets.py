"""Places of a stream that reads a change log: how many of a table's files it has read.

Files are only ever added to a log, so the files between two offsets are the same whenever they are
asked for. A log that was begun anew has another id, and an offset of the former one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.errors import CorruptLogError, SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reads.commits import TableCommits
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.ranges import FileRange, file_range, refused

Offset = dict[str, Any]
"""An offset as Spark stores it: plain values by name."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has read one table's log."""

    log: str
    files: int
    """The number of the table's files before this place."""
    version: int
    """The version of the last of these, for people; 0 for none."""
    start: str = ""
    """The place in the source's log before which the next file's changes are left out."""

    @classmethod
    def behind(cls, commits: TableCommits, files: int) -> StreamOffset:
        """Return the offset behind a number of files."""
        version = commits.files[files - 1].version if files else 0
        return cls(commits.id, files, version)

    @classmethod
    def initial(cls, commits: TableCommits, options: ReadOptions) -> StreamOffset:
        """Return the offset at which a new stream with these options begins."""
        for name in options.ends:
            if name.startswith("ending"):
                raise refused(
                    f"a stream has no {name}",
                    remedy="leave it out, with trigger(availableNow=True) for what is there now; "
                    "or read it once, not as a stream",
                )
        chosen = file_range(commits, options.ends) if options.ends else FileRange(0, 0)
        offset = cls.behind(commits, chosen.first)
        start = "" if chosen.start is None else str(chosen.start)
        return cls(offset.log, offset.files, offset.version, start)

    @classmethod
    def of_json(cls, form: Mapping[str, Any]) -> StreamOffset:
        """Read an offset from the form that Spark stored."""
        return cls(form["log"], form["files"], form["version"], form.get("start", ""))

    def to_json(self) -> Offset:
        """Return the offset as plain values."""
        form: Offset = {"log": self.log, "files": self.files, "version": self.version}
        return {**form, "start": self.start} if self.start else form


def files_between(commits: TableCommits, start: StreamOffset, end: StreamOffset) -> FileRange:
    """Return the files between two offsets of one log; refuse offsets of another log."""
    for offset in (start, end):
        require_same_log(commits, offset)
    place = LogPlace.parse(start.start) if start.start else None
    return FileRange(start.files, max(start.files, end.files), place)


def require_same_log(commits: TableCommits, offset: StreamOffset) -> None:
    """Refuse an offset of a log that is not there any more."""
    if offset.log != commits.id:
        raise SnapshotRequiredError(
            f"the stream read a log of {commits.table} that is not there any more: it was begun "
            f"anew, or replaced, with version {commits.first_version}",
            where=str(commits.root),
            risk="what it has read so far is of the former log; nothing of the new one was read",
            remedy="begin a new query with a new checkpoint: the new log's snapshot comes first, "
            "so empty what the stream writes to",
        )
    if offset.files > len(commits.files):
        raise CorruptLogError(
            f"the stream has read {offset.files} files, and the manifests name "
            f"{len(commits.files)}",
            where=str(commits.root),
            risk="an older copy of the folder may be there; nothing was read",
            remedy="restore the folder's newest copy, or begin a new query with a new checkpoint",
        )
