"""Tables whose definition changed while they were first read: they begin again, alone.

Nothing that was read of such a table is handed off. The stream gets it as one that nobody has read,
from a place on at which it is defined as it is now, and its rows are read beside the stream, as
those of an added table are. That place, the new definition and what is to be done at the sink are
in the ledger together with the hand-off, so whoever owns the pipeline next brings it to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from airflow_cdc_provider.columns.source_port import FollowsDefinitions, offered
from airflow_cdc_provider.core.errors import SchemaMovedError, TableChangedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import (
    ChangeKind,
    Policy,
    SchemaChange,
    with_left_out,
)
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.definitions import (
    difference_between,
    redefined,
    require_answered,
)
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import require_copyable
from airflow_cdc_provider.pipeline.steps.look_again import retry_while_schema_moves
from airflow_cdc_provider.pipeline.steps.sink import open_table_builder, sink_of, source_of
from airflow_cdc_provider.pipeline.steps.tables import captured_tables, require_keys


def changed_while_read(
    run: Run, reports: Sequence[tuple[SnapshotSplit, SplitReport]]
) -> tuple[SchemaChange, ...]:
    """Return the schema changes of tables whose definition changed while they were read.

    A change that may not be made is refused.
    """
    states = run.store.tables(run.name)
    plans = {state.table: state.plan for state in states}
    changed = {state.table for state in states if state.phase is TablePhase.CHANGED}
    changed |= {
        split.table
        for split, report in reports
        if split.table in plans and report.fingerprint != plans[split.table].schema.fingerprint
    }
    with _before_hand_off():
        if sink_of(run).abilities.begins_tables_again:
            changed |= set(_not_to_follow(run, [plans[table] for table in plans.keys() - changed]))
        elif changed:
            raise _stopped(run, min(changed), "this kind of sink takes no rows beside its stream")
        return _changes(run, {table: plans[table] for table in sorted(changed)}) if changed else ()


@contextmanager
def _before_hand_off() -> Iterator[None]:
    """Say of a table that the file's columns do not fit what there is to do before a stream is."""
    try:
        yield
    except TableChangedError as error:
        if not error.tables:
            raise
        names = " ".join(map(table_option, error.tables))
        raise error.with_remedy(
            f"take its section out of tables, put it into source.exclude, `remove` it with {names} "
            "and `run`: the others are handed off; then let the file say again what its columns "
            "are to be, take it out of source.exclude, drop its table at the sink or make it fit, "
            "and `add` it"
        ) from None


def _not_to_follow(run: Run, plans: Sequence[TablePlan]) -> Iterator[TableId]:
    """Yield read tables whose definition changed since in a way that the stream cannot follow."""
    source, sink = source_of(run), sink_of(run)
    definitions = offered(source, FollowsDefinitions)
    with source.catalogue() as catalogue:
        now = catalogue.schemas([plan.schema.table for plan in plans])
    for plan in plans:
        found = now.get(plan.schema.table, plan.schema)
        if found.is_defined_as(plan.schema):
            continue
        after = redefined(plan, found, sink)
        if difference_between(plan, after, definitions).refused:
            yield plan.schema.table


def _changes(run: Run, plans: Mapping[TableId, TablePlan]) -> tuple[SchemaChange, ...]:
    """Return the schema change of each table, to its definition now; refuse what cannot be."""
    now, at = _definitions(run, plans)
    for table in plans:
        if table not in now:
            raise _stopped(run, table, "it is not at the source any more")
    ignores = run.model.schema_policy.add_column is Policy.IGNORE
    with closing(open_table_builder(run)) as builder:
        after = [
            redefined(
                plan,
                with_left_out(
                    plan.schema,
                    now[table],
                    None,
                    ignores=ignores,
                    at_sink=builder.columns(plan),
                ),
                sink_of(run),
            )
            for table, plan in plans.items()
        ]
        require_keys(run.loaded, after)
        require_copyable(run, captured_tables(run).only(plans))
        builder.require_creatable(after)
    return tuple(_change(run, plans[plan.schema.table], plan, at) for plan in after)


def _definitions(
    run: Run, tables: Collection[TableId]
) -> tuple[Mapping[TableId, TableSchema], LogPosition]:
    """Return the tables' definitions, and a position in the log at which they hold."""
    source, names = source_of(run), sorted(tables)
    same = offered(source, FollowsDefinitions).is_same
    with (
        source.catalogue() as catalogue,
        closing(source.log_end(purpose="end of the log")) as log_end,
    ):

        def look() -> tuple[Mapping[TableId, TableSchema], LogPosition]:
            before, at = catalogue.schemas(names), log_end.seen()
            now = catalogue.schemas(names)
            if before.keys() == now.keys() and all(same(before[t], now[t]) for t in now):
                return now, at
            raise SchemaMovedError(
                f"{', '.join(map(str, names))}: a definition is being changed right now",
                where=f"catalogue of {source}",
                risk="none: nothing was handed off",
                remedy="`run` again when the change is done",
            )

        return retry_while_schema_moves(look)


def _change(run: Run, before: TablePlan, after: TablePlan, at: LogPosition) -> SchemaChange:
    """Return one table's schema change; refuse if the file's policy is to stop."""
    definitions = offered(source_of(run), FollowsDefinitions)
    require_answered(before, after, definitions, sink_of(run))
    found = difference_between(before, after, definitions)
    kinds = set(found.kinds)
    if found.added and found.dropped:
        kinds.add(ChangeKind.RENAME_COLUMN)  # nobody can tell
    if found.refused:
        kinds.add(ChangeKind.MODIFY_COLUMN)
    for kind in sorted(kinds):
        if run.model.schema_policy.of(kind) is Policy.STOP:
            raise _stopped(run, after.schema.table, f"schema_changes says {kind.value}: stop")
    return SchemaChange(
        before=before,
        after=after,
        difference=found.read_again("it was changed while it was first read"),
        through=at,
        statement=", ".join(sorted(kinds)) or "and changed back",
        keeps_dropped=False,
        truncates=True,
    )


def _stopped(run: Run, table: TableId, why: str) -> TableChangedError:
    """Return the error for a table that changed while it was read and may not be reset."""
    return TableChangedError(
        f"{table} was changed at the source while it was read; {why}",
        where=f"hand-off of {run.name}",
        risk="none yet: nothing was handed off",
        remedy="mend that and run again, or `reset` the pipeline: it reads the tables as they are",
    )
