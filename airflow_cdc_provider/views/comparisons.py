"""What a comparison found, for other tasks and DAGs: counts and keys, never values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.identifiers import PipelineName, TableId, table_option
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.requests import scope_to_json
from airflow_cdc_provider.views.in_airflow import way_in_airflow
from airflow_cdc_provider.views.reports import repair_line

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
    from airflow_cdc_provider.pipeline.steps.repairing import Repair

Form = dict[str, Any]
_MOST_TABLES = 200
"""Named one by one; those that differ first."""
_MOST_NAMED = 20


def comparison_form(name: PipelineName, report: VerifyReport, position: str) -> Form:
    """Return a comparison's result as JSON, table by table; later releases only add fields."""
    tables = sorted(report.tables, key=lambda table: table.equal)
    return {
        **comparison_counts(name, report, position),
        "tables": {str(table.table): _table_form(table) for table in tables[:_MOST_TABLES]},
        "not_copied": [str(table) for table in report.not_copied[:_MOST_TABLES]],
        "stopped": [str(table) for table in _differing_first(report)[:_MOST_TABLES]],
    }


def comparison_counts(name: PipelineName, report: VerifyReport, position: str) -> Form:
    """Return a comparison's counts, as an asset event carries them."""
    return {
        "pipeline": str(name),
        "equal": report.equal,
        "position": position,
        "compared": len(report.tables),
        "rows": sum(table.rows_source for table in report.tables),
        "differing": [str(table.table) for table in differing(report)][:_MOST_TABLES],
        "missing": sum(table.missing for table in report.tables),
        "extra": sum(table.extra for table in report.tables),
        "different": sum(table.different for table in report.tables),
        "unsettled": report.unsettled,
    }


def differing(report: VerifyReport) -> list[TableVerdict]:
    """Return the tables of a report that differ."""
    return [table for table in report.tables if not table.equal]


def repair_forms(found: Iterable[Repair]) -> list[Form]:
    """Return each repair as JSON, for the task that requests it."""
    return [
        {
            "table": str(repair.verdict.table),
            "scope": scope_to_json(repair.scope),
            "text": repair_line(repair),
        }
        for repair in found
    ]


def standing_of(form: Mapping[str, Any]) -> list[str]:
    """Return the tables that were found different and are isolated from the stream."""
    stopped = frozenset(form.get("stopped", ()))
    return [table for table in form.get("differing", ()) if table in stopped]


def come_back_text(tables: Sequence[str], *, file: str = "FILE") -> str:
    """Explain how isolated tables come back to the stream, in Airflow."""
    named, more = tables[:_MOST_NAMED], len(tables) - _MOST_NAMED
    names = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    options = "".join(f" {table_option(table)}" for table in named)
    way = way_in_airflow(f"`resume`{options}", file=file)
    them = "it" if len(tables) == 1 else "them"
    return (
        f"the stream leaves {names} alone, and no repair touches {them}; to have {them} back, {way}"
    )


def _differing_first(report: VerifyReport) -> list[TableId]:
    """Return the isolated tables, those that differ first."""
    found = {table.table for table in differing(report)}
    return sorted(report.stopped, key=lambda table: table not in found)


def difference_text(counts: Form) -> str:
    """Describe which tables differ, and how."""
    how = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("missing", "extra", "different"))
    names, tables = counts["differing"], counted(counts["compared"], "table")
    return f"source and sink differ in {len(names)} of {tables}: {', '.join(names)}; rows: {how}"


def _table_form(table: TableVerdict) -> Form:
    """Return one table's result as JSON, without values."""
    form = table.to_json()
    del form["table"], form["seconds"]
    form["samples"] = [{"kind": s.kind.value, "key": s.key} for s in table.samples]  # no values
    return form
