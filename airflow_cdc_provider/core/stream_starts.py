"""Where a stream starts that no snapshot comes before, as the pipeline file says it.

- `earliest`: at the beginning of the oldest file that the source keeps of its log;
- `latest`: where the log ended when the plan was made;
- a position: a boundary between two transactions;
- a GTID set: behind its transactions, which must be the first of the log;
- a timestamp: before the first transaction of the log that was committed then or later.

The place is found once, when the plan is made, and kept with the stream in the sink's ledger,
beside the words of the file. So whoever goes on from a killed run begins at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from airflow_cdc_provider.core.moments import microseconds_of, moment_in_utc
from airflow_cdc_provider.core.positions import LogPosition


class StartKind(StrEnum):
    """The kinds of places where a stream starts."""

    AFTER_SNAPSHOT = "after_snapshot"
    EARLIEST = "earliest"
    LATEST = "latest"
    POSITION = "position"
    GTID = "gtid"
    TIMESTAMP = "timestamp"

    @property
    def has_value(self) -> bool:
        """Tell whether the file names a place, a set or a moment."""
        return self in {StartKind.POSITION, StartKind.GTID, StartKind.TIMESTAMP}


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where the file says that the stream starts."""

    kind: StartKind = StartKind.AFTER_SNAPSHOT
    value: str = ""
    """The position, the GTID set, or the moment as ISO 8601 in UTC."""

    def __post_init__(self) -> None:
        if self.kind.has_value != bool(self.value):
            raise ValueError(f"a start at {self.kind.value!r} with the value {self.value!r}")
        if self.kind is StartKind.TIMESTAMP:
            moment_in_utc(self.value)

    @classmethod
    def at(cls, kind: str, value: str) -> Self:
        """Make a start of a kind; a moment needs a time zone, and is kept in UTC."""
        if kind != StartKind.TIMESTAMP:
            return cls(StartKind(kind), "".join(value.split()))
        return cls(StartKind.TIMESTAMP, moment_in_utc(value))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a start from the text that `str` gives; empty is `after_snapshot`."""
        kind, _, value = text.partition(" ")
        return cls(StartKind(kind or StartKind.AFTER_SNAPSHOT), value)

    def __str__(self) -> str:
        return f"{self.kind.value} {self.value}".rstrip()

    def __bool__(self) -> bool:
        """Tell whether the stream starts without a snapshot."""
        return self.kind is not StartKind.AFTER_SNAPSHOT

    @property
    def time_us(self) -> int:
        """Return the moment of a timestamp in microseconds since the epoch."""
        return microseconds_of(self.value)

    @property
    def as_written(self) -> str:
        """Return the start as the pipeline file has it."""
        return f'{{{self.kind.value}: "{self.value}"}}' if self.kind.has_value else self.kind.value


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a stream began without a snapshot, as it is kept in the ledger."""

    by: str
    """The words of the pipeline file, as `StreamStart` has them in text."""
    at: LogPosition
    """The place: each transaction behind it is applied, none before."""
    known: LogPosition
    """Where the log ended when the tables' definitions were read.

    Definitions before are not known: only what the log says of single rows.
    """

    @property
    def start(self) -> StreamStart:
        """Return where the file said that the stream starts."""
        return StreamStart.parse(self.by)

    def is_before_known(self, position: LogPosition) -> bool:
        """Tell whether a position is before the place from which on definitions are known."""
        return not position.covers(self.known)
