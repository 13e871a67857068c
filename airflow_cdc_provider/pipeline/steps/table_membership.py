"""Single tables of a pipeline that streams: added, taken out, or begun again.

The others are not read again. The stream first catches up with the log, without the tables in
question. A table that is added, or begun again with the definition it has now, becomes the stream's
at the position where the stream is then: changes behind that are applied, and its rows are read by
a request beside the stream. Until then the ledger calls it unread, so that no lost request, no lost
state store and no crash in between can make it look copied: `plan` asks for what is unread whenever
nobody has, and refuses to go on without a table of the plan that is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    RefusedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.stream.dropped_tables import delete_shard
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.checking import require_addable
from airflow_cdc_provider.pipeline.steps.claims import claim_tables, own_tables, release_tables
from airflow_cdc_provider.pipeline.steps.ended_stream import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.former_shards import clear_former_shards
from airflow_cdc_provider.pipeline.steps.look_again import retry_while_schema_moves
from airflow_cdc_provider.pipeline.steps.marked_rows import require_marked_rows_keep
from airflow_cdc_provider.pipeline.steps.servers import origin_now, require_sink
from airflow_cdc_provider.pipeline.steps.sink import (
    open_ledger,
    open_table_builder,
    open_targets,
    require_log_goes_on,
    sink_of,
)
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up
from airflow_cdc_provider.pipeline.steps.stream_starts import began_without_rows
from airflow_cdc_provider.pipeline.steps.table_catch_up import (
    CatchUp,
    catch_up_without,
    void_requests,
)
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    captured_tables,
    require_columns,
    require_keys,
    require_separate,
)

_REMOVED = "not copied any more: "
_EVENTS_READ = 1_000


def add_tables(
    run: Run,
    tables: Collection[TableId] = (),
    *,
    may_go: Collection[TableId] = frozenset(),
    reach: CatchUp | None = None,
) -> tuple[TableId, ...]:
    """Add tables that the file picks to the stream, and request their rows; return them.

    Without `tables` all picked ones. Those of `may_go` are left out where they are not at the
    source any more. The next run reads the added tables.
    """
    require_not_ended(run)

    def pick(captured: Captured) -> tuple[TablePlan, ...]:
        there = {plan.schema.table for plan in captured.plans}
        left = [table for table in tables if table in there or table not in may_go]
        return _to_add(run, captured, left) if left or not tables else ()

    return _begin(run, pick, reach)


def to_be_added(run: Run, tables: Collection[TableId] = ()) -> tuple[TableId, ...]:
    """Return the tables that `add_tables` would add; refuse as it would; changes nothing."""
    require_not_ended(run)
    _, begun = _looked_at(run, lambda captured: _to_add(run, captured, tables))
    return tuple(plan.schema.table for plan in begun)


def reset_tables(
    run: Run, tables: Collection[TableId], *, reach: CatchUp | None = None
) -> tuple[TableId, ...]:
    """Reset planned tables: follow them as they are defined now, and request their rows.

    The way on from a stream that ended at a change of theirs, and to another route.
    """
    run.held.begins = frozenset(tables)
    return _begin(run, lambda captured: _to_reset(run, captured, tables), reach)


def to_be_reset(run: Run, tables: Collection[TableId]) -> tuple[TableId, ...]:
    """Return the tables that `reset_tables` would reset; refuse as it would; changes nothing."""
    _, begun = _looked_at(run, lambda captured: _to_reset(run, captured, tables))
    return tuple(plan.schema.table for plan in begun)


def require_these_addable(run: Run, captured: Captured, tables: Collection[TableId]) -> None:
    """Refuse tables that cannot be added; changes nothing."""
    _require_copyable(run, captured, _to_add(run, captured, tables))


Pick = Callable[[Captured], tuple[TablePlan, ...]]
"""Gives the plans of the tables in question, as the source has them now."""


def _looked_at(run: Run, pick: Pick) -> tuple[Captured, tuple[TablePlan, ...]]:
    """Check the source's tables; return them, and the plans of those to add or reset.

    Refuses what cannot be. Tables may come, go and be altered meanwhile: then all is checked again.
    """
    return retry_while_schema_moves(lambda: _looked_at_once(run, pick))


def _looked_at_once(run: Run, pick: Pick) -> tuple[Captured, tuple[TablePlan, ...]]:
    """Check once which tables can be added or reset."""
    _require_joins(run)
    with closing(open_targets(run)) as targets:
        require_unchanged(run, claimed=targets.routes())
    if not run.store.is_handed_off(run.name):
        raise _not_handed_off(run)
    captured = captured_tables(run)
    begun = pick(captured)
    require_columns(run, captured, [plan.schema.table for plan in begun])
    _require_copyable(run, captured, begun)
    require_marked_rows_keep(run, begun)
    return captured, begun


def _begin(run: Run, pick: Pick, reach: CatchUp | None = None) -> tuple[TableId, ...]:
    """Catch up, then have the stream follow new or reset tables, and request their rows."""
    _, begun = _looked_at(run, pick)
    if not begun:
        return ()
    with closing(open_ledger(run)) as ledger:
        _own(run, ledger)
        _require_goes_on(run, ledger)
        leaving = [plan.schema.table for plan in begun]
        ledger.change_tables(removed=leaving)
    void_requests(run, leaving)
    catch_up_without(run, reach or catch_up)
    with closing(open_ledger(run)) as ledger:
        generation = _own(run, ledger)
        # what the log holds behind the stream's position is the stream's: they are looked at now
        captured, begun = _looked_at(run, pick)
        if not begun:
            return ()
        origin = origin_now(run, captured)
        require_sink(run, origin.sink, ledger.plan_id())
        _claim(run, generation, begun, origin.sink)
        names = tuple(plan.schema.table for plan in begun)
        at = ledger.change_tables(removed=names).start
        clear_former_shards(run, generation, begun)
        with closing(open_table_builder(run)) as builder:
            builder.create_missing(begun)  # without the unique keys of what nobody streams
        stream = ledger.change_tables(added=dict.fromkeys(names, at))
        run.store.change_plan(run.name, generation, added=begun, origin=origin)
        kept = [state.plan for state in run.store.tables(run.name)]
        release_tables(run, generation, keep=kept)  # one that goes elsewhere now
        run.store.store_hand_off(run.name, generation, stream)
        ask_for_unread(run.store, run.name, generation, stream, by=run.owner)
    return names


def require_removable(run: Run, tables: Collection[TableId]) -> None:
    """Refuse tables that `remove_tables` would refuse; changes nothing."""
    _require_gone(run, sink_tables(run), tables)


def targets_of(run: Run, tables: Collection[TableId]) -> dict[TableId, int | None]:
    """Return the sink tables that go with tables that may be removed, with their row counts.

    Those that other tables share stay.
    """
    known = sink_tables(run)
    _require_gone(run, known, tables)
    left = {known[table] for table in tables if table in known}
    left -= {plan.sink_table for plan in shards_beside_others(run, tables)}
    with closing(open_targets(run)) as targets:
        return {target: targets.rows(target) for target in sorted(left)}


def shards_beside_others(run: Run, tables: Collection[TableId]) -> tuple[TablePlan, ...]:
    """Return the plans of these tables that go to sink tables to which others go, too."""
    plans = [state.plan for state in run.store.tables(run.name)]
    kept = {plan.sink_table for plan in plans if plan.schema.table not in tables}
    return tuple(
        plan
        for plan in plans
        if plan.schema.table in tables and plan.shard is not None and plan.sink_table in kept
    )


def remove_tables(
    run: Run, tables: Collection[TableId], *, drop_targets: bool = False
) -> tuple[TableId, ...]:
    """Remove tables that the file does not pick any more from the stream, or from the snapshot.

    Returns the sink's tables that are not written any more. Their rows stay, or are dropped with
    them: after the stream has given the tables up, and while the claim still keeps others away. A
    removal that was cut off is finished, and what is done already is left as it is. Before the
    hand-off the other tables keep their splits and reports; the reports of these are left out.
    """
    known = sink_tables(run)
    _require_gone(run, known, tables)
    begun = [table for table in tables if table in known]
    if not begun:
        return ()
    with closing(open_ledger(run)) as ledger:
        generation, handed_off = _own_plan(run, ledger)
        stream = ledger.change_tables(removed=tables) if handed_off else None
        if drop_targets:
            _delete_shards(run, generation, tables)
        run.store.change_plan(run.name, generation, removed=tables)
        if stream is not None:
            run.store.store_hand_off(run.name, generation, stream)
        names = ", ".join(map(str, sorted(begun)))
        run.store.tell(run.name, f"{_REMOVED}{names}", level="warning")
        kept = [state.plan for state in run.store.tables(run.name)]
        gone = sorted({known[table] for table in begun})
        try:
            if drop_targets:
                shared = {plan.sink_table for plan in kept if plan.shard is not None}
                alone = [target for target in gone if target not in shared]
                _drop(run, generation, alone, {plan.sink_table for plan in kept})
        finally:
            release_tables(run, generation, keep=kept)
    return tuple(gone)


def sink_tables(run: Run) -> dict[TableId, TableId]:
    """Return each table's sink table, by the plan and by claims that are not given up."""
    with closing(open_targets(run)) as targets:
        claimed = dict(targets.routes())
    planned = {state.table: state.plan.sink_table for state in run.store.tables(run.name)}
    return {**claimed, **planned}


def _was_removed(run: Run, table: TableId) -> bool:
    """Tell whether an event says that the table was removed."""
    told = (event.text for event in run.store.events(run.name, _EVENTS_READ))
    removed = (text.removeprefix(_REMOVED) for text in told if text.startswith(_REMOVED))
    return any(f", {table}, " in f", {names}, " for names in removed)


def _delete_shards(run: Run, generation: int, tables: Collection[TableId]) -> None:
    """Delete the rows of tables that are removed from sink tables that others still go to.

    It comes before the plan forgets the tables, so that it can be done again.
    """
    for plan in shards_beside_others(run, tables):
        delete_shard(sink_of(run, generation), plan)
        text = f"deleted at the sink: the rows of {plan.schema.table} in {plan.sink_table}"
        run.store.tell(run.name, text, level="warning")


def _drop(
    run: Run, generation: int, targets: Sequence[TableId], others: Collection[TableId]
) -> None:
    """Drop sink tables that no table of the plan goes to."""
    shared = [table for table in targets if table in others]
    if shared:
        raise _refused(
            run, f"{shared[0]} is also another table's", "leave --drop-target out: its rows stay"
        )
    if not targets:
        return
    with closing(open_targets(run, generation)) as opened:
        opened.drop(targets)
    names = ", ".join(map(str, targets))
    run.store.tell(run.name, f"dropped at the sink: {names}", level="warning")


def settle_tables(run: Run, generation: int, ledger: Ledger) -> None:
    """Finish table changes that were cut off: take an unfinished `add` back, ask for rows.

    Refuses to go on while the stream lacks a table of the plan: its `reset` was cut off.
    """
    stream = ledger.stream()
    if stream is None:
        return
    planned = {state.table for state in run.store.tables(run.name)}
    strangers = [table for table in stream.unread if table not in planned]
    if strangers:
        stream = ledger.change_tables(removed=strangers)
    _require_streamed(run, planned - {each.table for each in ledger.stopped()}, stream)
    ask_for_unread(run.store, run.name, generation, stream, by=run.owner)


def _require_streamed(run: Run, planned: Collection[TableId], stream: StreamSplit) -> None:
    """Refuse to go on while the stream lacks a table of the plan."""
    lost = sorted(set(planned) - {progress.table for progress in stream.tables})
    if lost:
        names = " ".join(table_option(table) for table in lost)
        raise RefusedError(
            f"the stream does not follow {', '.join(map(str, lost))}, and the plan has it",
            where=f"ledger of {run.name}",
            risk="its changes would be lost; nothing was started",
            remedy=f"`reset` it with {names}: the other tables are not read again",
        )


def _own(run: Run, ledger: Ledger) -> int:
    """Take the pipeline over, and return the generation; raise before the hand-off."""
    generation, handed_off = _own_plan(run, ledger)
    if not handed_off:
        raise _not_handed_off(run)
    return generation


def _own_plan(run: Run, ledger: Ledger) -> tuple[int, bool]:
    """Take the pipeline over; return the generation, and whether it is handed off.

    Raises where the ledger does not hold the plan that the state store has.
    """
    generation = take_over(run, ledger).generation
    correction = reconcile(run.store, ledger, run.name, generation)
    if not correction.same_plan:
        raise _not_handed_off(run)
    return generation, correction.handed_off


def _require_goes_on(run: Run, ledger: Ledger) -> None:
    """Refuse if the source's log does not continue from the stream's position."""
    stream = ledger.stream()
    if stream is not None:
        require_log_goes_on(run, stream)


def _not_handed_off(run: Run) -> SnapshotRequiredError:
    """Return the error for a pipeline that is not handed off to a stream."""
    return SnapshotRequiredError(
        f"the snapshot of {run.name} is not handed off to a stream",
        where=f"ledger of {run.name}",
        risk=NOTHING_CHANGED,
        remedy="`run` it to the end of its snapshot first",
    )


def _require_joins(run: Run) -> None:
    """Refuse a sink that cannot take rows beside its stream."""
    if not sink_of(run).abilities.joins:
        raise RefusedError(
            "this kind of sink takes no rows beside its stream",
            where=f"sink of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="make another pipeline for the new tables, or `reset` this one",
        )


def _to_add(run: Run, captured: Captured, tables: Collection[TableId]) -> tuple[TablePlan, ...]:
    """Return the plans of the tables to add; refuse those that cannot be."""
    planned = {state.table for state in run.store.tables(run.name)}
    new = {plan.schema.table: plan for plan in captured.plans if plan.schema.table not in planned}
    for table in tables:
        if table in planned:
            raise _refused(run, f"{table} is copied already", "leave it out")
        if table not in new and run.model.picks(table, ignore_case=_folds_names(run)):
            raise _refused(run, f"{table} is not at the source", "make it there, or leave it out")
        if table not in new:
            raise _refused(run, f"the file does not pick {table}", "put it into source.tables")
    if not new:
        raise _refused(
            run, "the file picks no table that is not copied", "put it into source.tables"
        )
    return tuple(new[table] for table in sorted(tables or new))


def _to_reset(run: Run, captured: Captured, tables: Collection[TableId]) -> tuple[TablePlan, ...]:
    """Return the plans of the tables to reset; refuse those that cannot be."""
    planned = {state.table for state in run.store.tables(run.name)}
    now = {plan.schema.table: plan for plan in captured.plans}
    for table in tables:
        if table not in planned:
            raise _refused(run, f"{table} is not copied", "`add` it, or correct its name")
        if table not in now:
            raise _refused(
                run,
                f"{table} is not at the source as a table that can be copied",
                "bring it back without what `check` says of it, or `remove` it",
            )
    if planned == set(tables) and not began_without_rows(run):
        raise _refused(run, "these are all of its tables", "`reset` without --table")
    return tuple(now[table] for table in sorted(tables))


def _require_copyable(run: Run, captured: Captured, begun: Sequence[TablePlan]) -> None:
    """Refuse tables without a key, with a shared target, or that preflight would block."""
    names = [plan.schema.table for plan in begun]
    others = [s.plan for s in run.store.tables(run.name) if s.table not in names]
    require_keys(run.loaded, begun)
    require_separate(run.loaded, [*others, *begun])
    require_addable(run, captured.only(names))
    with closing(open_table_builder(run)) as builder:
        builder.require_fit(begun)


def _claim(run: Run, generation: int, begun: Sequence[TablePlan], sink: str) -> None:
    """Claim the sink tables of the plan and of the tables to add or reset."""
    known = own_tables(run, sink)
    names = {plan.schema.table for plan in begun}
    others = [state.plan for state in run.store.tables(run.name) if state.table not in names]
    claim_tables(run, generation, [*others, *begun], known=known)


def _require_gone(run: Run, known: Collection[TableId], tables: Collection[TableId]) -> None:
    """Refuse tables that are not copied, or that the file still picks."""
    fold = _folds_names(run)
    for table in tables:
        if table not in known and not _was_removed(run, table):
            raise _refused(run, f"{table} is not copied", "leave it out")
        if run.model.picks(table, ignore_case=fold):
            raise _refused(
                run,
                f"the file still picks {table}",
                "take it out of source.tables, or put it into source.exclude",
            )
    if {state.table for state in run.store.tables(run.name)} <= set(tables):
        raise _refused(run, "these are all of its tables", "`drop` the pipeline")


def _folds_names(run: Run) -> bool:
    """Tell whether the source ignores case when it compares names."""
    origin = run.store.origin(run.name)
    return origin is not None and origin.names_fold_case


def _refused(run: Run, what: str, remedy: str) -> RefusedError:
    """Return the error for tables that cannot be changed as asked."""
    return RefusedError(what, f"tables of {run.name}", NOTHING_CHANGED, remedy)
