"""Where a pipeline began without a snapshot, from the note that its plan left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.records import Note
from airflow_cdc_provider.core.requests import Request, read_as_a_whole

FOLLOWING = "following"
"""The phase that is shown of a table that flows, and whose rows of before nobody has read."""


@dataclass(frozen=True, slots=True)
class Started:
    """Where a stream began without a snapshot, and what its file said of that."""

    start: str
    """The words of the file, such as `latest`."""
    position: str
    """The place in the source's log, as a short text."""
    read: frozenset[TableId] = frozenset()
    """Tables of which a request has read all rows since."""

    @property
    def text(self) -> str:
        """Say where the stream began, for people."""
        return f"began without a snapshot at {self.position}: {self.start}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"start": self.start, "position": self.position, "text": self.text}


def shown_phase(phase: TablePhase, table: TableId, started: Started | None) -> str:
    """Return the phase of a table that is shown; what nobody has read is not consistent."""
    is_read = started is None or table in started.read
    return phase.value if is_read or phase is not TablePhase.CONSISTENT else FOLLOWING


def started_of(note: Note | None, requests: Iterable[Request] = ()) -> Started | None:
    """Return where a pipeline began without a snapshot, None if it began with one."""
    if note is None or not note.form:
        return None
    position = position_from_json(note.form["at"])
    read = frozenset(read_as_a_whole(requests, since_us=note.at_us))
    return Started(note.form["by"], position.short, read)
