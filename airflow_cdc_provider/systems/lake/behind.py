"""What a table lacks of the log: files, and the columns that it has with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
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


def behind(
    root: Path,
    state: LogState,
    table: TableId,
    *,
    there: pa.Schema,
    known: int | None,
    widens: bool,
) -> Behind:
    """Return what a table lacks that has `known` of the plan's files of changes; None: nothing.

    `there` are its columns. Where files do not fit them, and a later one says that all before it is
    void, the table begins anew with that one. If none says so: `RefusedError`.
    """
    folder = table_folder(table)
    try:
        changes = state.changes_from(folder, known or 0)
        if known is not None:
            columns = columns_with(table, there, _columns(root, changes), widens=widens)
            return Behind((), changes, columns, is_anew=False)
        read = tuple(state.read_files(folder))
        columns = _columns_anew(root, table, [*read, *changes], widens=widens or not read)
        return Behind(read, changes, columns if read or changes else there, is_anew=True)
    except RefusedError:
        begin = state.begins_at.get(folder)
        if begin is None or not (known or 0) <= begin < state.settled(folder):
            raise
        changes = state.changes_from(folder, begin)
        return Behind((), changes, _columns_anew(root, table, changes, widens=True), is_anew=True)


def _columns_anew(
    root: Path, table: TableId, files: Sequence[SealedFile], *, widens: bool
) -> pa.Schema:
    """Return the columns of a table that has just these files."""
    return columns_with(table, pa.schema([]), _columns(root, files), widens=widens)


def _columns(root: Path, files: Sequence[SealedFile]) -> Sequence[pa.Schema]:
    """Return the different columns that files have."""
    found: list[pa.Schema] = []
    for each in files:
        columns = columns_of(root / each.path)
        if not any(columns.equals(other) for other in found):
            found.append(columns)
    return found
