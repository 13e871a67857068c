"""GTID sets of MySQL (with tags) and GTID positions of MariaDB, as frozen values with algebra.

A MySQL set maps a source (server uuid and optional tag) to sorted, disjoint, non-adjacent
half-open intervals of transaction numbers. Sets may have gaps and are never flattened.
Text is canonical: sources sorted, tags under their uuid, intervals merged.
Source: MySQL 9.7 manual, section "GTID Sets"; tags since 8.3.

A MariaDB position maps a replication domain to the last transaction of that domain: a prefix of
each domain's log. Source: MariaDB manual, "Global Transaction ID".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

Interval = tuple[int, int]
"""Transaction numbers from the first up to, not including, the second."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]+)(?:-([0-9]+))?")


@dataclass(frozen=True, slots=True, order=True)
class GtidSource:
    """What transaction numbers are counted by: a server uuid and a tag (empty for none)."""

    uuid: str
    tag: str = ""

    def __post_init__(self) -> None:
        if not _UUID.fullmatch(self.uuid):
            raise ValueError(f"not a server uuid: {self.uuid!r}")
        if self.tag and not _TAG.fullmatch(self.tag):
            raise ValueError(f"not a GTID tag: {self.tag!r}")

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag}" if self.tag else self.uuid


@dataclass(frozen=True, slots=True, order=True)
class Gtid:
    """One MySQL transaction's global id: its source and number."""

    source: GtidSource
    number: int

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Parse 'uuid:number' or 'uuid:tag:number'."""
        parts = text.strip().lower().split(":")
        if len(parts) not in (2, 3) or not parts[-1].isdigit():
            raise ValueError(f"expected 'uuid:number' or 'uuid:tag:number', got {text!r}")
        return cls(GtidSource(parts[0], parts[1] if len(parts) == 3 else ""), int(parts[-1]))

    def __str__(self) -> str:
        return f"{self.source}:{self.number}"


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals sorted and merged where they touch or overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def _common(left: Iterable[Interval], right: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the parts of intervals that are in both."""
    return _merged(
        (max(start, other_start), min(end, other_end))
        for start, end in left
        for other_start, other_end in right
        if max(start, other_start) < min(end, other_end)
    )


def _without(left: Iterable[Interval], right: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the parts of the left intervals that are not in the right ones."""
    remaining = list(left)
    for cut_start, cut_end in right:
        remaining = [
            piece
            for start, end in remaining
            for piece in ((start, min(end, cut_start)), (max(start, cut_end), end))
            if piece[0] < piece[1]
        ]
    return _merged(remaining)


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A set of MySQL transactions by source, with gaps and tags kept."""

    intervals: Mapping[GtidSource, tuple[Interval, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse the server's text of a GTID set; white space and an empty set are allowed."""
        return _parsed(text)

    @classmethod
    def of(cls, found: Mapping[GtidSource, Iterable[Interval]]) -> GtidSet:
        """Return the GTID set of these intervals, in any order."""
        merged = ((source, _merged(found[source])) for source in sorted(found))
        return cls({source: intervals for source, intervals in merged if intervals})

    def __str__(self) -> str:
        by_uuid: dict[str, list[str]] = {}
        for source, intervals in self.intervals.items():
            parts = by_uuid.setdefault(source.uuid, [source.uuid])
            if source.tag:
                parts.append(source.tag)
            parts.extend(
                str(start) if end == start + 1 else f"{start}-{end - 1}" for start, end in intervals
            )
        return ",".join(":".join(parts) for parts in by_uuid.values())

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __contains__(self, gtid: Gtid) -> bool:
        return any(start <= gtid.number < end for start, end in self.intervals.get(gtid.source, ()))

    def __hash__(self) -> int:
        return hash(tuple(self.intervals.items()))

    def __len__(self) -> int:
        return sum(end - start for spans in self.intervals.values() for start, end in spans)

    def union(self, other: GtidSet) -> GtidSet:
        """Return every transaction of either set."""
        sources = {*self.intervals, *other.intervals}
        return self.of(
            {s: [*self.intervals.get(s, ()), *other.intervals.get(s, ())] for s in sources}
        )

    def intersection(self, other: GtidSet) -> GtidSet:
        """Return the transactions of both sets."""
        return self.of(
            {
                source: _common(spans, other.intervals.get(source, ()))
                for source, spans in self.intervals.items()
            }
        )

    def subtract(self, other: GtidSet) -> GtidSet:
        """Return the transactions of this set that `other` lacks."""
        return self.of(
            {
                source: _without(spans, other.intervals.get(source, ()))
                for source, spans in self.intervals.items()
            }
        )

    def covers(self, other: GtidSet) -> bool:
        """Tell whether every transaction of `other` is in this set."""
        return not other.subtract(self)

    def add(self, gtid: Gtid) -> GtidSet:
        """Return this set with one more transaction."""
        spans = self.intervals.get(gtid.source, ())
        if spans and spans[-1][1] == gtid.number:  # the usual case: the next one
            grown = (*spans[:-1], (spans[-1][0], gtid.number + 1))
            return GtidSet({**self.intervals, gtid.source: grown})
        return self.of({**self.intervals, gtid.source: [*spans, (gtid.number, gtid.number + 1)]})


@lru_cache(maxsize=1024)
def _parsed(text: str) -> GtidSet:
    """Parse a GTID set, cached: watermarks of neighbouring splits often have the same one."""
    found: dict[GtidSource, list[Interval]] = {}
    for member in "".join(text.split()).lower().split(","):
        if not member:
            continue
        uuid, *parts = member.split(":")
        if not parts:
            raise ValueError(f"GTID set member without numbers: {member!r}")
        source = _source(uuid)
        for part in parts:
            if not part[:1].isdigit() and _TAG.fullmatch(part):
                source = _source(uuid, part)
                continue
            found.setdefault(source, []).append(_parse_interval(part, member))
    return GtidSet.of(found)


@lru_cache(maxsize=256)
def _source(uuid: str, tag: str = "") -> GtidSource:
    """Return a GTID source, cached: all sets of a hand-off have the same few."""
    return GtidSource(uuid, tag)


def _parse_interval(part: str, member: str) -> Interval:
    """Parse an interval of numbers in a member of a GTID set."""
    match = _INTERVAL.fullmatch(part)
    if match is None:
        raise ValueError(f"GTID set member {member!r}: {part!r} is neither a range nor a tag")
    start = int(match[1])
    end = int(match[2]) if match[2] else start
    if start < 1:
        raise ValueError(f"GTID set member {member!r}: transaction numbers start at 1")
    if end < start:
        raise ValueError(f"GTID set member {member!r}: {part!r} ends before it starts")
    return start, end + 1


@dataclass(frozen=True, slots=True)
class MariaDbGtid:
    """One MariaDB transaction's global id: domain, server and sequence number."""

    domain: int
    server: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> MariaDbGtid:
        """Parse 'domain-server-sequence'."""
        parts = text.strip().split("-")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise ValueError(f"expected 'domain-server-sequence', got {text!r}")
        return cls(*(int(part) for part in parts))

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


@dataclass(frozen=True, slots=True)
class MariaDbGtidPosition:
    """The last transaction of each MariaDB replication domain: a prefix of every domain.

    The same number by another server is another transaction: neither position contains the other.
    """

    last: Mapping[int, MariaDbGtid] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a list of MariaDB GTIDs, one for each domain."""
        gtids = [MariaDbGtid.parse(part) for part in text.split(",") if part.strip()]
        if len({gtid.domain for gtid in gtids}) != len(gtids):
            raise ValueError(f"a GTID position names each domain once, got {text!r}")
        return cls({gtid.domain: gtid for gtid in sorted(gtids, key=lambda g: g.domain)})

    def __str__(self) -> str:
        return ",".join(str(gtid) for gtid in self)

    def __iter__(self) -> Iterator[MariaDbGtid]:
        return iter(self.last.values())

    def __bool__(self) -> bool:
        return bool(self.last)

    def __contains__(self, gtid: MariaDbGtid) -> bool:
        known = self.last.get(gtid.domain)
        return known is not None and (gtid == known or gtid.sequence < known.sequence)

    def __hash__(self) -> int:
        return hash(tuple(self.last.values()))

    def covers(self, other: MariaDbGtidPosition) -> bool:
        """Tell whether every transaction up to `other` is at or before this position."""
        return all(gtid in self for gtid in other)

    def intersection(self, other: MariaDbGtidPosition) -> MariaDbGtidPosition:
        """Return the earlier transaction of both in each domain; left out where they diverged."""
        return MariaDbGtidPosition(
            {
                domain: min(gtid, theirs, key=lambda g: g.sequence)
                for domain, gtid in self.last.items()
                if (theirs := other.last.get(domain)) is not None
                and (gtid == theirs or gtid.sequence != theirs.sequence)
            }
        )

    def add(self, gtid: MariaDbGtid) -> MariaDbGtidPosition:
        """Return the position with `gtid` as the last transaction of its domain."""
        moved = {**self.last, gtid.domain: gtid}
        return MariaDbGtidPosition({domain: moved[domain] for domain in sorted(moved)})
