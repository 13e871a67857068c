"""Rows that a sink does not find again: by keys whose order is the source's own."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import table_option
from airflow_cdc_provider.core.keys import comparable
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of


def require_known_orders(run: Run, scope: Scope) -> None:
    """Refuse ranges of keys, and whole tables, whose order the sink does not know."""
    if scope.chosen is not None or sink_of(run).abilities.knows_all_orders:
        return
    for schema in (state.plan.schema for state in run.store.tables(run.name)):
        if schema.table in scope.tables and not comparable(schema.key_kinds):
            raise RefusedError(
                f"the order of {schema.table}'s key ({', '.join(schema.primary_key)}) is the "
                f"server's own, and a sink of type {run.model.sink.type} finds no rows by it",
                where=f"request for {schema.table}",
                risk=NOTHING_CHANGED,
                remedy=f"`reset` with {table_option(schema.table)}: it is read as a whole, and the "
                "others flow on",
            ).about(schema.table)
