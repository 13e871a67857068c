"""Where in a server's log a stream ends that is to end at a position, a GTID set or a time.

The log is looked through by the heads of its events alone: no row is decoded, and what a compressed
transaction holds is not unpacked. The dump is one of the name that `mysqlbinlog` takes, server id
0: it registers nowhere, disturbs no reader, and ends where the log ends.

Transactions are taken as they stand in the log. A stop is the boundary before the first of them
that is not wanted any more, so whoever looks again finds the same place. A place that the log does
not have yet is none; one that the sink is beyond, or that is no boundary, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    LogPurgedError,
    RefusedError,
)
from airflow_cdc_provider.core.stream_stops import StopKind, StreamStop
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    ARTIFICIAL_FLAG,
    CHECKSUM_BYTES,
    GTIDS,
    HEARTBEATS,
    OUTSIDE_TRANSACTIONS,
    EventType,
)
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader, Frames
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import (
    GtidColumns,
    GtidOrigin,
    GtidProgress,
    read_gtids,
)
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import whole_offsets
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    GtidSet,
    GtidSource,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import (
    FIRST_EVENT,
    BinlogPosition,
    Gtids,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.source.event_framing import rotation_target
from airflow_cdc_provider.systems.mysql.source.log_window import dumped

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities

Place = TypeVar("Place")

_FILE_AND_OFFSET = "FILE:OFFSET, such as binlog.000012:4711"
_SECOND_US = 1_000_000
_TYPE_AT, _SIZE_AT, _LOG_POS_AT, _FLAGS_AT = 4, 9, 13, 17


@dataclass(frozen=True, slots=True)
class Heads:
    """Consecutive events of one log file: the boundaries there, and the transactions they open."""

    file: BinlogPosition
    """Any place in the file."""
    boundaries: IntArray
    """Offsets between transactions, growing."""
    begins: IntArray
    """The offset at which each transaction begins."""
    gtids: GtidColumns
    """Of each transaction; `committed_us` is its commit time on both families."""


def stop_place(
    endpoint: Endpoint,
    stop: StreamStop,
    reached: MySqlPosition,
    end: MySqlPosition,
    *,
    is_start: bool = False,
) -> MySqlPosition | None:
    """Return where a stream is to end, None if the log up to `end` does not have the place yet.

    The sink has rows up to `reached`: an earlier place is a `RefusedError`, and so is one that is
    no boundary between transactions. `is_start`: the stream begins there without a snapshot.
    """
    here, last = reached.binlog, end.binlog
    if here is None or last is None or reached.server_uuid != end.server_uuid:
        raise RefusedError(
            f"the log of {end.server_uuid} answers, and the sink has rows of {reached}",
            where=f"stream.stop: {stop}",
            risk=NOTHING_STARTED,
            remedy="write stop: never until a run has caught up with this server's log, then the "
            "place where the stream is to end in this one",
        )
    if stop.kind is StopKind.POSITION:
        return _at_place(endpoint, stop, reached.server_uuid, here, last)
    if stop.kind is StopKind.GTID:
        return _at_gtids(endpoint, stop, reached, here, last)
    return _at_time(endpoint, stop, reached, last, is_start=is_start)


def require_stop(stop: StreamStop, capabilities: Capabilities) -> None:
    """Refuse a stop that no log of this server could have; the log is not looked at."""
    if stop.kind is StopKind.POSITION:
        _parsed(stop, BinlogPosition.parse, _FILE_AND_OFFSET)
    elif stop.kind is StopKind.GTID:
        if not capabilities.has_gtids:
            raise _without_gtids(stop)
        _wanted(stop, MariaDbGtidPosition() if capabilities.is_mariadb else GtidSet())


# --- a position -------------------------------------------------------------------------------


def _at_place(
    endpoint: Endpoint, stop: StreamStop, uuid: str, here: BinlogPosition, last: BinlogPosition
) -> MySqlPosition | None:
    """Return the stop at a file and offset."""
    place = _parsed(stop, BinlogPosition.parse, _FILE_AND_OFFSET)
    if place.base != last.base:
        raise _refused(
            stop, f"the log's files are named {last.base}, not {place.base}", "write FILE:OFFSET"
        )
    if place < here:
        raise _passed(stop, f"they are of {here} or later")
    if place > last:
        return None
    if place in (here, last):
        return MySqlPosition(uuid, place)
    before = here
    for heads in heads_of(endpoint, MySqlPosition(uuid, here), last):
        for offset in heads.boundaries.tolist():
            found = heads.file.at(offset)
            if found == place:
                return MySqlPosition(uuid, place)
            if found > place:
                raise _no_boundary(stop, before, found)
            before = max(before, found)
    raise _no_boundary(stop, before, last)


def _no_boundary(stop: StreamStop, before: BinlogPosition, behind: BinlogPosition) -> RefusedError:
    """Return the error for a position within a transaction."""
    return _refused(
        stop,
        f"{stop.value} is within a transaction, or within an event, from {before} to {behind}",
        f"write {before} to leave that transaction out, or {behind} to have it",
    )


# --- a GTID set -------------------------------------------------------------------------------


def _at_gtids(
    endpoint: Endpoint,
    stop: StreamStop,
    reached: MySqlPosition,
    here: BinlogPosition,
    last: BinlogPosition,
) -> MySqlPosition | None:
    """Return where the sink has the transactions of a GTID set and no other.

    The log is looked through from the beginning of a file on: a position's GTIDs may lack what was
    logged just before it.
    """
    if reached.gtids is None:
        raise _without_gtids(stop)
    wanted = _wanted(stop, reached.gtids)
    has = GtidProgress(reached.gtids)
    start = MySqlPosition(reached.server_uuid, here.at(FIRST_EVENT))
    for heads in heads_of(endpoint, start, last):
        first = 0
        if heads.file.file_number == here.file_number:
            first = int(np.searchsorted(heads.begins, here.offset))
        has.add(heads.gtids, first)
        if first == len(heads.begins):
            continue
        left = _left(stop, wanted, _current(has))
        ours = _part(heads.gtids, first)
        inside, counts = marks_of(ours, wanted)
        complete = np.searchsorted(np.cumsum(counts), left)  # transactions before the last of all
        taken = 0 if not left else int(complete) + 1
        outside = np.flatnonzero(~inside[:taken])
        if len(outside):
            has.add(ours, int(outside[0]) + 1)
            raise _left_out(stop, _current(has), wanted)
        if taken < len(ours):
            place = heads.file.at(int(heads.begins[first + taken]))
            return MySqlPosition(reached.server_uuid, place, wanted)
        has.add(ours, len(ours))
    is_complete = not _left(stop, wanted, _current(has))
    return MySqlPosition(reached.server_uuid, last, wanted) if is_complete else None


def _wanted(stop: StreamStop, has: Gtids) -> Gtids:
    """Parse the GTID set of a stop as one of the server's family."""
    if isinstance(has, GtidSet):
        return _parsed(stop, GtidSet.parse, "a set as in SELECT @@global.gtid_executed")
    return _parsed(stop, MariaDbGtidPosition.parse, "a position as in SELECT @@gtid_binlog_pos")


def _current(has: GtidProgress) -> Gtids:
    """Return the GTIDs that were met up to a place."""
    found = has.current()
    return GtidSet() if found is None else found


def _left(stop: StreamStop, wanted: Gtids, has: Gtids) -> int:
    """Return how many transactions of a set are still to come: of MariaDB, one for each domain.

    What the sink has already must be in the set.
    """
    if isinstance(wanted, GtidSet) and isinstance(has, GtidSet):
        if not wanted.covers(has):
            raise _left_out(stop, has, wanted)
        return len(wanted.subtract(has))
    if isinstance(wanted, MariaDbGtidPosition) and isinstance(has, MariaDbGtidPosition):
        if not wanted.covers(has):
            raise _left_out(stop, has, wanted)
        return sum(gtid not in has for gtid in wanted)
    raise _refused(stop, f"{wanted} and {has} are not of one family", "write a position")


def marks_of(gtids: GtidColumns, wanted: Gtids) -> tuple[BoolArray, BoolArray]:
    """Tell of each transaction whether it is in a set, and whether it counts as one to come."""
    inside, counts = np.zeros(len(gtids), np.bool_), np.zeros(len(gtids), np.bool_)
    for place, origin in enumerate(gtids.origins):
        of = gtids.origin == place
        numbers = gtids.number[of]
        if isinstance(wanted, GtidSet) and isinstance(origin, GtidSource):
            spans = np.array(wanted.intervals.get(origin, ()), np.int64).ravel()
            # an odd place in [start0, end0, start1, ...] is inside an interval
            inside[of] = counts[of] = np.searchsorted(spans, numbers, side="right") % 2 == 1
        elif isinstance(wanted, MariaDbGtidPosition) and isinstance(origin, tuple):
            last = wanted.last.get(origin[0])
            if last is not None:
                counts[of] = (numbers == last.sequence) & (origin[1] == last.server)
                inside[of] = (numbers < last.sequence) | counts[of]
    return inside, counts


def _part(gtids: GtidColumns, first: int, last: int | None = None) -> GtidColumns:
    """Return the GTIDs of some consecutive transactions."""
    cut = slice(first, last)
    return GtidColumns(gtids.origins, gtids.origin[cut], gtids.number[cut], gtids.committed_us[cut])


def _left_out(stop: StreamStop, has: Gtids, wanted: Gtids) -> RefusedError:
    """Return the error for a set without a transaction that is before its last one in the log."""
    more, full = str(has), str(has)
    if isinstance(has, GtidSet) and isinstance(wanted, GtidSet):
        more, full = str(has.subtract(wanted)), str(has.union(wanted))
    return _refused(
        stop,
        f"the set leaves out what the sink has, or has to take before the rest of it: {more}",
        f"write the whole set, such as {full}; it must not be one that the sink is beyond",
    )


# --- a time -----------------------------------------------------------------------------------


def _at_time(
    endpoint: Endpoint,
    stop: StreamStop,
    reached: MySqlPosition,
    last: BinlogPosition,
    *,
    is_start: bool,
) -> MySqlPosition | None:
    """Return the place before the first transaction that was committed later.

    The log is looked through from the beginning of a file on: what the sink has may be later.
    """
    uuid, here = reached.server_uuid, reached.binlog or last
    begin = here.at(FIRST_EVENT)
    place, is_known = _first_later(endpoint, stop, MySqlPosition(uuid, begin), last, here)
    while place is not None and place >= here and not is_known and begin.file_number > 1:
        begin = BinlogPosition(begin.file_number - 1, FIRST_EVENT, here.base)
        try:
            found = _first_later(endpoint, stop, MySqlPosition(uuid, begin), here, here)
        except LogPurgedError:
            if is_start:
                break
            raise _refused(
                stop,
                f"the log before {here} is gone, so whether the sink is beyond the time is unknown",
                "write a position or a GTID set",
            ) from None
        place, is_known = found[0] or place, found[1]
    if place is not None and place < here:
        raise _passed(stop, f"the transaction at {place} is later, and they have it")
    return None if place is None else MySqlPosition(uuid, place)


def _first_later(
    endpoint: Endpoint,
    stop: StreamStop,
    start: MySqlPosition,
    end: BinlogPosition,
    here: BinlogPosition,
) -> tuple[BinlogPosition | None, bool]:
    """Return where the first transaction begins that was committed later, None if none was.

    And whether the log from the start on has a transaction before `here`, which the sink has.
    """
    is_known = False
    for heads in heads_of(endpoint, start, end):
        is_known = is_known or (
            len(heads.begins) > 0 and heads.file.at(int(heads.begins[0])) < here
        )
        later = np.flatnonzero(heads.gtids.committed_us > stop.time_us)
        if len(later):
            return heads.file.at(int(heads.begins[int(later[0])])), is_known
    return None, is_known


# --- the heads of the log ---------------------------------------------------------------------


def heads_of(endpoint: Endpoint, start: MySqlPosition, end: BinlogPosition) -> Iterator[Heads]:
    """Yield the transactions and boundaries of the log from a position in it up to another."""
    walk = _Walk(start.binlog or end.at(FIRST_EVENT))
    for chunk in dumped(endpoint, start, lambda: walk.at >= end):
        for heads in walk.take(chunk):
            if heads.file.file_number > end.file_number:
                return  # a chunk may reach into the next files
            yield _up_to(heads, end)


class _Walk:
    """Follows the events of a dump, and gives each its offset in the log file."""

    def __init__(self, at: BinlogPosition) -> None:
        self.at = at
        self._formats = FrameReader()

    def take(self, chunk: EventChunk) -> Iterator[Heads]:
        """Yield the heads of a chunk, file by file."""
        data = ByteViews(chunk.buffer)
        types = data.u8[chunk.starts + _TYPE_AT]
        rotations = np.flatnonzero(types == EventType.ROTATE).tolist()
        first = 0
        for stop in [*(place + 1 for place in rotations), len(chunk.starts)]:
            if stop == first:
                continue
            yield self._of_file(data, chunk.starts[first:stop], chunk.ends[first:stop])
            if types[stop - 1] == EventType.ROTATE:
                rotation = bytes(chunk.buffer[chunk.starts[stop - 1] : chunk.ends[stop - 1]])
                yield from self._enter(rotation_target(rotation))
            first = stop

    def _enter(self, target: BinlogPosition) -> Iterator[Heads]:
        """Go on in the file that a rotation names, but not back within a file.

        The end of the one before is a boundary, also where a killed server has not said so.
        """
        if target.file_number != self.at.file_number:
            none = np.zeros(0, np.int64)
            gtids = GtidColumns(list[GtidOrigin](), none, none, none)
            yield Heads(self.at, np.array([self.at.offset], np.int64), none, gtids)
            self.at = target

    def _read_format(self, event: bytes) -> None:
        """Read from a format description whether the file's events have checksums."""
        one = EventChunk(event, np.zeros(1, np.int64), np.array([len(event)], np.int64))
        for _ in self._formats.read(one):
            pass

    def _of_file(self, data: ByteViews, starts: IntArray, ends: IntArray) -> Heads:
        """Return the heads of consecutive events of one file, without those made up for a dump."""
        types = data.u8[starts + _TYPE_AT]
        told = data.little(starts + _LOG_POS_AT, 4)
        made_up = (data.u8[starts + _FLAGS_AT] & ARTIFICIAL_FLAG) != 0
        real = ~made_up & (told > 0) & ~np.isin(types, HEARTBEATS)
        for place in np.flatnonzero(types == EventType.FORMAT_DESCRIPTION).tolist():
            self._read_format(data.text_at(int(starts[place]), int(ends[place])))
        starts, ends, types, told = starts[real], ends[real], types[real], told[real]
        log_ends = whole_offsets(told, self.at.offset)
        begins = log_ends - data.little(starts + _SIZE_AT, 4)
        # the description of a file's format is sent first, wherever the dump begins
        behind = log_ends > self.at.offset
        opens = np.flatnonzero(np.isin(types, GTIDS) & behind)
        outside = np.isin(types, OUTSIDE_TRANSACTIONS) & behind
        places = np.concatenate([begins[opens], begins[outside], log_ends[outside]])
        ends = ends - (CHECKSUM_BYTES if self._formats.checksums else 0)
        gtids = _gtids(data, starts, ends, types, opens)
        heads = Heads(self.at, np.unique(places), begins[opens], gtids)
        if behind.any():
            self.at = self.at.at(int(log_ends[behind][-1]))
        return heads


def _up_to(heads: Heads, end: BinlogPosition) -> Heads:
    """Return the heads that are before an end of the log."""
    if heads.file.file_number != end.file_number:
        return heads
    count = int(np.searchsorted(heads.begins, end.offset))
    boundaries = heads.boundaries[heads.boundaries <= end.offset]
    return Heads(heads.file, boundaries, heads.begins[:count], _part(heads.gtids, 0, count))


def _gtids(
    data: ByteViews, starts: IntArray, ends: IntArray, types: ByteArray, opens: IntArray
) -> GtidColumns:
    """Return the GTIDs of the transactions that some events open, with their commit times."""
    if not len(opens):
        none = np.zeros(0, np.int64)
        return GtidColumns(list[GtidOrigin](), none, none, none)
    frames = Frames(data, starts, ends, types, ends, ends - starts, ends - starts)
    gtids = read_gtids(frames, opens)
    seconds = data.little(starts[opens], 4) * _SECOND_US  # MariaDB has no other time
    gtids.committed_us = np.where(gtids.committed_us > 0, gtids.committed_us, seconds)
    return gtids


def _parsed(stop: StreamStop, parse: Callable[[str], Place], wanted: str) -> Place:
    """Parse the value of a stop; a `RefusedError` says how it is written."""
    try:
        return parse(stop.value)
    except ValueError as error:
        what = f"{stop.value!r} is no {stop.kind.value} of this source: {error}"
        raise _refused(stop, what, f"write {wanted}") from None


def _refused(stop: StreamStop, what: str, fix: str) -> RefusedError:
    """Return the error for a stop at which no stream of this log can end."""
    return RefusedError(what, where=f"stream.stop: {stop}", risk=NOTHING_STARTED, remedy=fix)


def _without_gtids(stop: StreamStop) -> RefusedError:
    """Return the error for a GTID set of a source that has none."""
    return _refused(stop, "the source logs without GTIDs", "write a position or a timestamp")


def _passed(stop: StreamStop, why: str) -> RefusedError:
    """Return the error for a stop that is before what the sink has."""
    return _refused(
        stop,
        f"the rows at the sink are, or would be, beyond the stop: {why}",
        "write a later one; to have the tables as of that place, restore the source as of then "
        "and copy that",
    )
