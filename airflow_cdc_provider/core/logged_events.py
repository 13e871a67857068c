"""What stands in a source's log around a position, for people to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_NAMES = {"transaction": "gtid"}
"""Names in the form for `--json` that are not the fields' own."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of the log, for display; what is not known of it is empty."""

    file: str
    start: int
    end: int
    """Offsets in the file. Events of a compressed transaction have those of the whole."""
    kind: str
    """The name of its type."""
    time_s: int
    """When its statement began, seconds since the epoch."""
    bytes: int
    transaction: str = ""
    """The name of the transaction that it belongs to."""
    tables: tuple[str, ...] = ()
    rows: int | None = None
    statement: str = ""
    """Of a statement: what kind it is."""
    compressed: bool = False
    """It is a part of the compressed transaction before it."""
    problem: str = ""
    """Why not more is known."""
    values: tuple[Mapping[str, Any], ...] = ()
    """The changed rows, where they were asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain values; row values only if they were read."""
        form = {_NAMES.get(name, name): value for name, value in asdict(self).items()}
        if not self.values:
            del form["values"]
        return form


@dataclass(frozen=True, slots=True)
class LogView:
    """Some events of the log around a position, for display."""

    server: str
    file: str
    offset: int
    """The position: between two of the events."""
    log_end: str
    events: tuple[LoggedEvent, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the events as plain values for `--json`; later releases only add fields."""
        return {
            "server": self.server,
            "position": f"{self.file}:{self.offset}",
            "log_end": self.log_end,
            "events": [event.to_json() for event in self.events],
        }
