"""Reset and drop: each says what it touches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.claims import release_tables
from airflow_cdc_provider.pipeline.steps.planning import new_plan
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, release_log, sink_of
from airflow_cdc_provider.pipeline.steps.stream_starts import began_without_rows
from airflow_cdc_provider.pipeline.steps.table_requests import reset_some

_UNLESS = ", unless its file says existing_rows: replace under sink"
_OF_A_NODE = ": empty or drop them at the node to be copied anew, as the page 'Two nodes' says"


def reset(run: Run) -> str:
    """Make a new plan, so that the next run reads every table again; describe the result."""
    before = run.store.pipeline(run.name)
    summary = new_plan(run)
    tables = counted(len(summary.tables), "table")
    run.store.want(run.name, Wanted.RUN)
    if summary.handed_off:
        return (
            f"{run.name} has a new plan for {tables}, whose stream begins at "
            f"{run.model.stream.starts_at.as_written}. Sink tables and their rows stay; no rows "
            "are read, and position and splits of the old plan are forgotten in state and ledger."
        )
    if before is None or not before.plan_id:
        return (
            f"{run.name} had no plan in this state store, and has a new plan for "
            f"{tables} now. The next run reads them."
        )
    return (
        f"{run.name} has a new plan for {tables}. Sink tables stay, and "
        "their rows are replaced by the next run; splits and position of the old plan are "
        "forgotten in state and ledger."
    )


def begin_again(
    run: Run,
    tables: Collection[TableId],
    *,
    wait_s: float = 0.0,
    on_tick: Callable[[], None] = lambda: None,
) -> str:
    """Reset some tables, or the whole pipeline if all or none are named.

    A new plan of a stream that began without a snapshot reads no rows. So tables that are named are
    read there even if they are all.
    """
    are_all = set(tables) == {state.table for state in run.store.tables(run.name)}
    if not tables or (are_all and not began_without_rows(run)):
        return reset(run)
    return reset_some(run, tables, wait_s=wait_s, on_tick=on_tick)


def drop(run: Run) -> str:
    """Delete the pipeline's state and ledger rows; the sink's tables and rows stay."""
    with closing(open_ledger(run)) as ledger:
        known = run.store.ensure(run.name).plan_id or ledger.plan_id()
        generation = take_over(run, ledger, may_be_anew=True).generation
        ledger.start_plan("")
        release_tables(run, generation)
        release_log(run)
        run.store.forget(run.name, generation)
    if not known:
        return f"{run.name} had no plan, neither in this state store nor in the sink's ledger."
    return (
        f"{run.name} is forgotten: its plan, splits, position and events in the state store and "
        "its splits, position and tables in the sink's ledger. The sink's tables and rows stay. "
        "Whoever copies to these tables next, this pipeline too, is refused while they hold rows"
        f"{_unless(run)}."
    )


def _unless(run: Run) -> str:
    """Return what lets a pipeline copy to tables that hold rows."""
    if run.model.edge is not None:
        return _OF_A_NODE
    return _UNLESS if sink_of(run).abilities.upserts else ""
