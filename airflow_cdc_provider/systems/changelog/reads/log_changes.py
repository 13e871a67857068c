"""The changes of one table of a change log, as ranges and as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.systems.changelog.reads.change_rows import FilePart, read_parts
from airflow_cdc_provider.systems.changelog.reads.commits import TableCommits
from airflow_cdc_provider.systems.changelog.reads.offsets import (
    Offset,
    StreamOffset,
    files_between,
    require_same_log,
)
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.parts import parts_of
from airflow_cdc_provider.systems.changelog.reads.ranges import FileRange, file_range, refused
from airflow_cdc_provider.systems.changelog.reads.table_columns import log_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LogTask:
    """The files that one task reads, with the columns to read."""

    files: tuple[FilePart, ...]
    wanted: pa.Schema
    with_truncates: bool
    has_all: bool
    """The files must have no other columns: nobody has said which ones to leave out."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, one file behind the other."""
        return read_parts(
            self.files, self.wanted, with_truncates=self.with_truncates, has_all=self.has_all
        )


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """A range of a table's files."""

    commits: TableCommits
    options: ReadOptions
    range: FileRange

    @property
    def is_empty(self) -> bool:
        """Tell whether the range has no file."""
        return self.range.first == self.range.behind

    def columns(self) -> pa.Schema | None:
        """Return all columns as the range's last file has them, and those of commits."""
        return log_columns(self.commits, behind=self.range.behind)

    def parts(self, columns: pa.Schema) -> Sequence[LogTask]:
        """Return the files together, or cut to about one size."""
        options = self.options
        parts = parts_of(self.commits, self.range, part_bytes=options.part_bytes)
        return [
            LogTask(each, columns, options.with_truncates, not options.columns) for each in parts
        ]


class LogChanges:
    """Reads one table of a change log."""

    look_every_s = 0.05

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._commits = TableCommits(options.files, options.table)
        self._commits.read_on()

    def columns(self) -> pa.Schema | None:
        """Return the columns that the options ask for; None if nothing was written yet."""
        commits, options = self._commits, self._options
        behind = file_range(commits, options.ends).behind if commits.files else None
        return log_columns(commits, options.columns, behind=behind)

    def asked(self) -> ChosenFiles:
        """Return the files that the options ask for; refuse those that are not there yet."""
        if self._commits.begin is None:
            raise refused(
                "the snapshot is not finished, and none of its rows counts before",
                remedy="wait until the pipeline's tables are handed off to its stream",
            )
        return self._chosen(file_range(self._commits, self._options.ends))

    def between(self, start: Offset, end: Offset) -> ChosenFiles:
        """Return the files between two offsets; refuse offsets of another log."""
        first, last = StreamOffset.of_json(start), StreamOffset.of_json(end)
        return self._chosen(files_between(self._commits, first, last))

    def _chosen(self, chosen: FileRange) -> ChosenFiles:
        """Return the files of a range."""
        return ChosenFiles(self._commits, self._options, chosen)

    def read_on(self) -> None:
        """Read the commits that are new."""
        self._commits.read_on()

    def initial(self) -> Offset:
        """Return the offset at which a new stream begins."""
        return StreamOffset.initial(self._commits, self._options).to_json()

    def end(self) -> Offset:
        """Return the offset behind all files that are there."""
        return StreamOffset.behind(self._commits, len(self._commits.files)).to_json()

    def behind(self, start: Offset, *, most_files: int | None, last: Offset | None) -> Offset:
        """Return the end of the micro-batch that begins at an offset: `start` if nothing is new."""
        begun = StreamOffset.of_json(start)
        require_same_log(self._commits, begun)
        files = len(self._commits.files) if last is None else StreamOffset.of_json(last).files
        if most_files is not None:
            files = min(files, begun.files + most_files)
        if files <= begun.files:
            return start
        return StreamOffset.behind(self._commits, files).to_json()
