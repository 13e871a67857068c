"""Plan: which tables there are, where they go, and under which plan their splits are kept.

The ledger in the sink and the state store each know a plan id, and either may be lost alone. What
to do follows from the two, and the ledger has the last word, because it was committed with the
rows:

- both hold the same plan: go on with it;
- the ledger streams, and the store holds no plan or another one: the store was reset or is
  someone else's; the plan is taken from the ledger, and nothing is read again;
- anything else: a new plan. Its id goes into the ledger first: a crash in between leaves a plan
  without a split in the ledger, and the next try makes a new one.

Splits are planned by the snapshot job, while readers already read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.sink import Ledger, open_ledger, open_table_builder
from airflow_cdc_provider.pipeline.steps.tables import captured_tables, require_keys
from airflow_cdc_provider.state.reconcile import reconcile


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What a plan step found or made."""

    plan_id: str
    generation: int
    is_new: bool
    tables: tuple[TablePlan, ...]
    handed_off: bool
    """The snapshot is done: only the stream is left."""
    created: tuple[str, ...] = ()
    """Sink tables that were created."""
    not_copied: tuple[str, ...] = ()
    """Tables that fit the file now but are not in the plan: they appeared later."""
    gone: tuple[str, ...] = ()
    """Tables of the plan that the file no longer picks, or that are gone at the source."""


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a run would find; made without changing anything."""

    tables: tuple[TablePlan, ...]
    stored_plan_id: str
    """The plan the state store holds, empty for none."""
    handed_off: bool
    not_copied: tuple[str, ...]
    gone: tuple[str, ...]


def preview(run: Run) -> PlanPreview:
    """Look at the tables and at what is remembered."""
    tables = captured_tables(run).plans
    state = run.store.pipeline(run.name)
    planned = tuple(table.plan for table in run.store.tables(run.name))
    not_copied, gone = _differences(planned, tables) if planned else ((), ())
    return PlanPreview(
        tables=tables,
        stored_plan_id="" if state is None else state.plan_id,
        handed_off=run.store.hand_off(run.name) is not None,
        not_copied=not_copied,
        gone=gone,
    )


def plan(run: Run) -> PlanSummary:
    """Go on with the plan there is, or make one."""
    tables = captured_tables(run).plans
    require_keys(tables)
    with closing(open_ledger(run)) as ledger:
        return _plan(run, ledger, tables)


def new_plan(run: Run) -> PlanSummary:
    """Make a new plan whatever there is: every table will be read again."""
    tables = captured_tables(run).plans
    require_keys(tables)
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        return _make(run, ledger, generation, tables)


def _plan(run: Run, ledger: Ledger, tables: tuple[TablePlan, ...]) -> PlanSummary:
    state = take_over(run, ledger)
    held, stream = ledger.plan_id(), ledger.stream()
    if held and held != state.plan_id and stream is not None:
        adopted = _tables_of_stream(stream, tables)
        if adopted is not None:
            _adopt(run, state.generation, held, adopted)
            state = run.store.ensure(run.name)
    if held and held == state.plan_id:
        return _go_on(run, ledger, state.generation, tables)
    if state.plan_id:
        run.store.tell(
            run.name,
            f"plan {state.plan_id} is not in the sink's ledger: everything is read again",
            level="warning",
        )
    return _make(run, ledger, state.generation, tables)


def _go_on(run: Run, ledger: Ledger, generation: int, tables: Sequence[TablePlan]) -> PlanSummary:
    correction = reconcile(run.store, ledger, run.name, generation)
    planned = tuple(state.plan for state in run.store.tables(run.name))
    not_copied, gone = _differences(planned, tables)
    phase = run.store.ensure(run.name).phase
    if not correction.handed_off and phase in {Phase.NEW, Phase.FAILED}:
        run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
    created = _create_tables(run, planned)
    return PlanSummary(
        plan_id=run.store.ensure(run.name).plan_id,
        generation=generation,
        is_new=False,
        tables=planned,
        handed_off=correction.handed_off,
        created=created,
        not_copied=not_copied,
        gone=gone,
    )


def _differences(
    planned: Sequence[TablePlan], tables: Sequence[TablePlan]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tables that came since the plan was made, and those that went."""
    old, now = ({plan.schema.table for plan in plans} for plans in (planned, tables))
    return tuple(map(str, sorted(now - old))), tuple(map(str, sorted(old - now)))


def _make(run: Run, ledger: Ledger, generation: int, tables: tuple[TablePlan, ...]) -> PlanSummary:
    plan_id = uuid.uuid4().hex
    ledger.start_plan(plan_id)
    # with the old plan gone from the ledger no table is streamed, so all are made ready to be read
    created = _create_tables(run, tables)
    run.store.start_plan(run.name, generation, plan_id, tables)
    phase = run.store.ensure(run.name).phase
    run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
    run.store.tell(run.name, f"plan {plan_id}: {len(tables)} tables")
    return PlanSummary(
        plan_id=plan_id,
        generation=generation,
        is_new=True,
        tables=tables,
        handed_off=False,
        created=created,
    )


def _tables_of_stream(
    stream: StreamSplit, tables: Sequence[TablePlan]
) -> tuple[TablePlan, ...] | None:
    """Return the plans of exactly the tables the ledger streams, None if one is missing."""
    streamed = {progress.table for progress in stream.tables}
    plans = tuple(plan for plan in tables if plan.schema.table in streamed)
    return plans if len(plans) == len(streamed) else None


def _adopt(run: Run, generation: int, plan_id: str, tables: tuple[TablePlan, ...]) -> None:
    run.store.start_plan(run.name, generation, plan_id, tables)
    phase = run.store.ensure(run.name).phase
    run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
    for table in tables:
        run.store.finish_planning(run.name, generation, table.schema.table)
    run.store.tell(run.name, f"plan {plan_id} was taken from the sink's ledger", level="warning")


def _create_tables(run: Run, tables: Sequence[TablePlan]) -> tuple[str, ...]:
    with closing(open_table_builder(run)) as builder:
        created = builder.create_missing(tables)
    return tuple(str(table) for table, is_new in sorted(created.items()) if is_new)
