"""Whether the rules for conflicts fit the tables of an edge, as findings of preflight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.shared_ids import is_new

_IN_ORDER = frozenset({TypeKind.INTEGER, TypeKind.DECIMAL, TypeKind.TEMPORAL})
_KEY = "topology.conflicts"


def conflict_findings(
    run: Run, plans: Sequence[TablePlan], beside: Sequence[FolderFile]
) -> Iterator[Finding]:
    """Yield a finding for each table that its rule does not fit, and each rule of no table.

    And for each table that has another rule in the file of the edge back, among those `beside`.
    """
    edge = run.model.edge
    if edge is None or not edge.winner:
        return
    for plan in plans:
        rule = edge.rule_of(plan.schema.table)
        what = _misfit(plan, rule)
        if what:
            yield _finding(
                Level.BLOCK,
                str(plan.schema.table),
                what,
                "a column of whole numbers, decimals, dates or times that both nodes have",
                f"name another column, or give the table a rule of its own in {_KEY}.tables, in "
                "the files of both edges",
            )
    level = Level.BLOCK if is_new(run.store, run.name) else Level.WARN
    for each in edge.rules:
        if not any(each.tables.matches(plan.schema.table) for plan in plans):
            yield _finding(
                level,
                f"{_KEY}.tables",
                f"{each.tables} is none of the tables that are copied",
                "the name of a table that the file picks, or a pattern that fits one",
                "correct the name, or remove the rule, in the files of both edges",
            )
    models = (file.loaded.model for file in beside if file.loaded)
    for back in (each.edge for each in models if each.edge and each.edge.is_back_of(edge)):
        for plan in plans:
            rules = edge.rule_of(plan.schema.table), back.rule_of(plan.sink_table)
            if rules[0] != rules[1]:
                yield _finding(
                    level,
                    str(plan.schema.table),
                    f"its rule for conflicts is here that {rules[0].whole}, and in the file of the "
                    f"edge back that {rules[1].whole}",
                    "the same rule in the files of both edges",
                    f"write the same rule for {plan.schema.table} and {plan.sink_table}",
                )


def _misfit(plan: TablePlan, rule: ConflictRule) -> str:
    """Return why a table's conflicts cannot be settled by its rule; empty if they can."""
    if not rule.column:
        return ""
    found = [each for each in plan.target.copied_columns if each.name == rule.column]
    if not found:
        return f"it has no column {rule.column}, by which its conflicts are settled"
    return _unordered(found[0])


def _unordered(column: Column) -> str:
    """Return why a column's values tell nothing of which change is later; empty if they do."""
    if column.type.kind in _IN_ORDER:
        return ""
    return f"{column.name} is {column.type.name}, which does not grow with each change"


def _finding(level: Level, subject: str, found: str, wanted: str, fix: str) -> Finding:
    """Return a finding."""
    risk = "the nodes would keep different rows"
    return Finding(PipelineCode.TOPOLOGY_CONFLICTS, level, subject, found, wanted, risk, fix)
