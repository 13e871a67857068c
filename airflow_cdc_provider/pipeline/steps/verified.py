"""What was compared, and when: noted, so that a run compares what was not found equal since.

A table is to be compared again once it was read anew, or got another definition, or where the last
comparison found rows that differ. Rows that only the stream brought are no reason.
"""

from __future__ import annotations

from contextlib import suppress

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.pipeline.run import Run


def note_verified(run: Run, report: VerifyReport, began_us: int) -> None:
    """Note what was found; a store that does not answer keeps nothing, and it is found again."""
    found = {
        str(each.table): {"at_us": began_us, "equal": each.equal, "rows": each.rows_source}
        for each in report.tables
    }
    with suppress(CdcError):
        planned = {str(state.table) for state in run.store.tables(run.name)}
        before = run.store.note(run.name, NoteKind.VERIFIED)
        known = {} if before is None else before.form["tables"]
        kept = {table: known[table] for table in known if table in planned}
        run.store.keep_note(run.name, NoteKind.VERIFIED, {"tables": {**kept, **found}})


def to_verify(run: Run) -> tuple[TableId, ...]:
    """Return the tables that changed in more than rows since they were last found equal."""
    note = run.store.note(run.name, NoteKind.VERIFIED)
    known = {} if note is None else note.form["tables"]

    def is_proven(table: TableId, changed_us: int) -> bool:
        last = known.get(str(table))
        return last is not None and last["equal"] and last["at_us"] > changed_us

    states = run.store.tables(run.name)
    return tuple(each.table for each in states if not is_proven(each.table, each.changed_us))
