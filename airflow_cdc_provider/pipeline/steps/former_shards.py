"""Rows of tables that share one of the sink, under what told them from others before.

A table that begins again by another value of its shard column, or another column, is read under
the new one. Its former rows would stay beside them, and it would be there twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.stream.dropped_tables import delete_shard
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of


def delete_former_shards(run: Run, generation: int, begun: Sequence[TablePlan]) -> None:
    """Delete the former rows of tables that begin again as another shard of their sink table.

    The stream must have left them. Those of a table that goes elsewhere now stay.
    """
    now = {plan.schema.table: plan for plan in begun}
    for state in run.store.tables(run.name):
        before, after = state.plan, now.get(state.table)
        if after is None or before.shard is None or before.shard == after.shard:
            continue
        if before.sink_table == after.sink_table:
            delete_shard(sink_of(run, generation), before)
            former = f"{before.shard.name} = {before.shard.constant!r}"
            text = f"deleted at the sink: the rows with {former} in {before.sink_table}, which are "
            run.store.tell(run.name, f"{text}read anew for {state.table}", level="warning")
