"""Rows that are marked as deleted in tables whose rows stay as written: what would lose them.

Such rows are at the sink alone. A table that is read anew keeps them by their keys, under the name
of the column that marks them. So another key, or another name, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.identifiers import table_option
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of

_ALIKE = frozenset(
    {TypeKind.INTEGER, TypeKind.TEXT, TypeKind.TEMPORAL, TypeKind.ENUM, TypeKind.FLOAT}
)
"""Kinds whose values are written alike, however long or wide the type is."""


def require_marked_rows_keep(
    run: Run, plans: Sequence[TablePlan], *, all_anew: bool = False
) -> None:
    """Refuse new plans of tables in which rows that are marked as deleted could not be kept.

    `all_anew`: nothing but the tables themselves tells what they were.
    """
    abilities = run.model.sink.abilities
    if not (abilities.keeps_columns and abilities.marks_rows):
        return
    before = {state.table: state.plan for state in run.store.tables(run.name)}
    for plan in plans:
        was = before.get(plan.schema.table)
        if was is None or not (was.shape.deleted_flag and plan.shape.deleted_flag):
            continue
        if why := _why_lost(was, plan, by_name=all_anew):
            table = plan.schema.table
            raise RefusedError(
                f"rows of {table} that are marked as deleted could not be kept: {why}",
                where=f"table {plan.sink_table} of the sink",
                risk="they would be lost, or be there beside the rows of now; nothing was changed",
                remedy="bring back what it was; or copy its marked rows elsewhere if they matter, "
                f"write deletes: hard for it, and `reset` with {table_option(table)}, which takes "
                "them away. It may be soft again, with another `reset`, once that has run",
            ).about(table)


def _why_lost(was: TablePlan, now: TablePlan, *, by_name: bool) -> str:
    """Return why a table's marked rows could not be kept; empty if they can."""
    old, new = was.target.primary_key, now.target.primary_key
    if {*old} != {*new}:
        return f"its key was ({', '.join(old)}), and is ({', '.join(new)}) now"
    for name in new:
        if not _are_alike(was.target.column(name).type, now.target.column(name).type):
            return f"the type of {name}, which is of its key, is another one"
    flags = was.shape.deleted_flag, now.shape.deleted_flag
    if by_name and flags[0] != flags[1]:
        return f"the column that marks them was {flags[0]}, and is to be {flags[1]}"
    return ""


def _are_alike(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a key's values are written alike in both types."""
    return old == new or (old.kind is new.kind and old.kind in _ALIKE)


def publish_marked_rows(run: Run, generation: int) -> None:
    """Bring the tables to the end of their log, before a new plan forgets what it holds.

    Where that fails, what the tables lack is read anew: rows that came and went in it are not kept.
    """
    plans = tuple(state.plan for state in run.store.tables(run.name))
    sink = sink_of(run, generation, plans=plans)
    if not any(plan.shape.deleted_flag for plan in plans) or not isinstance(sink, CommitsLater):
        return
    try:
        sink.publish_tables()
    except CdcError as error:
        run.store.tell(
            run.name,
            "the tables do not have all of their log, and a new plan begins another one: rows that "
            f"were deleted meanwhile may be missing among the marked ones: {error}",
            level="warning",
        )
