"""Hand-off: from the reports in the sink's ledger to the one stream split.

Only the ledger is asked, because only what it holds was committed with the rows. The hand-off is
refused unless every table's planning has ended and each of its splits is in the ledger; that the
splits cover every key once is checked by `core.stream_split`. Tables that were changed while they
were read begin again beside the stream (`redefined_tables`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, suppress

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    StateMovedError,
    StepMissingError,
    TableChangedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_split import hand_off as turn_into_stream
from airflow_cdc_provider.core.stream_stops import has_ended
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.stream.pending_changes import finish_what_can_be
from airflow_cdc_provider.pipeline.run import Run, is_streamed, take_over
from airflow_cdc_provider.pipeline.steps.ended_stream import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.redefined_tables import changed_while_read
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, sink_of
from airflow_cdc_provider.pipeline.steps.stream_ends import ended_text, forget_end, note_ended

Reports = Sequence[tuple[SnapshotSplit, SplitReport]]


def hand_off(run: Run) -> StreamSplit:
    """Hand off: make the stream split, store it in ledger and state store, return it.

    What it fails by is among the pipeline's events: no job runs that would keep it.
    """
    try:
        return _handed_off(run)
    except (FencedError, StateMovedError):
        raise  # the pipeline is someone else's
    except CdcError as error:
        with suppress(CdcError):
            words = run.servers.secrets.scrub(str(error))
            run.store.tell(run.name, f"hand-off failed: {words}", level="error")
        raise


def _handed_off(run: Run) -> StreamSplit:
    """Hand off, unless that is done."""
    require_not_ended(run)
    # splits read under another backfill would be taken for what they are not
    require_unchanged(run)
    with closing(open_ledger(run)) as ledger:
        if is_streamed(run) and (handed_off := ledger.stream()) is not None:
            return handed_off
        generation = take_over(run, ledger).generation
        reconcile(run.store, ledger, run.name, generation)
        stream = ledger.stream() or _hand_off(run, ledger, generation)
        if has_ended(stream, run.model.stream.stops_at):
            note_ended(run, stream)
        finish_what_can_be(run.store, sink_of(run, generation), ledger, run.name, generation)
        ask_for_unread(run.store, run.name, generation, stream, by=run.owner)
        return stream


def _hand_off(run: Run, ledger: Ledger, generation: int) -> StreamSplit:
    """Make the stream split from the reports, and store it."""
    planned = {state.table for state in run.store.tables(run.name)}
    reports = [each for each in ledger.reports() if each[0].table in planned]  # some were removed
    changes = changed_while_read(run, reports)
    if changes and not run.model.stream.has_stream:
        raise _changed_without_stream(changes)
    changed = {change.table for change in changes}
    reports = [each for each in reports if each[0].table not in changed]
    _require_all(run, reports, but_for=changed)
    stream = _stream_of(run, reports, changes)
    ledger.store_stream(stream, changes)
    run.store.store_hand_off(run.name, generation, stream)
    phase = run.store.ensure(run.name).phase
    run.store.move(run.name, generation, expected=phase, to=Phase.HANDED_OFF)
    for table in run.store.tables(run.name):
        if table.table not in changed and run.model.stream.has_stream:
            run.store.mark_table(run.name, generation, table.table, TablePhase.CATCHING_UP)
    if run.model.stream.has_stream:
        forget_end(run)
        run.store.tell(run.name, f"handed off at {stream.start}")
    else:
        run.store.tell(run.name, ended_text(run, stream))
    return stream


def _stream_of(run: Run, reports: Reports, changes: Sequence[SchemaChange]) -> StreamSplit:
    """Make the stream split; tables that changed while they were read join as unread."""
    backfill = run.model.snapshot.backfill
    finished = [
        FinishedSplit.of(split, report, backfilled=split.is_backfilled(wanted=backfill))
        for split, report in reports
    ]
    added = {change.table: change.through for change in changes}
    if not finished:  # all were changed, so all begin at one place
        return StreamSplit(changes[0].through, None, ()).with_tables(added, ())
    stream = turn_into_stream(finished, backfilled=backfill).with_tables(added, ())
    if run.model.stream.has_stream:
        return stream
    return stream.ending_at(stream.start, str(run.model.stream.stops_at))


def _changed_without_stream(changes: Sequence[SchemaChange]) -> TableChangedError:
    """Return the error for tables that got another definition while they were read.

    Without a stream their rows cannot be read again beside it.
    """
    names = ", ".join(str(change.table) for change in changes)
    return TableChangedError(
        f"{names} got another definition while it was read",
        where="hand-off, stream.mode: snapshot_only",
        risk="its rows at the sink are of two definitions; nothing was handed off",
        remedy="`reset` the pipeline: the next run reads all tables again",
    )


def _require_all(run: Run, reports: Reports, *, but_for: Collection[TableId]) -> None:
    """Raise `StepMissingError` if a split or a table's plan is missing."""
    held = {split.split_id for split, _ in reports}
    tables = run.store.tables(run.name)
    unread = [
        state.split.split_id
        for state in run.store.splits(run.name)
        if state.status is not SplitStatus.CUT
        and state.split.split_id not in held
        and state.split.table not in but_for
    ]
    unplanned = [
        str(each.table) for each in tables if not each.planning_done and each.table not in but_for
    ]
    if unread or unplanned or not tables:
        missing = [*unread[:5], *unplanned[:5]] or ["a plan"]
        raise StepMissingError(
            f"the snapshot is not done: missing {', '.join(missing)}"
            f"{' and more' if len(unread) + len(unplanned) > len(missing) else ''}",
            where=f"hand-off of {run.name}",
            risk="none: nothing was handed off",
            remedy="run the snapshot again, in Airflow by clearing its task; it reads only what is "
            "missing",
        )
