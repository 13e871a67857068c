"""Columns that come to a table are in its log, also while no row is behind them.

Readers of a log know a table's columns by its files alone. So where a change of a definition adds
columns, a file without a row has them. Which columns are to be told is noted with the end of the
change, in the same commit, and forgotten with the file: whoever dies between, the next one tells
them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.systems.file_log.files import OpenFile, SealedFile
from airflow_cdc_provider.systems.file_log.layout import columns_file, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.row_form import LogFiles
from airflow_cdc_provider.systems.file_log.splits import rows_of_nulls
from airflow_cdc_provider.systems.file_log.state import LogState

if TYPE_CHECKING:
    import pyarrow as pa


class ToldColumns:
    """Writes to one pipeline's log which columns its tables have got."""

    def __init__(self, files: LogFiles, owner: Owner, captured: CapturedTables) -> None:
        self._files, self._owner, self._captured = files, owner, captured
        self._manifest = Manifest(files.root, str(owner.pipeline))

    def tell(self) -> None:
        """Write a file without a row for each table that has got columns since its last file."""
        state = self._manifest.read()
        self._manifest.require_owner(state, self._owner.generation)
        if state.stream is None or not state.untold:
            return
        for plan in self._captured.followed:
            if _new(state.untold, plan, state.stream):
                self._tell(plan, state.stream, state.types)

    def _tell(self, plan: TablePlan, stream: StreamSplit, types: str) -> None:
        """Write the file of one table and commit it, unless somebody else has done so."""
        file = self._write(plan, stream, types)
        is_named = False

        def judge(state: LogState) -> Record | None:
            nonlocal is_named
            self._manifest.require_owner(state, self._owner.generation)
            new = set() if state.stream is None else _new(state.untold, plan, state.stream)
            is_named = bool(new)
            if not new:
                return None
            return {
                "do": "tell columns",
                "table": str(plan.schema.table),
                "folder": table_folder(plan.sink_table),
                "columns": sorted(new),
                "file": asdict(file),
            }

        self._manifest.commit(self._owner.generation, judge)
        if not is_named:
            self._files.store.delete(file.path)

    def _write(self, plan: TablePlan, stream: StreamSplit, types: str) -> SealedFile:
        """Write a file that has a table's columns and no row."""
        folder, form = table_folder(plan.sink_table), self._files.form
        path = f"{folder}/{columns_file(self._owner.generation, form.value)}"
        file, sealed = OpenFile(self._files.store, path, form), None
        try:
            columns: pa.Schema = self._captured.columns_of(plan.schema.table)
            rows = self._files.rows_of(plan, types)
            now_us = time.time_ns() // 1000
            file.write(rows.read(rows_of_nulls(columns, 0), stream.start, now_us), 0)
            sealed = file.seal()
        finally:
            if sealed is None:
                file.discard()
        return sealed


def _new(untold: Mapping[TableId, set[str]], plan: TablePlan, stream: StreamSplit) -> set[str]:
    """Return which of a plan's columns are to be told; none of a table that is being read."""
    progress = stream.progress_of(plan.schema.table)
    if progress is None or progress.is_unread:
        return set()
    planned = {column.name for column in plan.target.copied_columns}
    return untold.get(plan.schema.table, set()) & planned
