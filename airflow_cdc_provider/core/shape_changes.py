"""What a change of a source table's definition is to a sink's table that differs from it.

Columns that the sink's rows do not depend on are nothing to it. Others have the sink's names, and
what the shape names has to stay: a column that is filtered by, renamed or masked cannot be gone,
called otherwise, or have other values, unless a person says what the shape is then.

A name alone does not make a column. One that is left out may take the name of one that is copied,
in a statement that drops the other or trades their names, and its values would be copied under it.
The statements tell who is called what; where they do not, the order of the columns does, because a
column keeps its place when its name changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import columns_in
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, TableShape


def lost_names(plan: TablePlan, now: TableSchema) -> str:
    """Return why a table's shape does not fit its new definition, empty if it does."""
    named = plan.shape.named_in(plan.schema)
    lost = sorted(named - {column.name for column in now.copied_columns})
    return f"the pipeline names its columns {', '.join(lost)}, which are gone" if lost else ""


def difference_at_sink(
    found: Difference, before: TablePlan, after: TablePlan, statements: Sequence[StatementEffect]
) -> Difference:
    """Return a difference of the source's definitions, as they are read, as the sink's differ.

    `statements` are the log's between the two definitions; none if the log was not asked.
    """
    if after.shape == SAME_SHAPE:
        return found
    unanswered = unanswered_by_shape(found, before, after, statements)
    refused = "; ".join(filter(None, (found.refused, unanswered)))
    unique_was = {key.name for key in before.target.unique_keys}
    unique_now = {key.name for key in after.target.unique_keys}
    return replace(
        found,
        added=tuple(_named(found.added, after)),
        dropped=tuple(_named(found.dropped, before)),
        modified=tuple(_named(found.modified, after)),
        unique_added=tuple(name for name in found.unique_added if name in unique_now),
        unique_dropped=tuple(name for name in found.unique_dropped if name in unique_was),
        refused=refused,
    )


def unanswered_by_shape(
    found: Difference, before: TablePlan, after: TablePlan, statements: Sequence[StatementEffect]
) -> str:
    """Return why a table's shape does not tell how a change is followed, empty if it does.

    `found` is the difference of the source's definitions as they are read.
    """
    if after.shape == SAME_SHAPE:
        return ""
    reasons = (*_refusals(found, before, after), *_taken_names(before, after, statements))
    return "; ".join(reasons)


def _refusals(found: Difference, before: TablePlan, after: TablePlan) -> Iterator[str]:
    """Yield why a table's shape does not tell how the change is followed."""
    shape, named = after.shape, after.shape.named_in(before.schema)
    were, are = ({c.name for c in plan.schema.columns} for plan in (before, after))
    gone = {*shape.left_out} & were - are
    if gone and found.added:  # one of these may be it, by another name
        yield f"its column {', '.join(sorted(gone))}, which is left out, is gone or renamed"
    other = sorted(old for old, _ in (*found.renamed, *found.traded) if old in named)
    if other:
        yield f"the pipeline names its columns {', '.join(other)}, which are called otherwise now"
    judged = _judged(shape) & {*found.modified}
    if judged:
        yield f"its rows are filtered or masked by {', '.join(sorted(judged))}, of another type now"


def _judged(shape: TableShape) -> frozenset[str]:
    """Return the source's columns by which rows are filtered, and those that are masked."""
    where = () if shape.where is None else columns_in(shape.where)
    return frozenset((*where, *(each.source for each in shape.columns if each.mask is not None)))


def _taken_names(
    before: TablePlan, after: TablePlan, statements: Sequence[StatementEffect]
) -> Iterator[str]:
    """Yield why a column may have the name of one that is copied otherwise."""
    was, now = (plan.shape.as_read(plan.schema) for plan in (before, after))
    called = _called_now(was, statements)
    if called is None:
        if (was.ignored or _judged(after.shape)) and _may_be_called_otherwise(was, now):
            yield (
                "its columns stand otherwise than before, and nothing tells whether one that is "
                "left out or masked is called as another was"
            )
        return
    are = {column.name.casefold(): column.name for column in now.columns}
    for old, new in called.items():
        name = are.get(new.casefold())
        if old == new or name is None or (old in was.ignored) == (name in now.ignored):
            continue
        if old in was.ignored:
            yield f"its column {old}, which is left out, is called {name} now, which is copied"
        else:
            yield f"its column {old} is called {name} now, which is left out"


def _called_now(
    schema: TableSchema, statements: Sequence[StatementEffect]
) -> Mapping[str, str] | None:
    """Return the columns' new names by their old ones; None if the statements do not say."""
    names = {column.name: column.name for column in schema.columns}
    for effect in statements:
        if effect.kind is not StatementKind.ALTER:
            return None
        if effect.is_doubtful and effect.column_steps is None:
            return None
        renames = {old.casefold(): new for old, new in effect.column_renames}
        names = {first: renames.get(last.casefold(), last) for first, last in names.items()}
    return names if statements else None


def _may_be_called_otherwise(was: TableSchema, now: TableSchema) -> bool:
    """Tell whether a column may have another name, by the places of those there were and are."""
    were, are = ([column.name for column in schema.columns] for schema in (was, now))
    kept = [name for name in were if name in are]
    return bool(was.ignored.difference(are)) or are[: len(kept)] != kept


def _named(names: tuple[str, ...], plan: TablePlan) -> Iterator[str]:
    """Yield the sink's names of columns, as often as it has them; none where it has not."""
    at_sink = {column.name for column in plan.target.columns}
    computed = {column.name for column in plan.target.columns if column.generated}
    for name in names:
        if name in computed:
            yield name
        for each in plan.shape.columns_of(plan.schema):
            if each.source == name and each.name in at_sink:
                yield each.name
