"""Check: everything that speaks against the pipeline, found at once and without changing anything.

What the file alone shows was refused when it was read. Here the servers are asked: first whether
the file fits them (its tables, its routes), then whether their settings, tables and privileges
allow a correct copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.errors import PreflightError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.mysql.preflight import Finding, Level, preflight
from airflow_cdc_provider.pipeline.checks import CONNECTIONS_A_READER
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.tables import captured_tables


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was looked at, and what was found."""

    pipeline: str
    tables: tuple[TablePlan, ...]
    findings: tuple[Finding, ...]

    @property
    def blocks(self) -> tuple[Finding, ...]:
        """Return the findings that refuse the pipeline."""
        return tuple(finding for finding in self.findings if finding.level is Level.BLOCK)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many findings there are of each level."""
        return Counter(finding.level.value for finding in self.findings)

    def require_fit(self) -> None:
        """Raise `PreflightError` with every blocking finding and its fix."""
        if not self.blocks:
            return
        lines = "\n".join(
            f"  {finding.code} {finding.subject}: {finding.observed}; {finding.why}. "
            f"Fix: {finding.fix}"
            for finding in self.blocks
        )
        count = "1 thing does" if len(self.blocks) == 1 else f"{len(self.blocks)} things do"
        raise PreflightError(
            f"{count} not allow a correct copy:\n{lines}",
            where=f"preflight of {self.pipeline}",
            risk="none: nothing was started",
            remedy="apply the fixes above and check again",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form for `--json`, which only grows."""
        return {
            "pipeline": self.pipeline,
            "refused": bool(self.blocks),
            "tables": [
                {"source": str(plan.schema.table), "sink": str(plan.sink_table)}
                for plan in self.tables
            ],
            "findings": [finding.to_json() for finding in self.findings],
        }


def check(run: Run) -> CheckReport:
    """Ask the source and the sink; the file itself is refused if it does not fit the source."""
    captured = captured_tables(run)
    found = preflight(
        run.servers.source,
        run.servers.sink,
        captured.plans,
        server_ids=run.model.source.server_ids,
        max_connections=run.model.snapshot.max_connections // CONNECTIONS_A_READER,
        picked=captured.picked,
    )
    return CheckReport(str(run.name), captured.plans, found)


def require_fit(run: Run) -> CheckReport:
    """Check, and refuse the pipeline if something speaks against it."""
    report = check(run)
    report.require_fit()
    return report
