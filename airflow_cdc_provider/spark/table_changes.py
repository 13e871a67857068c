"""What format `cdc` needs of a table's changes, whatever they are stored in, and what stores them.

The path says which it is: its manifests are those of a change log or of a lake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.changelog.reads.log_changes import LogChanges
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.lake.reads.lake_changes import LakeChanges
from airflow_cdc_provider.systems.lake.reads.log_kinds import LogKind, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions

Offset = dict[str, Any]
"""An offset as Spark stores it: plain values by name."""


class TaskPart(Protocol):
    """What one task reads; it goes to an executor."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""


class ChosenChanges(Protocol):
    """The changes of a range, as their table is now."""

    @property
    def is_empty(self) -> bool:
        """Tell whether the range has no changes for sure."""

    def columns(self) -> pa.Schema | None:
        """Return all columns of the table, and those of changes; None if they are not known."""

    def parts(self, columns: pa.Schema) -> Sequence[TaskPart]:
        """Return the tasks that read some columns of the range."""


class TableChanges(Protocol):
    """The changes of one table."""

    look_every_s: float
    """How often it is asked what is new while nothing is."""

    def columns(self) -> pa.Schema | None:
        """Return the columns that the options ask for; None if nothing was written yet."""

    def asked(self) -> ChosenChanges:
        """Return the changes that the options ask for; refuse those that are not there yet."""

    def between(self, start: Offset, end: Offset) -> ChosenChanges:
        """Return the changes between two offsets; refuse offsets of changes that are gone."""

    def read_on(self) -> None:
        """Look what is new."""

    def initial(self) -> Offset:
        """Return the offset at which a new stream begins."""

    def end(self) -> Offset:
        """Return the offset behind all that is there."""

    def behind(self, start: Offset, *, most_files: int | None, last: Offset | None) -> Offset:
        """Return the end of the micro-batch that begins at an offset: `start` if nothing is new.

        It has at most so many files, and nothing behind `last`. Refuse as `between` does.
        """


def opened(options: ReadOptions) -> TableChanges:
    """Return the changes of the table that the options name, as they are now."""
    state = Manifest(options.files, "").read_any()
    match kind_of(options.files, state):
        case LogKind.APPEND:
            return LakeChanges(options)
        case LogKind.MIRROR:
            raise RefusedError(
                "the tables of this lake hold the current rows (mode: mirror), not their changes",
                where=str(options.place),
                risk=NOTHING_STARTED,
                remedy="read them by Spark's own reader of Iceberg or Delta; for changes name the "
                "path of a change log, or of a lake with mode: append",
            )
        case _:
            return LogChanges(options)
