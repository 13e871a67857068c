"""The raw events around a place of the log, and what is needed to understand them.

The log is read from the beginning of the place's file, because events can only be found one after
the other. The dump is one of the name that `mysqlbinlog` takes, server id 0: it registers nowhere
and disturbs no reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import RefusedError, SourceUnreachableError
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    ARTIFICIAL_FLAG,
    GTIDS,
    HEADER_BYTES,
    HEARTBEATS,
    OUTSIDE_TRANSACTIONS,
    EventType,
)
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.source.event_framing import rotation_target
from airflow_cdc_provider.systems.mysql.source.log_transport import NO_SERVER_ID, LogTransport

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk

_PATIENCE_S = 30.0
_TYPE_AT, _LOG_POS_AT, _FLAGS_AT = 4, 13, 17


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event as logged, with the earlier events that are needed to decode it."""

    start: BinlogPosition
    end: BinlogPosition
    data: bytes
    format: bytes
    """Its file's format description."""
    gtid: bytes
    """The GTID event of its transaction, empty if it is in none."""
    table: bytes = b""
    """Of rows: their table map."""

    @property
    def kind(self) -> int:
        """Return the event's type code."""
        return self.data[_TYPE_AT]


def events_around(
    endpoint: Endpoint, uuid: str, place: BinlogPosition, end: BinlogPosition, count: int
) -> list[RawEvent]:
    """Return `count` events around a position, half of them before it where there are so many."""
    before: deque[RawEvent] = deque(maxlen=count)
    behind: list[RawEvent] = []
    start = MySqlPosition(uuid, place.at(FIRST_EVENT))
    for event in logged_events(endpoint, start, end):
        if event.start < place:
            _require_boundary(event, place)
            before.append(event)
        else:
            behind.append(event)
        if len(behind) == count - count // 2:
            break
    return [*list(before)[len(behind) - count :], *behind] if len(behind) < count else behind


def logged_events(
    endpoint: Endpoint, start: MySqlPosition, end: BinlogPosition
) -> Iterator[RawEvent]:
    """Yield the events of the log from a start to `end`, without those made up for the dump."""
    walk = _Walk(start.binlog or end.at(FIRST_EVENT))
    for chunk in dumped(endpoint, start, lambda: walk.at >= end):
        view = memoryview(chunk.buffer)
        for first, last in zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True):
            event = walk.take(bytes(view[first:last]))
            if event is not None:
                yield event
            if walk.at >= end:
                return


def dumped(
    endpoint: Endpoint, start: MySqlPosition, is_over: Callable[[], bool]
) -> Iterator[EventChunk]:
    """Yield the log's events from a position on, in chunks, until `is_over`."""
    with closing(LogTransport(endpoint, server_id=NO_SERVER_ID, start=start)) as transport:
        while not is_over():
            chunk = transport.receive(_PATIENCE_S)
            if chunk is None:
                raise SourceUnreachableError(
                    f"the server sent nothing of its log for {_PATIENCE_S:g} s",
                    str(endpoint),
                    "none: the log was only looked at",
                    "try again",
                )
            yield chunk


class _Walk:
    """Follows the events of a dump, and gives each its offset in the log file."""

    def __init__(self, at: BinlogPosition) -> None:
        self.at = at
        self._format = self._gtid = b""
        self._tables: dict[bytes, bytes] = {}

    def take(self, data: bytes) -> RawEvent | None:
        """Return the event with its position and context; None if it was made up for the dump."""
        kind = data[_TYPE_AT]
        is_made_up = bool(data[_FLAGS_AT] & ARTIFICIAL_FLAG)
        if kind == EventType.FORMAT_DESCRIPTION:
            self._format = data
        if kind == EventType.ROTATE and is_made_up:
            self._enter(rotation_target(data))
        told = int.from_bytes(data[_LOG_POS_AT : _LOG_POS_AT + 4], "little")
        if is_made_up or not told or kind in HEARTBEATS:
            return None
        if kind in GTIDS:
            self._gtid = data
        elif kind in OUTSIDE_TRANSACTIONS:
            self._gtid = b""
        number = data[HEADER_BYTES : HEADER_BYTES + 6]
        if kind == EventType.TABLE_MAP:
            self._tables[number] = data
        # the header holds the end modulo 2^32
        end = self.at.at(self.at.offset + (told - self.at.offset) % (1 << 32))
        start, table = end.at(end.offset - len(data)), self._tables.get(number, b"")
        event = RawEvent(start, end, data, self._format, self._gtid, table)
        self.at = end
        if kind == EventType.ROTATE:
            self._enter(rotation_target(data))
        return event

    def _enter(self, target: BinlogPosition) -> None:
        """Go on in the log file that a rotation names.

        Table maps of the former file are dropped.
        """
        if target.file_number != self.at.file_number:
            self._tables = {}
        self.at = target


def _require_boundary(event: RawEvent, place: BinlogPosition) -> None:
    """Refuse a position that is inside an event."""
    if event.end > place and event.end.file_number == place.file_number:
        raise RefusedError(
            f"{place} lies inside an event, which goes from {event.start.offset} to "
            f"{event.end.offset}",
            "--at",
            "none: the log was only looked at",
            f"look at {event.start} or {event.end}",
        )
