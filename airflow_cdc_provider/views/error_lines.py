"""Errors and findings as lines for people: what, where, what is at risk and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.views.in_airflow import way_in_airflow

_IN_AIRFLOW = "in Airflow"


def error_lines(error: CdcError, *, file: str = "", pipeline: str = "") -> list[str]:
    """Return an error as lines: what, where, at risk, what to do.

    With the path of a pipeline file one more says what to do in Airflow, where that is more; DAGs
    are named after `pipeline` if given.
    """
    told = (error.remedy, error.where, error.what)
    way = way_in_airflow(*told, file=file, pipeline=pipeline) if file else ""
    parts = (
        ("where", error.where),
        ("at risk", error.risk),
        ("what to do", error.remedy),
        (_IN_AIRFLOW, way),
    )
    return [f"{error.code} {error.what}", *_labelled(parts)]


def finding_lines(finding: Finding, *, file: str = "", pipeline: str = "") -> list[str]:
    """Return a finding as lines: what, wanted, why, fix; the rest as in `error_lines`."""
    way = way_in_airflow(finding.fix, file=file, pipeline=pipeline) if file else ""
    parts = (
        ("wanted", finding.wanted),
        ("why", finding.why),
        ("fix", finding.fix),
        (_IN_AIRFLOW, way),
    )
    level = "" if file else f"[{finding.level}] "  # a task's log has levels of its own
    first = f"{level}{finding.subject}: {finding.observed}"
    return [first, *_labelled(parts)]


def all_finding_lines(
    findings: Sequence[Finding], *, file: str = "", pipeline: str = ""
) -> Iterator[tuple[Level, str]]:
    """Yield findings as lines; checks that lacked a harmless privilege share one line."""
    denied = [found for found in findings if found.lacks and found.level is Level.INFO]
    for finding in findings:
        if finding not in denied:
            for line in finding_lines(finding, file=file, pipeline=pipeline):
                yield finding.level, line
    if denied:
        yield Level.INFO, _not_looked_at(denied, has_level=not file)


def _not_looked_at(denied: Sequence[Finding], *, has_level: bool) -> str:
    """Return the line on checks for which the account lacks a privilege."""
    lacking: dict[str, list[str]] = {}
    for finding in denied:
        lacking.setdefault(finding.subject, []).append(finding.lacks)
    where = "; ".join(
        f"the account at {subject} lacks {', '.join(dict.fromkeys(privileges))}"
        for subject, privileges in lacking.items()
    )
    return (
        f"{'[info] ' if has_level else ''}not looked at, {where}. Nothing depends "
        "on it, see the page 'Rights at the servers' (docs/rights.md); "
        "`check --json` says what each would show"
    )


def _labelled(parts: Iterable[tuple[str, str]]) -> list[str]:
    """Return labelled texts as lines, without the empty ones."""
    return [f"    {label}: {text}" for label, text in parts if text]
