"""What a world of joins is made of: its laws, its sink, its requests and who carries them out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_split import TableProgress
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from tests.core.convergence_model import Rows


@dataclass(frozen=True)
class JoinLaws:
    """Which rules the world keeps."""

    waits_for_high: bool = True
    """Broken: a split joins though the stream has not passed its H."""
    replays_to_position: bool = True
    """Broken: a split joins as its table was at H."""
    locks_before_position: bool = True
    """Broken: the stream goes on between a look at its position and the join."""
    replaces_range: bool = True
    """Broken: rows are written, and none is deleted."""
    replays_touched: bool = True
    """Broken: keys that are not compared are written as they were read, whatever the log says."""
    needs_one_position: bool = True
    """Broken: a split joins while the stream's writers are at different places."""
    fences_old_owner: bool = True
    """Broken: an owner that was replaced still commits."""
    fences_old_begin: bool = True
    """Broken: a request is carried out twice by one owner, and numbers stand for ranges."""
    captures_first: bool = True
    """Broken: the stream takes an added table's changes when its rows are there."""
    refuses_outside: bool = True
    """Broken: a row outside of the request's range is deleted for its unique value."""
    looks_at_sink: bool = True
    """Broken: of an interval only the rows that the source has in it are read."""
    looks_up_listed: bool = True
    """Broken: what the sink alone has in an interval is deleted, whatever the source has of it."""
    brings_back: bool = True
    """Broken: a request that ends early leaves the rows missing that were in the way of others."""
    notes_with_rows: bool = True
    """Broken: that a split has joined is noted before its rows are there."""


class Status(Enum):
    OPEN = auto()
    DONE = auto()
    REFUSED = auto()
    CANCELLED = auto()


@dataclass
class Request:
    """A range that is to be read again."""

    number: int
    keys: KeyRange
    status: Status = Status.OPEN
    is_cancel_wanted: bool = False


@dataclass
class Sink:
    """Rows and ledger, changed together."""

    rows: Rows
    positions: list[MySqlPosition]
    """Of the stream's writers."""
    captured: TableProgress | None = None
    """None: the stream does not follow the table."""
    generation: int = 1
    epoch: int = 1
    """Of the requests: who began them last."""
    joined: dict[int, list[SnapshotSplit]] = field(default_factory=dict)
    """By request."""
    freed: dict[int, set[int]] = field(default_factory=dict)
    """By request: keys of rows that were taken away for a unique value."""


@dataclass
class Read:
    """A split being read again."""

    split: SnapshotSplit
    listed: frozenset[int] | None = None
    """The keys that are read, if they are named one by one."""
    held: frozenset[int] | None = None
    """What the sink had of an interval's piece before it was read."""
    low: int | None = None
    rows: Rows | None = None
    high: int | None = None
    looked_at: int | None = None
    """The stream's position as it was before the lock; only where that law is broken."""

    @property
    def is_whole(self) -> bool:
        return self.high is not None

    @property
    def settled(self) -> int:
        """Return up to where the rows hold every change."""
        high = self.high if self.split.is_backfilled(wanted=True) else self.low
        return high or 0


@dataclass
class Owner:
    """Who carries out requests; what it holds is lost in a crash."""

    generation: int
    cuts: Sequence[int]
    epoch: int = 1
    request: Request | None = None
    left: deque[SnapshotSplit] = field(default_factory=deque)
    reads: deque[Read] = field(default_factory=deque)
    leaving: Status | None = None
    """How the request ends once the rows are back that it took away."""
    brought: set[int] = field(default_factory=set)

    def forget(self) -> None:
        self.leaving = None
        self.brought.clear()
        self.request = None
        self.left.clear()
        self.reads.clear()


@dataclass(frozen=True)
class Start:
    """How a world begins."""

    rows: Sequence[tuple[int, int]]
    """Keys and unique values of the first transaction."""
    drift: Mapping[int, int | None]
    """What the sink has instead, for some keys."""
    ranges: Sequence[KeyRange]
    """Of the requests."""
    cuts: Sequence[int]
    """Boundaries of the splits."""
    writers: int = 1
    kind: KeyKind = KeyKind.INTEGER
    is_unique: bool = False
    is_added: bool = False
    interval: frozenset[int] | None = None
    """The requests are for rows whose unique value is one of these; None for all."""
    """The table is added while the stream flows, and its sink table is empty."""
