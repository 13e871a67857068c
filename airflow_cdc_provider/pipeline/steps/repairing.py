"""Repair: rows that verify has found different are read again, in one request a table.

A request has some ranges of the key with all rows that differ and few others. Where the key's order
is the server's own, as a text's, it lists the keys. Where so many rows differ that the comparison
ended early, or too many to be listed, or the table has no key, it has the whole table. A table
whose key at the sink has
other columns than the source's has no repair: rows that only the sink has would stay. Rows that
differ only until the
stream has passed are none of these: verify waits for it, and where no stream is at work it refuses
to call them different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.columns.source_port import ReadsText, offered
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import Request, Scope, new_id
from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, estimate
from airflow_cdc_provider.pipeline.steps.range_requests import (
    ask_resync,
    planned_table,
)
from airflow_cdc_provider.pipeline.steps.sink import sink_of, source_of


@dataclass(frozen=True, slots=True)
class Repair:
    """One table's differences, and the request that repairs them."""

    verdict: TableVerdict
    scope: Scope
    estimated: Estimate
    """How many rows it is about."""

    @property
    def rows(self) -> int | None:
        """Return about how many rows the repair reads; None if they were not counted."""
        return self.estimated.source_rows


def repairs(run: Run, report: VerifyReport) -> tuple[Repair, ...]:
    """Return the repairs that would make the compared tables equal; requests nothing.

    There are none where the sink takes no rows again.
    """
    if not sink_of(run).abilities.replaces_rows:
        return ()
    wanted = [each for each in report.tables if each.differing and not each.unrepairable]
    scopes = {verdict: _scope(run, verdict) for verdict in wanted}
    return tuple(Repair(verdict, scope, estimate(run, scope)) for verdict, scope in scopes.items())


def ask_repairs(run: Run, found: Sequence[Repair]) -> tuple[Request, ...]:
    """Store the requests of the repairs."""
    return tuple(
        ask_resync(run, each.scope, request_id=new_id("repair"), estimated=each.estimated)
        for each in found
    )


def _scope(run: Run, verdict: TableVerdict) -> Scope:
    """Return the scope that covers a table's differing rows."""
    if KeyRange() not in verdict.differing:
        return Scope((verdict.table,), verdict.differing)
    plan = planned_table(run, verdict.table)
    if plan.is_one_split:
        return Scope((verdict.table,))
    listed = offered(source_of(run), ReadsText).key_list(plan.schema, verdict.differing_keys)
    return Scope((verdict.table,), (), listed)
