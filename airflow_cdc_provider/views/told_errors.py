"""Errors and findings as lines for people: what, where, what is at risk and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding


def error_lines(error: CdcError) -> list[str]:
    """Write an error, a line for each thing it says."""
    parts = (("where", error.where), ("at risk", error.risk), ("what to do", error.remedy))
    return [f"{error.code} {error.what}", *_labelled(parts)]


def finding_lines(finding: Finding) -> list[str]:
    """Write a finding, a line for each thing it says."""
    parts = (("wanted", finding.wanted), ("why", finding.why), ("fix", finding.fix))
    first = f"[{finding.level}] {finding.subject}: {finding.observed}"
    return [first, *_labelled(parts)]


def _labelled(parts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"    {label}: {text}" for label, text in parts if text]
