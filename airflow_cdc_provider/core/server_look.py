"""What was seen of one server, looked at for the one part it is to play and for no pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.findings import Finding, Level


class Part(StrEnum):
    """The part that a server plays in a pipeline: source or sink."""

    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class ServerLook:
    """What a connection test found: facts in words, and findings."""

    facts: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def is_fit(self) -> bool:
        """Tell whether no finding blocks the server's use."""
        return not any(finding.level is Level.BLOCK for finding in self.findings)
