"""Rows that a sink does not find again: by keys whose order is the source's own."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.columns.source_port import ReadsText, offered
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import KeyRange, comparable
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of, source_of


def require_known_orders(run: Run, scope: Scope) -> None:
    """Refuse ranges of keys, and whole tables, whose order the sink does not know."""
    if scope.chosen is not None or sink_of(run).abilities.knows_all_orders:
        return
    found = [schema for table, schema in _unknown(run).items() if table in scope.tables]
    if found:
        keys = ", ".join(f"{each.table} ({', '.join(each.primary_key)})" for each in found)
        options = " ".join(table_option(each.table) for each in found)
        rest = "; ask for the other tables alone" if len(scope.tables) > len(found) else ""
        raise RefusedError(
            f"the order of these keys is the server's own: {keys}; a sink of type "
            f"{run.model.sink.type} finds no rows by it",
            where="tables of the request",
            risk=NOTHING_CHANGED,
            remedy=f"`reset` with {options}: they are read as a whole, while others flow on{rest}",
        ).about(*(each.table for each in found))


def with_unknown_orders(run: Run, report: VerifyReport) -> VerifyReport:
    """Return a report that says of which tables a sink does not find the rows again."""
    if sink_of(run).abilities.knows_all_orders:
        return report
    unknown = _unknown(run)

    def judged(verdict: TableVerdict) -> TableVerdict:
        schema, source = unknown.get(verdict.table), offered(source_of(run), ReadsText)
        if schema is None or KeyRange() not in verdict.differing or verdict.unrepairable:
            return verdict
        if source.key_list(schema, verdict.differing_keys) is not None:
            return verdict
        why = "the order of its key is the server's own, and what differs cannot be listed"
        return replace(verdict, unrepairable=why)

    found = {verdict.table for verdict in report.tables}
    by_reset = tuple(table for table in unknown if table in found)
    return replace(report, tables=tuple(map(judged, report.tables)), by_reset=by_reset)


def _unknown(run: Run) -> dict[TableId, TableSchema]:
    """Return the definitions of the planned tables whose keys' order code does not know.

    One that has no key, or hashes of it at the sink, is read again as a whole: that takes no order.
    """
    plans = (state.plan for state in run.store.tables(run.name))
    schemas = (plan.schema for plan in plans if not plan.is_one_split)
    return {schema.table: schema for schema in schemas if not comparable(schema.key_kinds)}
