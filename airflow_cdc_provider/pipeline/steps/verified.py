"""What was compared, and when: noted, so that a run compares what was not found equal since.

A table is to be compared again once all of it was read anew, by a snapshot or a request, or it got
another definition, or where the last comparison found rows that differ. Rows that only the stream
brought, or a request for some rows, are no reason.
"""

from __future__ import annotations

from contextlib import suppress

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.requests import read_as_a_whole
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.pipeline.run import Run

_CLOCKS_US = 300_000_000
"""By how much the source's clock, which dates changes, may be behind that of the state store."""


def note_verified(run: Run, report: VerifyReport, began_us: int) -> None:
    """Store the tables' results of a comparison; a state store that is away is ignored."""
    found = {
        str(each.table): {"at_us": began_us, "equal": each.equal, "rows": each.rows_source}
        for each in report.tables
        if not (each.sampled and each.equal)
    }
    with suppress(CdcError):
        planned = {str(state.table) for state in run.store.tables(run.name)}
        before = run.store.note(run.name, NoteKind.VERIFIED)
        known = {} if before is None else before.form["tables"]
        kept = {table: known[table] for table in known if table in planned}
        run.store.keep_note(run.name, NoteKind.VERIFIED, {"tables": {**kept, **found}})


def changed_since_verified(run: Run) -> frozenset[TableId]:
    """Return the tables that changed since they were last found equal.

    A table of which that is not known counts as changed.
    """
    note, now_us = run.store.note(run.name, NoteKind.VERIFIED), run.store.now_us()
    known = {} if note is None else note.form["tables"]
    rows = {table.source: table for table in run.store.table_overviews(run.name, now_us)}

    def is_same(table: TableId) -> bool:
        last, seen = known.get(str(table)), rows.get(str(table))
        if last is None or seen is None or seen.inserts is None:
            return False
        return int(last["at_us"]) - _CLOCKS_US > (seen.changed_us or 0)

    changed = set(to_verify(run))
    return frozenset(
        state.table
        for state in run.store.tables(run.name)
        if state.table in changed or not is_same(state.table)
    )


def to_verify(run: Run) -> tuple[TableId, ...]:
    """Return the tables not found equal since they were read or defined, or their phase changed."""
    note = run.store.note(run.name, NoteKind.VERIFIED)
    known = {} if note is None else note.form["tables"]
    read_us = read_as_a_whole(run.store.requests(run.name))

    def is_proven(table: TableId, changed_us: int) -> bool:
        last, since_us = known.get(str(table)), max(changed_us, read_us.get(table, 0))
        return last is not None and last["equal"] and last["at_us"] > since_us

    states = run.store.tables(run.name)
    return tuple(each.table for each in states if not is_proven(each.table, each.changed_us))
