"""What a table lacks of the log: files, and the columns that it has with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.gathered import columns_of
from airflow_cdc_provider.systems.lake.table_columns import columns_with


@dataclass(frozen=True, slots=True)
class Behind:
    """What a table is to get in its next commit."""

    read: Sequence[SealedFile]
    """Files of a snapshot, which become the table's as they are."""
    changes: Sequence[SealedFile]
    columns: pa.Schema
    """The table's, with those of the files."""
    is_anew: bool
    """They take the place of all that is there."""
    is_of_plan: bool = False
    """The table has rows of the plan already."""
    before: Sequence[SealedFile] = ()
    """Files from before the table began anew, which may not fit it."""
    high: LogPosition | None = None
    """A place up to which the log has the table."""


def behind(
    store: ObjectStore,
    state: LogState,
    table: TableId,
    *,
    there: pa.Schema,
    known: int | None,
    widens: bool,
) -> Behind:
    """Return what a table lacks that has `known` of the plan's files of changes; None: nothing.

    `there` are its columns. Where files do not fit them, or are gone, and a later one says that all
    before it is void, the table begins anew with that one; if none says so: `RefusedError`, and
    `IntegrityError` for a table that was set back.
    """
    folder = table_folder(table)
    if is_set_back(state, table, known):
        if (anew := begun_anew(store, state, table, known)) is None:
            raise _set_back(store, state, table)
        return anew
    try:
        changes = state.changes_from(folder, known or 0)
        if known is not None:
            columns = columns_with(table, there, _columns(store, changes), widens=widens)
            return Behind((), changes, columns, is_anew=False, is_of_plan=True)
        read = tuple(state.read_files(folder))
        columns = _columns_anew(store, table, [*read, *changes], widens=widens or not read)
        columns = columns if read or changes else there
        return Behind(read, changes, columns, is_anew=True, high=_high(state, folder))
    except (RefusedError, IntegrityError):
        if (anew := begun_anew(store, state, table, known)) is None:
            raise
        return anew


def is_set_back(state: LogState, table: TableId, known: int | None) -> bool:
    """Tell whether a table lacks files of changes that the log has given to it."""
    return (known or 0) < state.taken.get(table_folder(table), 0)


def begun_anew(
    store: ObjectStore, state: LogState, table: TableId, known: int | None
) -> Behind | None:
    """Return what takes the place of all that is there; None if no file of the log begins anew."""
    folder = table_folder(table)
    begin, first = state.begins_at.get(folder), max(known or 0, state.taken.get(folder, 0))
    if begin is None or not first <= begin < state.settled(folder):
        return None
    changes = state.changes_from(folder, begin)
    columns = _columns_anew(store, table, changes, widens=True)
    before = [*state.changes_from(folder, first)[: begin - first]]
    if known is None:  # what was in a table that somebody dropped is not made again
        before = [] if state.taken.get(folder) else [*state.read_files(folder), *before]
    found = Behind((), changes, columns, is_anew=True, is_of_plan=known is not None)
    return replace(found, before=before, high=_high(state, folder))


def _high(state: LogState, folder: str) -> LogPosition | None:
    """Return where a table's rows were read, or else where the stream is."""
    read = (each.report.high for each in state.splits.values() if each.folder == folder)
    return next(read, None if state.stream is None else state.stream.start)


def _set_back(store: ObjectStore, state: LogState, table: TableId) -> IntegrityError:
    """Return the error for a table that has less than it once had."""
    return IntegrityError(
        f"the table {table} of the lake lacks changes that it had: it was dropped or set back",
        where=str(store),
        risk="the log has given them to the table and does not have them any more",
        remedy="restore the table, or `reset` it with "
        f"{state.to_reset(table)}: it is made anew, and the others flow on",
    )


def _columns_anew(
    store: ObjectStore, table: TableId, files: Sequence[SealedFile], *, widens: bool
) -> pa.Schema:
    """Return the columns of a table that has just these files."""
    return columns_with(table, pa.schema([]), _columns(store, files), widens=widens)


def _columns(store: ObjectStore, files: Sequence[SealedFile]) -> Sequence[pa.Schema]:
    """Return the different columns that files have."""
    found: list[pa.Schema] = []
    for each in files:
        columns = columns_of(store, each.path)
        if not any(columns.equals(other) for other in found):
            found.append(columns)
    return found
