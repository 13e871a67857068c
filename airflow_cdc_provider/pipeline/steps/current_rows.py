"""The queries of tables that hold changes: what rows there are now."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc_provider.engine.sink.port import HoldsChanges
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of


def current_rows(run: Run) -> Mapping[str, str]:
    """Return a query of its current rows for each table of the sink, by the table's name.

    None for a sink whose tables hold the current rows themselves.
    """
    plans = [state.plan for state in run.store.tables(run.name)]
    sink = sink_of(run, plans=plans)
    if not isinstance(sink, HoldsChanges):
        return {}
    return {str(plan.sink_table): sink.current_rows(plan) for plan in plans}
