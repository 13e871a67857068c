"""Where a stream ends, as the pipeline file says it.

- `consistent`: at the largest high watermark of the hand-off, where all tables are of one position;
- a position: behind the last transaction that ends at or before it, which must end just there;
- a GTID set: where the sink has exactly the transactions of the set;
- a timestamp: before the first transaction of the log that was committed later.

Once its place in the log is known it is kept with the stream in the sink's ledger, beside the words
of the file. A stream that has reached the place that is kept for the file's words has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.moments import microseconds_of, moment_in_utc
from airflow_cdc_provider.core.stream_split import StreamSplit


class StopKind(StrEnum):
    """The kinds of places where a stream ends."""

    NEVER = "never"
    CONSISTENT = "consistent"
    POSITION = "position"
    GTID = "gtid"
    TIMESTAMP = "timestamp"
    SNAPSHOT_ONLY = "snapshot_only"
    """`stream.mode`: no log is applied at all."""

    @property
    def has_value(self) -> bool:
        """Tell whether the file names a place, a set or a moment."""
        return self in {StopKind.POSITION, StopKind.GTID, StopKind.TIMESTAMP}


@dataclass(frozen=True, slots=True)
class StreamStop:
    """Where the file says that the stream ends."""

    kind: StopKind = StopKind.NEVER
    value: str = ""
    """The position, the GTID set, or the moment as ISO 8601 in UTC."""

    def __post_init__(self) -> None:
        if self.kind.has_value != bool(self.value):
            raise ValueError(f"a stop at {self.kind.value!r} with the value {self.value!r}")
        if self.kind is StopKind.TIMESTAMP:
            moment_in_utc(self.value)

    @classmethod
    def at(cls, kind: str, value: str) -> Self:
        """Make a stop of a kind; a moment needs a time zone, and is kept in UTC."""
        if kind != StopKind.TIMESTAMP:
            return cls(StopKind(kind), "".join(value.split()))
        return cls(StopKind.TIMESTAMP, moment_in_utc(value))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a stop from the text that `str` gives; empty is `never`."""
        kind, _, value = text.partition(" ")
        return cls(StopKind(kind or StopKind.NEVER), value)

    def __str__(self) -> str:
        return f"{self.kind.value} {self.value}".rstrip()

    def __bool__(self) -> bool:
        """Tell whether the stream ends at all."""
        return self.kind is not StopKind.NEVER

    @property
    def time_us(self) -> int:
        """Return the moment of a timestamp in microseconds since the epoch."""
        return microseconds_of(self.value)

    @property
    def words(self) -> str:
        """Return the stop as words for people."""
        if self.kind is StopKind.CONSISTENT:
            return "where all tables are of one position"
        if self.kind is StopKind.SNAPSHOT_ONLY:
            return "its snapshot"
        if self.kind is StopKind.GTID:
            return f"GTID set {self.value}"
        return str(self)


def has_ended(stream: StreamSplit | None, stop: StreamStop) -> bool:
    """Tell whether a stream has reached where the file says that it ends."""
    if stream is None or stream.stop is None or not stop or stream.stop_by != str(stop):
        return False
    if stream.unread:
        return False
    try:
        return stream.start.covers(stream.stop)
    except IncomparablePositionsError:
        return False  # another server's log has the place elsewhere
