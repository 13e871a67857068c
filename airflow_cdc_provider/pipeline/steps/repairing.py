"""Repair: rows that verify has found different are read again, in one request a table.

A request has some ranges of the key with all rows that differ and few others. Where ranges cannot
be told, because the key's order is the server's own or so much differs that the comparison ended
early, it has the whole table. Rows that differ only until the stream has passed are none of these:
verify waits for it, and where no stream is at work it refuses to call them different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import Request, Scope, new_id
from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, estimate
from airflow_cdc_provider.pipeline.steps.requests import ask_resync


@dataclass(frozen=True, slots=True)
class Repair:
    """One table's."""

    verdict: TableVerdict
    scope: Scope
    estimated: Estimate
    """How many rows it is about."""

    @property
    def rows(self) -> int | None:
        """Return the rows that are read for it, about; None if they were not counted."""
        return self.estimated.source_rows


def repairs(run: Run, report: VerifyReport) -> tuple[Repair, ...]:
    """Return what makes the compared tables equal; nothing is asked for."""
    scopes = {verdict: _scope(verdict) for verdict in report.tables if verdict.differing}
    return tuple(Repair(verdict, scope, estimate(run, scope)) for verdict, scope in scopes.items())


def ask_repairs(run: Run, found: Sequence[Repair]) -> tuple[Request, ...]:
    """Ask for all of it."""
    return tuple(
        ask_resync(run, each.scope, request_id=new_id("repair"), estimated=each.estimated)
        for each in found
    )


def _scope(verdict: TableVerdict) -> Scope:
    is_whole = KeyRange() in verdict.differing
    return Scope((verdict.table,), () if is_whole else verdict.differing)
