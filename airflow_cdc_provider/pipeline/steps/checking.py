"""Check: everything that speaks against the pipeline, found at once and without changing anything.

What the file alone shows was refused when it was read. Here the servers are asked: first whether
the file fits them (its tables, its routes) and the plan there is, then whether their settings,
tables and privileges allow a correct copy, and whether the sink's tables are this pipeline's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.errors import AccessDeniedError, PreflightError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.mysql.findings import sorted_findings
from airflow_cdc_provider.mysql.preflight import Finding, Level, preflight
from airflow_cdc_provider.pipeline.checks import CONNECTIONS_A_READER
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.claims import own_tables
from airflow_cdc_provider.pipeline.steps.file_changes import require_unchanged
from airflow_cdc_provider.pipeline.steps.servers import require_sink, sink_identity
from airflow_cdc_provider.pipeline.steps.sink import Claims, open_targets
from airflow_cdc_provider.pipeline.steps.tables import Captured, captured_tables


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was looked at, and what was found."""

    pipeline: str
    tables: tuple[TablePlan, ...]
    findings: tuple[Finding, ...]
    not_copied: tuple[str, ...] = ()
    """Tables that fit the file but are not in the plan: they came later."""
    gone: tuple[str, ...] = ()
    """Tables of the plan that are not at the source any more."""

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
            "not_copied": list(self.not_copied),
        }


def check(run: Run) -> CheckReport:
    """Ask the source and the sink.

    The file itself is refused if it does not fit the source, or the plan there is.
    """
    captured = captured_tables(run)
    not_copied, gone = differences(run, captured.plans)
    sink = sink_identity(run)
    with closing(open_targets(run)) as targets:
        require_unchanged(run, claimed=targets.routes(), left_out=not_copied)
        require_sink(run, sink, targets.plan_id())
        found = [*_not_as_planned(run, captured, not_copied, gone)]
        found += _targets(run, targets, captured.plans, own_tables(run, sink))
    found += preflight(
        run.servers.source,
        run.servers.sink,
        captured.plans,
        server_ids=run.model.source.server_ids,
        max_connections=run.model.snapshot.max_connections // CONNECTIONS_A_READER,
        picked=captured.picked,
    )
    return CheckReport(
        str(run.name),
        captured.plans,
        sorted_findings(found),
        tuple(map(str, not_copied)),
        tuple(map(str, gone)),
    )


def require_fit(run: Run) -> CheckReport:
    """Check, and refuse the pipeline if something speaks against it."""
    report = check(run)
    report.require_fit()
    return report


def differences(
    run: Run, tables: Sequence[TablePlan]
) -> tuple[tuple[TableId, ...], tuple[TableId, ...]]:
    """Return the tables that are picked and not in the plan, and those in it that are gone.

    Without a plan there are none of either.
    """
    planned = {state.table for state in run.store.tables(run.name)}
    if not planned:
        return (), ()
    now = {plan.schema.table for plan in tables}
    return tuple(sorted(now - planned)), tuple(sorted(planned - now))


def _not_as_planned(
    run: Run, captured: Captured, not_copied: Iterable[TableId], gone: Iterable[TableId]
) -> Iterator[Finding]:
    for table in not_copied:
        yield Finding(
            "table.not_in_plan",
            Level.WARN,
            str(table),
            "it fits source.tables, and came after the plan was made",
            "a plan that has it",
            "it is not copied",
            "restart the pipeline to copy it, which reads all tables again, or put it into "
            "source.exclude",
        )
    for table in gone:
        yield Finding(
            "table.gone",
            Level.WARN,
            str(table),
            "it is in the plan, and not at the source any more",
            "the tables of the plan",
            "the snapshot cannot read it; the stream stops where it was dropped or renamed",
            "bring it back, or restart the pipeline: all tables are read again",
        )
    origin = run.store.origin(run.name)
    if origin is not None and origin.source != captured.server_uuid:
        yield Finding(
            "source.another_server",
            Level.WARN,
            str(run.servers.source),
            f"it is the server {captured.server_uuid}",
            f"{origin.source}, which the plan was made from",
            "it is refused unless its history contains what was read of that one",
            "name the former server, or restart the pipeline to read all tables from this one",
        )


def _targets(
    run: Run, targets: Claims, plans: Sequence[TablePlan], known: Collection[TableId]
) -> Iterator[Finding]:
    try:
        conflicts = targets.conflicts(plans, known=known)
    except AccessDeniedError:
        return  # preflight names the privileges that are missing
    replaces = run.model.sink.existing_rows == "replace"
    for conflict in conflicts:
        if conflict.pipeline:
            yield Finding(
                "sink.owner",
                Level.BLOCK,
                str(conflict.table),
                conflict.text,
                "a table that no other pipeline writes to",
                "each would delete the other's rows",
                conflict.remedy,
            )
        else:
            yield Finding(
                "sink.existing_rows",
                Level.WARN if replaces else Level.BLOCK,
                str(conflict.table),
                conflict.text,
                "an empty table, or one of this pipeline",
                "the snapshot replaces all rows there are",
                "" if replaces else conflict.remedy,
            )
