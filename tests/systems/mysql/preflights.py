"""Preflight of two servers, as a check runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_cdc_provider.columns.source_port import Pattern, PreflightQuestion
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, sorted_findings
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_facts import TableFacts
from airflow_cdc_provider.systems.mysql.preflight.preflight import sink_look, source_look


def preflight(
    source: Endpoint,
    sink: Endpoint,
    plans: Sequence[TablePlan],
    *,
    server_ids: range = range(0),
    picked: Iterable[TableFacts] = (),
    patterns: Sequence[Pattern] = (),
) -> tuple[Finding, ...]:
    """Look at both servers; what blocks comes first."""
    options = {"server_ids": [server_ids.start, server_ids.stop - 1]}
    question = PreflightQuestion(plans, tuple(picked), patterns, options)
    seen = source_look(source, question)
    return sorted_findings([*seen.findings, *sink_look(sink, plans, seen.facts)])
