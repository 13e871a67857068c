"""What preflight has to say: one value for each thing that was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


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
