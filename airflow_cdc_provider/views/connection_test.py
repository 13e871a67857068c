"""What the test of a connection says: what stands in the way and its fix first, then the facts."""

from __future__ import annotations

from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.server_look import ServerLook


def connection_test(look: ServerLook) -> tuple[bool, str]:
    """Return whether a server can be used, and the findings and facts as lines."""
    told = [finding for finding in look.findings if finding.level is not Level.INFO]
    return look.is_fit, "\n".join([*map(_line, told), *(f"{fact}." for fact in look.facts)])


def _line(finding: Finding) -> str:
    """Return one finding as a line."""
    word = "Not fit" if finding.level is Level.BLOCK else "Mind"
    why = f": {finding.why}" if finding.why else ""
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    return f"{word}: {finding.observed}{why}.{fix}"
