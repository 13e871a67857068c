"""What was seen of one server, looked at for the one part it is to play and for no pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.findings import Finding, Level


class Part(StrEnum):
    """What a server is to a pipeline."""

    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class ServerLook:
    """Facts in words, and what speaks against the server."""

    facts: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def is_fit(self) -> bool:
        """Tell whether nothing stands in the way."""
        return not any(finding.level is Level.BLOCK for finding in self.findings)
