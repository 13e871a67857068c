"""Whether a pipeline has ended for good, and where, from the note that its last run left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import Note, PipelineState
from airflow_cdc_provider.core.stream_stops import StopKind, StreamStop

_AT_REST = frozenset({Phase.HANDED_OFF, Phase.STOPPED})


@dataclass(frozen=True, slots=True)
class Ended:
    """Where a pipeline has ended for good, and what its file says of that."""

    stop: StreamStop
    position: str
    """The position of the sink, as a short text."""

    @property
    def text(self) -> str:
        """Say where the pipeline has ended, for people."""
        if self.stop.kind is StopKind.SNAPSHOT_ONLY:
            return "ended with its snapshot: each split is as of its own high watermark"
        return f"ended at {self.position}: {self.stop.words}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"stop": str(self.stop), "position": self.position, "text": self.text}


def ended_of(note: Note | None, state: PipelineState) -> Ended | None:
    """Return where a pipeline has ended, None if it has not or goes on."""
    if note is None or not note.form or state.phase not in _AT_REST:
        return None
    position = position_from_json(note.form["position"])
    return Ended(StreamStop.parse(note.form["stop"]), position.short)
