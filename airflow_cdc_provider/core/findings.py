"""What preflight has to say: one value for each thing that was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.errors import PreflightError


class Level(StrEnum):
    """How much a finding matters."""

    BLOCK = "block"
    """A correct copy is not possible until it is mended."""
    WARN = "warn"
    """The copy is correct; something is at risk or slower than it need be."""
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, why it matters, and the exact way to mend it."""

    code: str
    """Stable and append-only: `source.binlog_format`."""
    level: Level
    subject: str
    """A server or a table."""
    observed: str
    wanted: str = ""
    why: str = ""
    fix: str = ""
    """A statement to run, or what to change where; empty if there is nothing to mend."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.level} {self.code} {self.subject}: {self.observed}"]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.why:
            parts.append(f"why: {self.why}")
        if self.fix:
            parts.append(f"fix: {self.fix}")
        return "; ".join(parts)


_ORDER = list(Level)


def sorted_findings(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with what blocks first."""
    return tuple(sorted(found, key=lambda f: (_ORDER.index(f.level), f.code, f.subject)))


def refuse_if_blocked(found: Iterable[Finding]) -> None:
    """Raise one error that names all that blocks, if anything does."""
    blocking = [finding for finding in found if finding.level is Level.BLOCK]
    if blocking:
        raise PreflightError(
            "; ".join(f"{f.code} ({f.subject}): {f.observed}" for f in blocking),
            where=", ".join(sorted({f.subject for f in blocking})),
            risk="rows could be lost or changed on the way",
            remedy="; ".join(dict.fromkeys(f.fix for f in blocking if f.fix)),
        )
