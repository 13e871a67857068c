"""Whether the rules for conflicts fit the tables of an edge, as findings of preflight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.file.model import PipelineFile
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
    if edge is None or not edge.is_guarded:
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
    for back in (file.loaded.model for file in beside if file.loaded):
        for plan, here, there in differing_rules(edge, plans, back):
            yield _finding(
                Level.BLOCK,
                str(plan.schema.table),
                f"its rule for conflicts is here that {here.whole}, and in the file of the "
                f"edge back that {there.whole}",
                "the same rule in the files of both edges",
                f"write the same rule for {_names(plan)}, in both files",
            )


def _names(plan: TablePlan) -> str:
    """Return a table's names at both nodes, once where they are the same."""
    names = dict.fromkeys((plan.schema.table, plan.sink_table))
    return " and ".join(map(str, names))


def other_rules(
    run: Run, back: PipelineFile
) -> Iterator[tuple[TableId, ConflictRule, ConflictRule]]:
    """Yield each table of an edge that has another rule in the file of the edge back, and both."""
    plans = [state.plan for state in run.store.tables(run.name)]
    if run.model.edge is not None:
        for plan, here, there in differing_rules(run.model.edge, plans, back):
            yield plan.schema.table, here, there


def differing_rules(
    edge: Topology, plans: Sequence[TablePlan], back: PipelineFile
) -> Iterator[tuple[TablePlan, ConflictRule, ConflictRule]]:
    """Yield the tables whose rules differ from those of a file, if that is the edge back."""
    if back.edge is None or not back.edge.is_back_of(edge):
        return
    for plan in plans:
        here, there = edge.rule_of(plan.schema.table), back.edge.rule_of(plan.sink_table)
        if here != there:
            yield plan, here, there


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
