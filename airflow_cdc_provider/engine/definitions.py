"""A table's plan under another definition at the source, and how the sink's definition differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_cdc_provider.columns.source_port import FollowsDefinitions
from airflow_cdc_provider.core.errors import TableChangedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.shape_changes import (
    difference_at_sink,
    lost_names,
    unanswered_by_shape,
)
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import Sink, SinkAbilities
from airflow_cdc_provider.engine.sink.remedies import to_begin_again


def redefined(plan: TablePlan, schema: TableSchema, sink: Sink) -> TablePlan:
    """Return a table's plan under another definition at the source.

    `TableChangedError` if what the pipeline says of the table's columns or key does not fit it.
    """
    if schema.key_problem:
        raise _without_key(plan, schema.key_problem, sink.abilities)
    if lost := lost_names(plan, schema):
        raise _unfit(plan, lost, sink.abilities)
    try:
        target = sink.target_of(schema, plan.sink_table, plan.shape)
    except ValueError as error:
        raise _unfit(plan, str(error), sink.abilities) from None
    return replace(plan, schema=schema, target=target)


def difference_between(
    before: TablePlan,
    after: TablePlan,
    definitions: FollowsDefinitions,
    statements: Sequence[StatementEffect] = (),
    *,
    keeps_columns: bool = False,
) -> Difference:
    """Return how the sink's definitions of a table differ, given the log's statements between.

    `keeps_columns`: rows that are at the sink stay in the columns they were written to.
    """
    was, now = (plan.shape.as_read(plan.schema) for plan in (before, after))
    keeps_columns = keeps_columns or after.shard is not None
    found = definitions.difference(was, now, statements, keeps_columns=keeps_columns)
    return difference_at_sink(found, before, after, statements)


def require_answered(
    before: TablePlan, after: TablePlan, definitions: FollowsDefinitions, sink: Sink
) -> None:
    """Refuse a table that is taken as it is defined now if its shape does not say as what.

    `TableChangedError` says which columns may be others than those the pipeline names.
    """
    was, now = (plan.shape.as_read(plan.schema) for plan in (before, after))
    found = definitions.difference(was, now, (), keeps_columns=after.shard is not None)
    if why := unanswered_by_shape(found, before, after, ()):
        raise _unfit(after, why, sink.abilities)


def way_back(plan: TablePlan, abilities: SinkAbilities) -> str:
    """Return what to do about a table whose columns are not what the pipeline says of them."""
    if plan.shard is not None:
        first = (
            "make its columns fit those of the tables that it shares its sink table with, or say "
            "in the pipeline file what they are to be there"
        )
        return f"{first}, then {to_begin_again([plan.schema.table], abilities)}"
    return _said_in_file("what its columns are to be now", plan, abilities)


def _said_in_file(what: str, plan: TablePlan, abilities: SinkAbilities) -> str:
    """Return the advice to say something in the pipeline file, and to begin the table again."""
    by_hand = ", drop its table at the sink or make it fit" if abilities.mended_by_hand else ""
    again = to_begin_again([plan.schema.table], abilities)
    return f"say in the pipeline file {what}{by_hand}, then {again}"


def _without_key(plan: TablePlan, why: str, abilities: SinkAbilities) -> TableChangedError:
    """Return the error for a table that lost the key which the pipeline names for it."""
    table = plan.schema.table
    return TableChangedError(
        f"{table}: its key is another one now: {why}",
        where=f"definition of {table}",
        risk="none: nothing was changed, and it stays as it is at the sink",
        remedy=_said_in_file("what tells its rows apart now", plan, abilities),
    ).about(table)


def _unfit(plan: TablePlan, why: str, abilities: SinkAbilities) -> TableChangedError:
    """Return the error for a table whose columns are not what the pipeline says of them."""
    table = plan.schema.table
    return TableChangedError(
        f"{table}: {why}",
        where=f"definition of {table}",
        risk="none: nothing was changed, and it stays as it is at the sink",
        remedy=way_back(plan, abilities),
    ).about(table)
