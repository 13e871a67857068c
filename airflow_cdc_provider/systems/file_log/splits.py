"""Publishing splits into a change log: the rows of each in a file, counted by one commit.

The file is sealed first and named by the manifest afterwards, with the split's report (law 4). A
split that is published again has a new file; the manifest then names that one only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.decisions import publish
from airflow_cdc_provider.engine.ledger.state import LedgerState
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.files import OpenFile, SealedFile
from airflow_cdc_provider.systems.file_log.layout import split_file, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import (
    PublishedSplit,
    Record,
    published_to,
)
from airflow_cdc_provider.systems.file_log.row_form import LogFiles
from airflow_cdc_provider.systems.file_log.state import LogState

_CHUNK_BYTES = 8 * 1024 * 1024
"""Columns that become text at a time: the text is a few times as large."""


class LogSplitSink:
    """Publishes splits into one pipeline's change log."""

    def __init__(self, files: LogFiles, owner: Owner, plans: Sequence[TablePlan]) -> None:
        self._files, self._root, self._owner = files, files.store, owner
        self._manifest = Manifest(self._root, str(owner.pipeline))
        self._plans: Mapping[TableId, TablePlan] = {plan.schema.table: plan for plan in plans}

    def close(self) -> None:
        """Do nothing: a folder needs no connection."""

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Write a split's rows to a file and commit it with the report."""
        report.require_rows(rows.rows, where=str(self._root))
        state = self._manifest.read()
        if self._record(state, split, report, ()) is None:
            return
        files = self._write(split, rows, report, types=state.types)
        self._manifest.commit(
            self._owner.generation, lambda state: self._record(state, split, report, files)
        )

    def _record(
        self,
        state: LogState,
        split: SnapshotSplit,
        report: SplitReport,
        files: tuple[SealedFile, ...],
    ) -> Record | None:
        """Return the manifest record that publishes a split; None if that is done already.

        Refuse if handed off.
        """
        self._manifest.require_owner(state, self._owner.generation)
        state.require_form(self._files.form.value, str(self._root))
        if not publish(self._ledger_of(state, split), self._owner.generation, split, report):
            return None
        folder = table_folder(self._plans[split.table].sink_table)
        return {"do": "publish", **published_to(PublishedSplit(split, report, folder, files))}

    def _ledger_of(self, state: LogState, split: SnapshotSplit) -> LedgerState:
        """Return of the change log's state what decides about one split."""
        found = state.splits.get(split.split_id)
        place = replace(self._manifest.place(state), undone="its file does not count")
        return state.as_ledger(place, () if found is None else ((found.split, found.report),))

    def _write(
        self, split: SnapshotSplit, rows: SplitRows, report: SplitReport, *, types: str
    ) -> tuple[SealedFile, ...]:
        """Write a split's rows to a file; no file for no rows, unless that tells the columns."""
        if not rows.rows and not (self._files.tells_columns and is_whole_table(split)):
            return ()
        plan = self._plans[split.table]
        name = split_file(split.number, self._owner.generation, self._files.form.value)
        form = self._files.rows_of(plan, types)
        now_us = time.time_ns() // 1000
        file = OpenFile(self._root, f"{table_folder(plan.sink_table)}/{name}", self._files.form)
        sealed = False
        try:
            for batch in chunks(rows.batches()) if rows.rows else [rows_of_nulls(rows.schema, 0)]:
                file.write(form.read(batch, report.high, now_us), batch.num_rows)
            written = file.seal()
            sealed = True
        finally:
            if not sealed:
                file.discard()
        if written.rows != rows.rows:
            raise IntegrityError(
                f"{written.rows} of {rows.rows} rows of split {split.split_id} were written",
                where=f"publishing to {self._root}",
                risk="none: the file does not count",
                remedy="read the split again; if it stays, report this",
            )
        return (written,)


def is_whole_table(split: SnapshotSplit) -> bool:
    """Tell whether a split is all of its table."""
    return split.is_whole_range and split.keys == KeyRange(None, None)


def rows_of_nulls(columns: pa.Schema, count: int) -> pa.RecordBatch:
    """Return rows of these columns without any value."""
    return pa.RecordBatch.from_arrays(
        [pa.nulls(count, field.type) for field in columns], schema=columns
    )


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches cut into chunks of about `_CHUNK_BYTES`."""
    for batch in batches:
        rows = max(1, batch.num_rows * _CHUNK_BYTES // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)
