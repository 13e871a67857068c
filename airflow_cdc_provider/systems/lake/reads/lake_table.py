"""A lake's table as it is now, and up to where it has all changes of the log.

`_order` numbers the changes of all tables in the order of the log. A table takes its changes in
that order, file by file, and those of a table that is read again all at once: no commit ever adds
a row at or below the greatest `_order` of one before. So the rows up to an `_order` that a table
has are the same whenever they are read, in whatever files they are.

What may take rows away again: a commit that exchanges the table, and others. Then it begins with
another row than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    IntegrityError,
    RefusedError,
    SinkUnreachableError,
)
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.ranges import refused
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake.columns import SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.held import libraries_explained, own_stamp, said_by
from airflow_cdc_provider.systems.lake.reads.log_kinds import table_form
from airflow_cdc_provider.systems.lake.reads.stream_places import StreamPlaces
from airflow_cdc_provider.systems.lake.reads.table_files import RawFile, raw_files
from airflow_cdc_provider.systems.lake.table_columns import columns_with
from airflow_cdc_provider.systems.lake.tables.table import LakeTables, LoadedTable, Stamp

if TYPE_CHECKING:
    import pyarrow as pa

BEFORE_ALL = SNAPSHOT_ORDER - 1
"""An `_order` before that of all rows."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table as it was loaded."""

    options: ReadOptions
    columns: pa.Schema
    """All that it has, in types as files have them."""
    files: Sequence[RawFile]
    log: str
    """Which log its rows are of."""
    end: int
    """The greatest `_order` of its rows; `BEFORE_ALL` if it has none."""
    first: int | None
    """The smallest one; None if it has no row, or if that is not known."""
    proven: int
    """The greatest `_order` up to which it has all changes that the log has, or ever gets."""
    places: StreamPlaces = field(repr=False)

    @property
    def where(self) -> str:
        """Return the place and the table, for errors."""
        return f"{self.options.table} in {self.options.place}"


def log_of(state: LogState) -> str:
    """Return the name of a log, which no other one has."""
    return f"{state.pipeline}@{state.plan_id}"


def load_table(options: ReadOptions, state: LogState) -> LakeTable:
    """Load a table, after its log's state was read; refuse one that has no rows of it yet."""
    _require_followed(options, state)
    folder = table_folder(options.table)
    files_in_log = state.changes_in_all(folder)
    with libraries_explained(partial(_unreadable, options)):
        loaded = _loaded(options, state)
        stamp = None
        if loaded is not None:
            stamp = own_stamp(loaded, options.table, options.files, state.pipeline)
        if loaded is None or stamp is None or stamp.plan_id != state.plan_id:
            raise RefusedError(
                f"{options.table} has no row of the log yet",
                where=str(options.place),
                risk=NOTHING_STARTED,
                remedy="wait for its next commit, which is every commit_seconds of the sink",
            )
        if stamp.files < state.taken.get(folder, 0):
            raise _set_back(options)
        files = raw_files(options.place, options.table, loaded)
        columns = columns_with(options.table, loaded.columns, (), widens=False)
    end = _end_of(options, stamp, files)
    lows = [each.low for each in files if each.low is not None]
    is_complete = stamp.files >= files_in_log
    return LakeTable(
        options,
        columns,
        files,
        log_of(state),
        end,
        min(lows) if lows and len(lows) == len(files) else None,
        max(end, state.counts.events - 1) if is_complete else end,
        StreamPlaces.of(state, options.table, is_complete=is_complete),
    )


def _require_followed(options: ReadOptions, state: LogState) -> None:
    """Refuse a table that the lake does not have, and one before the hand-off."""
    if options.table not in state.targets and not state.holds(table_folder(options.table)):
        known = ", ".join(map(str, sorted(state.targets))) or "none yet"
        raise RefusedError(
            f"{options.table} is not in this lake; its tables: {known}",
            where=str(options.place),
            risk=NOTHING_STARTED,
            remedy="name one of these, as the sink has it",
        )
    if state.stream is None:
        raise refused(
            "the snapshot is not finished, and none of its rows counts before",
            remedy="wait until the pipeline's tables are handed off to its stream",
        )


def _loaded(options: ReadOptions, state: LogState) -> LoadedTable | None:
    """Load the table; None if there is none."""
    form = table_form(options)
    if form is None:
        return None
    place = options.place
    path = place.path if place.scheme == "file" else place.uri
    folder = Folder(path, form, access=place.access, catalog=options.catalog)
    module = import_module(f"airflow_cdc_provider.systems.lake.tables.{form}")
    tables: LakeTables = module.open_tables(folder, state.pipeline, state)
    return tables.load(options.table)


def _end_of(options: ReadOptions, stamp: Stamp, files: Sequence[RawFile]) -> int:
    """Return the greatest order of a table's rows; refuse rows that are gone, or of others."""
    highs = [each.high for each in files if each.high is not None]
    greatest = max(highs, default=BEFORE_ALL) if len(highs) == len(files) else None
    if greatest is None and stamp.order is None:
        raise RefusedError(
            f"the files of {options.table} do not say between which _order their rows are",
            where=str(options.place),
            risk="rows could be read twice, or never; none was read",
            remedy="read it once more behind its next commit, which says that",
        )
    end = stamp.order if stamp.order is not None else greatest
    if greatest is None or end is None:
        return end if end is not None else BEFORE_ALL
    if greatest < end:
        raise _set_back(options)
    if greatest > end:
        raise RefusedError(
            f"{options.table} has a row of _order {greatest}, and the pipeline wrote up to {end}",
            where=str(options.place),
            risk="rows that others added are no changes of the source; none was read",
            remedy="delete them, or read the table by Spark's own reader of the format",
        )
    return end


def _set_back(options: ReadOptions) -> IntegrityError:
    """Return the error for a table that has less than it once had."""
    return IntegrityError(
        f"{options.table} lacks rows that it had: it was set back, or others deleted them",
        where=str(options.place),
        risk="changes would be missing; none was read",
        remedy="restore the table; or wait for the pipeline, which adds again what its log has "
        "still; else `reset` the table, and begin a new query with a new checkpoint",
    )


def _unreadable(options: ReadOptions, error: Exception) -> SinkUnreachableError:
    """Return the error for a table that cannot be loaded."""
    return SinkUnreachableError(
        f"{options.table} cannot be loaded: {said_by(error)}",
        where=str(options.place),
        risk="none: nothing was read",
        remedy="mend what it says, such as a folder or a catalog that is out of reach",
    )
