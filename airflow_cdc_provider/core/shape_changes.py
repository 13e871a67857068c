"""What a change of a source table's definition is to a sink's table that differs from it.

Columns that the sink's rows do not depend on are nothing to it. Others have the sink's names, and
what the shape names has to stay: a column that is filtered by, renamed or masked cannot be gone,
called otherwise, or have other values, unless a person says what the shape is then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import columns_in
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.table_schema import TableSchema


def lost_names(plan: TablePlan, now: TableSchema) -> str:
    """Return why a table's shape does not fit its new definition, empty if it does."""
    lost = sorted(plan.shape.named - {column.name for column in now.copied_columns})
    return f"the pipeline names its columns {', '.join(lost)}, which are gone" if lost else ""


def difference_at_sink(found: Difference, before: TablePlan, after: TablePlan) -> Difference:
    """Return a difference of the source's definitions, as they are read, as the sink's differ."""
    if after.shape.is_identity:
        return found
    refused = "; ".join(filter(None, (found.refused, *_refusals(found, before, after))))
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


def _refusals(found: Difference, before: TablePlan, after: TablePlan) -> Iterator[str]:
    """Yield why a table's shape does not tell how the change is followed."""
    shape = after.shape
    were, are = ({c.name for c in plan.schema.columns} for plan in (before, after))
    gone = {*shape.left_out} & were - are
    if gone and found.added:  # one of these may be it, by another name
        yield f"its column {', '.join(sorted(gone))}, which is left out, is gone or renamed"
    other = sorted(old for old, _ in (*found.renamed, *found.traded) if old in shape.named)
    if other:
        yield f"the pipeline names its columns {', '.join(other)}, which are called otherwise now"
    where = () if shape.where is None else columns_in(shape.where)
    masked = (each.source for each in shape.columns if each.mask is not None)
    judged = {*where, *masked} & {*found.modified}
    if judged:
        yield f"its rows are filtered or masked by {', '.join(sorted(judged))}, of another type now"


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
