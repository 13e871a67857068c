"""Errors and findings as lines for people: what, where, what is at risk and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.views.in_airflow import way_in_airflow

_IN_AIRFLOW = "in Airflow"


def error_lines(error: CdcError, *, file: str = "") -> list[str]:
    """Write an error, a line for each thing it says.

    With the path of a pipeline file one more says what to do in Airflow, where that is more.
    """
    way = way_in_airflow(error.remedy, error.where, error.what, file=file) if file else ""
    parts = (
        ("where", error.where),
        ("at risk", error.risk),
        ("what to do", error.remedy),
        (_IN_AIRFLOW, way),
    )
    return [f"{error.code} {error.what}", *_labelled(parts)]


def finding_lines(finding: Finding, *, file: str = "") -> list[str]:
    """Write a finding, a line for each thing it says; `file` as in `error_lines`."""
    way = way_in_airflow(finding.fix, file=file) if file else ""
    parts = (
        ("wanted", finding.wanted),
        ("why", finding.why),
        ("fix", finding.fix),
        (_IN_AIRFLOW, way),
    )
    first = f"[{finding.level}] {finding.subject}: {finding.observed}"
    return [first, *_labelled(parts)]


def _labelled(parts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"    {label}: {text}" for label, text in parts if text]
