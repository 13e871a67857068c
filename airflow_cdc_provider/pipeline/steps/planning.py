"""Plan: which tables there are, where they go, and under which plan their splits are kept.

The ledger in the sink and the state store each know a plan id, and either may be lost alone. What
to do follows from the two, and the ledger has the last word, because it was committed with the
rows:

- both hold the same plan: go on with it;
- the ledger streams, and the store holds no plan or another one: the store was reset or is
  someone else's; the plan is taken from the ledger, and nothing is read again;
- anything else: a new plan. Its id goes into the ledger first: a crash in between leaves a plan
  without a split in the ledger, and the next try makes a new one.

Before any of this the file is compared with the plan (`file_diff`), the servers with those of
the plan (`servers`), and the sink's tables are claimed (`claims`). What is asked of a table (a
key, a target of its own) is asked of those that the plan has or a new one would have: a table that
came later is told, and stops nothing until a new plan is asked for.

Splits are planned by the snapshot job, while readers already read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.records import PlanOrigin, TablePlan
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.drifted import ask_for_drifted
from airflow_cdc_provider.engine.stream.isolation import mark_drifted, stopped_by, stopped_text
from airflow_cdc_provider.engine.stream.pending_changes import finish_what_can_be
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.changed_rules import (
    keep_rules,
    require_former_rules,
    take_changed_rules,
)
from airflow_cdc_provider.pipeline.steps.checking import CheckReport, check, differences
from airflow_cdc_provider.pipeline.steps.claims import (
    claim_tables,
    copied_by,
    own_tables,
    release_tables,
)
from airflow_cdc_provider.pipeline.steps.ended_stream import require_not_ended, set_aside_as_wanted
from airflow_cdc_provider.pipeline.steps.file_diff import (
    dropped,
    picked_anew,
    require_unchanged,
)
from airflow_cdc_provider.pipeline.steps.former_shards import clear_former_shards
from airflow_cdc_provider.pipeline.steps.hidden_columns import HiddenColumns, note_chosen
from airflow_cdc_provider.pipeline.steps.last_try import PLAN, recording_attempt, scrubbed
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.pipeline.steps.marked_rows import (
    publish_marked_rows,
    require_marked_rows_keep,
)
from airflow_cdc_provider.pipeline.steps.plan_sync import follow_file
from airflow_cdc_provider.pipeline.steps.seeding import (
    note_seed,
    require_begun_by_copy,
    require_empty,
)
from airflow_cdc_provider.pipeline.steps.servers import origin_now, require_sink, source_is_new
from airflow_cdc_provider.pipeline.steps.sink import (
    isolates_tables,
    open_ledger,
    open_table_builder,
    open_targets,
    secure_log,
    sink_of,
)
from airflow_cdc_provider.pipeline.steps.stream_ends import forget_end, require_stop_ahead
from airflow_cdc_provider.pipeline.steps.stream_starts import (
    begin_with,
    create_lacking,
    hand_off_unread,
    note_start,
    require_same_start,
    started_text,
)
from airflow_cdc_provider.pipeline.steps.table_catch_up import CatchUp
from airflow_cdc_provider.pipeline.steps.table_membership import settle_tables
from airflow_cdc_provider.pipeline.steps.table_requests import carry_out_table_requests
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    captured_tables,
    require_columns,
    require_keys,
    require_separate,
)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The result of the plan step: the plan's id, tables, and what it changed."""

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
    changed: tuple[str, ...] = ()
    """What came and went because the file, or the source, has other tables now; for people."""
    warning: str = ""
    """Why the plan is not the one that this state store held, if nobody asked for another one."""


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What the plan step would find; made without changing anything."""

    report: CheckReport
    """What a run would check first: if it refuses, so does the run."""
    stored_plan_id: str
    """The plan the state store holds, empty for none."""
    handed_off: bool
    removes: tuple[str, ...] = ()
    """Tables that a run would give up, because the file does not pick them any more."""

    @property
    def tables(self) -> tuple[TablePlan, ...]:
        """Return the plans of the tables that the file picks."""
        return self.report.tables

    @property
    def not_copied(self) -> tuple[str, ...]:
        """Return the tables that the file picks but the plan lacks."""
        return self.report.not_copied

    @property
    def gone(self) -> tuple[str, ...]:
        """Return planned tables that are gone at the source and that the run does not remove."""
        return tuple(table for table in self.report.gone if table not in self.removes)


def preview(run: Run) -> PlanPreview:
    """Return what the plan step would find, without changing anything."""
    report = check(run)
    state = run.store.pipeline(run.name)
    return PlanPreview(
        report=report,
        stored_plan_id="" if state is None else state.plan_id,
        handed_off=run.store.is_handed_off(run.name),
        removes=tuple(map(str, dropped(run))),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The tables that the file picks, and what a plan of them would be made from."""

    captured: Captured
    origin: PlanOrigin

    @property
    def tables(self) -> tuple[TablePlan, ...]:
        """Return the tables' plans."""
        return self.captured.plans


def plan(run: Run, *, reach: CatchUp | None = None) -> PlanSummary:
    """Continue the stored plan, or make one; table requests are carried out first.

    Tables that came or went are added and removed; `reach` is how the log is caught up with for
    that.
    """
    set_aside_as_wanted(run)
    require_not_ended(run)
    with recording_attempt(run, PLAN):
        told = carry_out_table_requests(run, reach=reach)
        require_not_ended(run)  # unless what was asked has mended it
        found = _planned(run, reach)
        note_chosen(run)
        return replace(found, changed=(*told, *found.changed))


def _planned(run: Run, reach: CatchUp | None) -> PlanSummary:
    """Sync the plan with the file, then continue or make it."""
    captured = captured_tables(run)
    left_out, _ = differences(run, captured.plans)
    with closing(open_targets(run)) as targets:
        claimed = targets.routes()
        require_unchanged(run, claimed=claimed, left_out=left_out, may_have_rules=True)
    changed = follow_file(run, captured, reach=reach).lines
    found = _Found(captured, origin_now(run, captured))
    with closing(open_ledger(run)) as ledger:
        require_sink(run, found.origin.sink, ledger.plan_id())
        return replace(_plan(run, ledger, found), changed=changed)


def new_plan(run: Run) -> PlanSummary:
    """Make a new plan in any case: every table will be read again."""
    captured = captured_tables(run, all_anew=True)
    found = _Found(captured, origin_now(run, captured))
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger, may_be_anew=True).generation
        secure_log(run)
        require_stop_ahead(run)
        return _make(run, ledger, generation, found)


def _plan(run: Run, ledger: Ledger, found: _Found) -> PlanSummary:
    """Take the pipeline over; continue its plan, adopt the ledger's, or make a new one."""
    is_new = source_is_new(run, found.origin.source, ledger)
    state = take_over(run, ledger)
    secure_log(run)
    held, stream, warning = ledger.plan_id(), ledger.stream(), ""
    if held and stream is not None and not is_new:
        require_same_start(run, stream)
    if held and held != state.plan_id and stream is not None:
        streamed = {progress.table for progress in stream.tables}
        streamed |= {each.table for each in ledger.stopped()}
        adopted = found.captured.only(streamed)
        if len(adopted.plans) == len(streamed) and not any(map(_is_forgotten, adopted.plans)):
            require_former_rules(run, ledger)
            _adopt(run, state.generation, held, replace(found, captured=adopted))
            warning = _another_plan(run, held, state.plan_id, then="it is taken over")
            state = run.store.ensure(run.name)
    if held and held == state.plan_id and not is_new:
        _tell(run, warning)
        return replace(_go_on(run, ledger, state.generation, found), warning=warning)
    if is_new and state.plan_id:
        warning = (
            f"the source is the server {found.origin.source} now, and nothing was read of the "
            "former one: all is planned anew"
        )
    elif held:
        warning = _another_plan(run, held, state.plan_id, then=_anew(run))
    elif state.plan_id:
        warning = f"plan {state.plan_id} is not in the sink's ledger: {_anew(run)}"
    require_stop_ahead(run)
    _tell(run, warning)
    return replace(_make(run, ledger, state.generation, found), warning=warning)


def _is_forgotten(plan: TablePlan) -> bool:
    """Tell whether nobody knows without the state how a table's rows were written.

    A shard's table has all columns that one of the others has, and a hash does not say its salt. A
    table without a primary key may have had another key, by which two rows of the log that are left
    to read are one by this key.
    """
    return plan.shard is not None or plan.shape.is_hashed or bool(plan.schema.key_name)


def _anew(run: Run) -> str:
    """Say what a new plan does."""
    starts = bool(run.model.stream.starts_at)
    return "the stream begins at its start again" if starts else "everything is read again"


def _another_plan(run: Run, held: str, known: str, *, then: str) -> str:
    """Return the warning that the ledger's plan is not from this state store."""
    state = run.servers.default_state or "the one the file names"
    return (
        f"the sink's ledger holds plan {held} of {run.name}, which this state store ({state}) does "
        f"not know{f' and not {known}' if known else ''}: {then}. If the state was reset, all is "
        f"well. If another file or host runs a pipeline of the name {run.name} into this sink, "
        "give one of them another name: each run of one undoes what the other has begun"
    )


def _tell(run: Run, warning: str) -> None:
    """Record a warning, if there is one."""
    if warning:
        run.store.tell(run.name, warning, level="warning")


def _go_on(run: Run, ledger: Ledger, generation: int, found: _Found) -> PlanSummary:
    """Continue the stored plan: reconcile, add missing sink tables, store what it is made from."""
    correction = reconcile(run.store, ledger, run.name, generation)
    take_changed_rules(run, ledger)
    if correction.handed_off:
        note_start(run, ledger.stream())
        finish_what_can_be(run.store, sink_of(run, generation), ledger, run.name, generation)
    else:
        require_same_start(run, None)
        require_begun_by_copy(run)
    planned = tuple(state.plan for state in run.store.tables(run.name))
    not_copied, gone = differences(run, found.tables)
    left = {*not_copied, *found.captured.unfit}
    kept = [plan for plan in found.tables if plan.schema.table not in left]
    if correction.handed_off:  # the stream meets a change of theirs, and stops that table alone
        require_separate(run.loaded, kept)
    else:
        _require_copyable(run, kept)
    phase = run.store.ensure(run.name).phase
    if not correction.handed_off and phase in {Phase.NEW, Phase.FAILED}:
        run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
    for table in sorted(set(not_copied) - set(run.store.not_copied(run.name))):
        run.store.tell(run.name, left_out_text(table), level="warning")
    run.store.keep_origin(run.name, generation, _origin(run, found.origin, not_copied), not_copied)
    keep_rules(run, ledger)
    # the ledger holds this very plan, so its tables are ours, claimed or not yet
    claim_tables(run, generation, planned, known=own_tables(run, found.origin.sink))
    created = _make_targets(run, ledger, planned)
    settle_tables(run, generation, ledger)
    return PlanSummary(
        plan_id=run.store.ensure(run.name).plan_id,
        generation=generation,
        is_new=False,
        tables=planned,
        handed_off=correction.handed_off,
        created=created,
        not_copied=tuple(map(str, not_copied)),
        gone=tuple(map(str, gone)),
    )


def _origin(run: Run, now: PlanOrigin, not_copied: Sequence[TableId]) -> PlanOrigin:
    """Return the origin to store; the old patterns while newly picked tables are not added."""
    before = run.store.origin(run.name)
    if before is None or not picked_anew(run, not_copied):
        return now
    return replace(now, tables=before.tables, exclude=before.exclude)


def _require_copyable(run: Run, tables: Sequence[TablePlan]) -> None:
    """Refuse tables without a key, or with a shared sink table."""
    require_keys(run.loaded, tables)
    require_separate(run.loaded, tables)


def _make(run: Run, ledger: Ledger, generation: int, found: _Found) -> PlanSummary:
    """Make a new plan: claim and create the sink's tables, and store the plan."""
    # refused and claimed first: a table that is refused leaves the plan there is as it was
    require_columns(run, found.captured, found.captured.unfit)
    found = _without_shown(run, found)
    _require_copyable(run, found.tables)
    require_marked_rows_keep(run, found.tables, all_anew=True)
    require_empty(run, found.tables)
    with closing(open_table_builder(run, found.tables)) as builder:
        builder.require_fit(found.tables)
    stream = begin_with(run, found.tables)
    note_seed(run)
    kept = copied_by(found.tables) if _keeps_rows(run) else frozenset()
    claim_tables(run, generation, found.tables, known=own_tables(run, found.origin.sink) | kept)
    plan_id = uuid.uuid4().hex
    publish_marked_rows(run, generation)
    if stream is None:
        ledger.start_plan(plan_id)
        clear_former_shards(run, generation, found.tables)
        # with the old plan gone from the ledger no table is streamed, so all are made ready
        created = _create_tables(run, found.tables, found.tables)
    else:
        created = create_lacking(run, found.tables)
        ledger.start_plan(plan_id)
        ledger.store_stream(stream)
    run.store.start_plan(run.name, generation, plan_id, found.tables, origin=found.origin)
    keep_rules(run, ledger)
    release_tables(run, generation, keep=found.tables)
    run.store.tell(run.name, f"plan {plan_id}: {counted(len(found.tables), 'table')}")
    if stream is None:
        phase = run.store.ensure(run.name).phase
        run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
        note_start(run, None)
    else:
        _begin(run, generation, stream)
    return PlanSummary(
        plan_id=plan_id,
        generation=generation,
        is_new=True,
        tables=found.tables,
        handed_off=stream is not None,
        created=created,
    )


def _without_shown(run: Run, found: _Found) -> _Found:
    """Leave out tables that no run would add, because they show what is hidden of others.

    A pipeline's first plan has them: `check` says so before it.
    """
    planned = {state.table for state in run.store.tables(run.name)}
    if not planned:
        return found
    hidden = HiddenColumns(run, found.captured)
    later = (plan for plan in found.tables if plan.schema.table not in planned)
    shown = [plan.schema.table for plan in later if hidden.shown_by(plan)]
    return replace(found, captured=found.captured.without(shown))


def _keeps_rows(run: Run) -> bool:
    """Tell whether rows that the sink's tables hold are the source's as of the stream's start."""
    return run.model.sink.existing_rows == "keep"


def _begin(run: Run, generation: int, stream: StreamSplit) -> None:
    """Store and report that a stream begins without a snapshot, which the ledger has already."""
    hand_off_unread(run, generation, stream)
    note_start(run, stream)
    forget_end(run)
    if stream.began is not None:
        run.store.tell(run.name, started_text(stream.began, len(stream.tables)))


def _adopt(run: Run, generation: int, plan_id: str, found: _Found) -> None:
    """Store the ledger's plan, whose splits are all planned, in a state store that lacks it."""
    require_columns(run, found.captured, [plan.schema.table for plan in found.tables])
    run.store.start_plan(run.name, generation, plan_id, found.tables, origin=found.origin)
    phase = run.store.ensure(run.name).phase
    run.store.move(run.name, generation, expected=phase, to=Phase.PLANNING)
    for table in found.tables:
        run.store.finish_planning(run.name, generation, table.schema.table)


def _make_targets(run: Run, ledger: Ledger, tables: Sequence[TablePlan]) -> tuple[str, ...]:
    """Create missing sink tables; of a stream, a table that cannot be created is isolated."""
    isolates = isolates_tables(run)
    stopped = {each.table for each in ledger.stopped()}
    while True:
        left = [plan for plan in tables if plan.schema.table not in stopped]
        try:
            return _create_tables(run, left)
        except CdcError as error:
            is_edge = run.model.edge is not None
            found = stopped_by(ledger, error, or_all=is_edge) if isolates else ()
            if not found:
                mark_drifted(run.store, run.name, run.held.generation, scrubbed(run, error))
                raise
            ask_for_drifted(run.store, run.name, found, edge=run.model.edge)
            ledger.stop_tables(found, StoredError.of(error))
            run.store.tell(run.name, stopped_text(found, error), level="error")
            stopped.update(found)


def _create_tables(
    run: Run, tables: Sequence[TablePlan], plans: Sequence[TablePlan] | None = None
) -> tuple[str, ...]:
    """Create missing sink tables, and return those that were created.

    `plans` are all of a new plan.
    """
    with closing(open_table_builder(run, plans)) as builder:
        created = builder.create_missing(tables)
    return tuple(str(table) for table, is_new in sorted(created.items()) if is_new)
