"""What is left at the sink of tables that share one there, where they begin again.

A table that begins again by another value of its shard column, or another column, is read under
the new one. Its former rows would stay beside them, and it would be there twice. One that has lost
a column is read without it. What its rows had there would stay, for its rows are all written
without that column.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.stream.dropped_tables import delete_shard, empty_columns
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of


def clear_former_shards(run: Run, generation: int, begun: Sequence[TablePlan]) -> None:
    """Delete the former rows of tables that begin again, or empty columns that they lack now.

    The stream must have left them. Rows of a table that goes elsewhere now stay.
    """
    plans = [state.plan for state in run.store.tables(run.name)]
    former = {plan.schema.table: plan for plan in plans}
    for after in begun:
        before = former.get(after.schema.table)
        if before is not None and before.sink_table == after.sink_table:
            _delete_other_shard(run, generation, before, after)
        lacking = _columns_at(after, [*plans, *begun]) - _columns_of(after)
        if after.shard is not None and lacking:
            empty_columns(sink_of(run, generation), after, lacking)


def _delete_other_shard(run: Run, generation: int, before: TablePlan, after: TablePlan) -> None:
    """Delete a table's rows under what told them from others before, if that is another now."""
    if before.shard is None or before.shard == after.shard:
        return
    delete_shard(sink_of(run, generation), before)
    former = f"{before.shard.name} = {before.shard.constant!r}"
    text = f"deleted at the sink: the rows with {former} in {before.sink_table}, which are "
    run.store.tell(run.name, f"{text}read anew for {after.schema.table}", level="warning")


def _columns_at(shard: TablePlan, plans: Sequence[TablePlan]) -> set[str]:
    """Return the columns that any of these plans has in a shard's sink table, in lower case."""
    together = (p for p in plans if p.shard is not None and p.sink_table == shard.sink_table)
    return set[str]().union(*map(_columns_of, together))


def _columns_of(plan: TablePlan) -> set[str]:
    """Return the sink's columns of a plan, in lower case."""
    return {column.name.lower() for column in plan.target.columns}
