"""Whether a run has only to follow the log: the plan is made, read and handed off.

Then planning, the snapshot and the hand-off would find all of it done, and a run can leave them
out. They are left out only if everything that they would look at is as they would leave it: the
file and both servers are those of the plan, no table comes or goes, nothing is asked for, the
sink's ledger streams exactly the plan's tables, none of them waits for its consistent point or for
a change of its definition, and the sink's tables are there and fit. Whatever differs, and an answer
that does not come, is left to the steps themselves, which report it and correct it.

Nothing is changed here.
"""

from __future__ import annotations

import logging
from contextlib import closing

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import CheckReport
from airflow_cdc_provider.pipeline.steps.file_diff import dropped
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_table_builder, open_targets

log = logging.getLogger(__name__)


def is_settled(run: Run, report: CheckReport) -> bool:
    """Tell whether a run has only to follow the log, by a check made just now."""
    try:
        return _is_as_planned(run, report) and _is_streamed_whole(run) and _fits(run)
    except CdcError as error:
        log.info("left to the steps of the run: pipeline=%s cause=%s", run.name, error.what)
        return False


def _is_as_planned(run: Run, report: CheckReport) -> bool:
    """Tell whether file and servers are those of the plan, and no request is open."""
    store, name = run.store, run.name
    return (
        store.is_handed_off(name)
        and store.ensure(name).phase is Phase.STOPPED
        and store.origin(name) == report.origin
        and not (report.not_copied or report.gone or dropped(run))
        and not (store.to_do(name) or store.table_requests(name))
    )


def _is_streamed_whole(run: Run) -> bool:
    """Tell whether the ledger streams exactly this plan's tables, all consistent."""
    with closing(open_ledger(run)) as ledger:
        is_this_plan = ledger.plan_id() == run.store.ensure(run.name).plan_id
        stream, stopped = ledger.stream(), ledger.stopped()
        is_changing = bool(ledger.open_changes())
    if stream is None or is_changing or not is_this_plan:
        return False
    stream = stream.passed(stream.start)
    owned = {progress.table for progress in stream.tables} | {each.table for each in stopped}
    return (
        owned == {state.table for state in run.store.tables(run.name)}
        and not (stream.inconsistent or stream.unread)
        and all(each.is_paused for each in stopped)
    )


def _fits(run: Run) -> bool:
    """Tell whether the sink's tables are claimed, exist and can take the rows."""
    plans = [state.plan for state in run.store.tables(run.name)]
    copied: set[tuple[TableId, TableId]] = {(plan.schema.table, plan.sink_table) for plan in plans}
    with closing(open_targets(run)) as targets:
        if set(targets.routes()) != copied:
            return False
        paused = {each.table for each in targets.stopped()}
    flowing = [plan for plan in plans if plan.schema.table not in paused]
    with closing(open_table_builder(run)) as builder:
        builder.require_fit(flowing)
        return not builder.missing(flowing)
