"""Hand-off: from the reports in the sink's ledger to the one stream split.

Only the ledger is asked, because only what it holds was committed with the rows. The hand-off is
refused unless every table's planning has ended and each of its splits is in the ledger; that the
splits cover every key once is checked by `core.stream_split`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from airflow_cdc_provider.core.errors import StateMovedError, TableChangedError
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_split import hand_off as turn_into_stream
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.ended import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_changes import require_unchanged
from airflow_cdc_provider.pipeline.steps.sink import open_ledger

Reports = Sequence[tuple[SnapshotSplit, SplitReport]]


def hand_off(run: Run) -> StreamSplit:
    """Store the stream split in the ledger and in the state store; return it."""
    require_not_ended(run)
    # splits read under another backfill would be taken for what they are not
    require_unchanged(run)
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        reconcile(run.store, ledger, run.name, generation)
        stream = ledger.stream()
        if stream is not None:
            return stream
        reports = ledger.reports()
        _require_all(run, reports)
        stream = _stream_of(run, reports)
        ledger.store_stream(stream)
        run.store.store_hand_off(run.name, generation, stream)
        phase = run.store.ensure(run.name).phase
        run.store.move(run.name, generation, expected=phase, to=Phase.HANDED_OFF)
        for table in run.store.tables(run.name):
            run.store.mark_table(run.name, generation, table.table, TablePhase.CATCHING_UP)
        run.store.tell(run.name, f"handed off at {stream.start}")
        return stream


def _stream_of(run: Run, reports: Reports) -> StreamSplit:
    backfill = run.model.snapshot.backfill
    finished = [
        FinishedSplit.of(split, report, backfilled=split.is_backfilled(wanted=backfill))
        for split, report in reports
    ]
    return turn_into_stream(finished, backfilled=backfill)


def _require_all(run: Run, reports: Reports) -> None:
    held = {split.split_id for split, _ in reports}
    planned = {state.table: state for state in run.store.tables(run.name)}
    for split, report in reports:
        table = planned.get(split.table)
        if table is not None and report.fingerprint != table.plan.schema.fingerprint:
            raise TableChangedError(
                f"{split.table} had another definition when {split.split_id} was read",
                where=f"hand-off of {run.name}",
                risk="rows of two definitions would stand side by side",
                remedy="`reset` the pipeline: it reads the tables as they are now",
            )
    unread = [
        state.split.split_id
        for state in run.store.splits(run.name)
        if state.status is not SplitStatus.CUT and state.split.split_id not in held
    ]
    unplanned = [str(name) for name, table in planned.items() if not table.planning_done]
    if unread or unplanned or not planned:
        missing = [*unread[:5], *unplanned[:5]] or ["a plan"]
        raise StateMovedError(
            f"the snapshot is not done: missing {', '.join(missing)}"
            f"{' and more' if len(unread) + len(unplanned) > len(missing) else ''}",
            where=f"hand-off of {run.name}",
            risk="none: nothing was handed off",
            remedy="run the snapshot again; it reads only what is missing",
        )
