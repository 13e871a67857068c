"""What of a source's history is in the sink, and by which split.

Before the consistent point the sink holds more than the stream's position says: each split has
its rows up to its own H. A source that lacks a transaction of any of these cannot bring the sink
to what it is itself: the rows of that transaction would stay for ever. So a server that answers
is asked for all of them, not only for what the stream has read (law 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress

_NAMED = 5


@dataclass(frozen=True, slots=True)
class AppliedThrough:
    """A position whose transactions are in the sink, and the split or table that has them."""

    by: str
    """What holds them: a split, or a table that is replayed whole."""
    position: LogPosition


@dataclass(frozen=True, slots=True)
class SharedHistory:
    """What another server's history has in common with the history that was read."""

    position: LogPosition | None
    """The latest that both have; None if that cannot be told."""
    has: tuple[bool, ...]
    """Of other positions in question, in their order, whether the server has all of each."""


def held_by_stream(stream: StreamSplit) -> tuple[AppliedThrough, ...]:
    """Return the positions that the sink has ahead of the stream's start: each H not yet passed."""
    return tuple(held for progress in stream.tables for held in _still_to_pass(progress, stream))


def held_by_reports(
    reports: Iterable[tuple[SnapshotSplit, SplitReport]],
) -> tuple[AppliedThrough, ...]:
    """Return the position that each published split has in the sink, before the hand-off."""
    return tuple(AppliedThrough(split.split_id, report.high) for split, report in reports)


def names_of(held: Iterable[AppliedThrough]) -> str:
    """Return the names of the splits or tables that have positions, the first few of many."""
    names = list(dict.fromkeys(each.by for each in held))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _still_to_pass(progress: TableProgress, stream: StreamSplit) -> Iterator[AppliedThrough]:
    """Yield the positions of one table that the stream has not passed."""
    if not progress.consistent_at:
        return
    splits = [AppliedThrough(each.split.split_id, each.consistent_at) for each in progress.finished]
    for held in splits or [
        AppliedThrough(str(progress.table), high) for high in progress.consistent_at
    ]:
        if not _is_passed(held.position, stream.start):
            yield held


def _is_passed(position: LogPosition, start: LogPosition) -> bool:
    """Tell whether the stream's start covers a position."""
    try:
        return start.covers(position)
    except IncomparablePositionsError:
        return False  # then the server is asked
