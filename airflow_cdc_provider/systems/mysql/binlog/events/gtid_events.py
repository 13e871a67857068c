"""Names and commit times of transactions, read from many GTID events at once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.errors import UnknownEventError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader, damaged
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    Gtid,
    GtidSet,
    GtidSource,
    Interval,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import AnyGtid, Gtids

GtidOrigin = GtidSource | tuple[int, int] | None
"""What numbers count within: uuid and tag; domain and server of MariaDB; None for anonymous."""

_STANDALONE, _PREPARED_XA = 1, 64
_NUMBER_AT = HEADER_BYTES + 17
_COMMITTED_AT = HEADER_BYTES + 42
_ORIGINAL_FOLLOWS = 1 << 55
_MOST = 1 << 63
_LEAST_BYTES = {
    EventType.GTID: _COMMITTED_AT + 7,
    EventType.ANONYMOUS_GTID: _COMMITTED_AT + 7,
    EventType.MARIADB_GTID: HEADER_BYTES + 13,
    EventType.GTID_TAGGED: HEADER_BYTES,
}
"""By type: where the last field ends that is read of each event."""


def gtid_of(origin: GtidOrigin, number: int) -> AnyGtid | None:
    """Return the GTID of an origin and a number; None for an anonymous transaction."""
    if origin is None:
        return None
    if isinstance(origin, GtidSource):
        return Gtid(origin, number)
    return MariaDbGtid(origin[0], origin[1], number)


@dataclass(slots=True)
class GtidColumns:
    """The GTIDs and commit times of some transactions, as columns."""

    origins: list[GtidOrigin]
    """The distinct ones."""
    origin: IntArray
    """Index into `origins`, an entry a transaction."""
    number: IntArray
    committed_us: IntArray
    """0 where the event does not say: MariaDB."""

    def __len__(self) -> int:
        return len(self.number)

    def gtid(self, index: int) -> AnyGtid | None:
        """Return the GTID of one transaction, None if it is anonymous."""
        return gtid_of(self.origins[int(self.origin[index])], int(self.number[index]))


@dataclass(frozen=True, slots=True)
class OpenedBy:
    """What the event that opens a transaction says: GTID, commit time, whether it has begun."""

    origin: GtidOrigin
    number: int
    committed_us: int
    """0 where the event does not say: MariaDB."""
    begun: bool = False
    """Statements belong to the transaction from here on: MariaDB has no BEGIN behind it."""


def read_opening(data: bytes, start: int, end: int) -> OpenedBy | None:
    """Read one plain GTID event without a tag; None if it needs the vector steps.

    Not plain is one cut short, a transaction without BEGIN and COMMIT, and one of XA.
    """
    kind = data[start + 4]
    if end - start < _LEAST_BYTES[EventType(kind)]:
        return None
    if kind == EventType.MARIADB_GTID:
        return _few_mariadb(data, start)
    committed = int.from_bytes(data[start + _COMMITTED_AT : start + _COMMITTED_AT + 7], "little")
    if committed & _ORIGINAL_FOLLOWS:
        original = start + _COMMITTED_AT + 7
        committed = int.from_bytes(data[original : original + 7], "little")
    committed &= _ORIGINAL_FOLLOWS - 1
    if kind == EventType.ANONYMOUS_GTID:
        return OpenedBy(None, 0, committed)
    number = int.from_bytes(data[start + _NUMBER_AT : start + _NUMBER_AT + 8], "little")
    source = _source(data[start + HEADER_BYTES + 1 : start + HEADER_BYTES + 17])
    return OpenedBy(source, number, committed) if 0 < number < _MOST else None


def _few_mariadb(data: bytes, start: int) -> OpenedBy | None:
    """Read a MariaDB GTID event; None for XA, and for a statement without BEGIN and COMMIT."""
    body = start + HEADER_BYTES
    number = int.from_bytes(data[body : body + 8], "little")
    if data[body + 12] & (_STANDALONE | _PREPARED_XA) or not 0 < number < _MOST:
        return None
    domain = int.from_bytes(data[body + 8 : body + 12], "little")
    server = int.from_bytes(data[start + 5 : start + 9], "little")
    return OpenedBy((domain, server), number, 0, begun=True)


def few_gtids(opened: Sequence[OpenedBy]) -> GtidColumns:
    """Return the GTIDs of a few opened transactions as columns."""
    origins: dict[GtidOrigin, int] = {}
    places = [origins.setdefault(each.origin, len(origins)) for each in opened]
    return GtidColumns(
        list(origins),
        np.array(places, np.int64),
        np.array([each.number for each in opened], np.int64),
        np.array([each.committed_us for each in opened], np.int64),
    )


def read_gtids(frames: Frames, places: IntArray) -> GtidColumns:
    """Read the GTID events with these indexes as columns."""
    types = distinct(frames.types[places])
    if len(types) == 1:
        _require_length(frames, places, _LEAST_BYTES[EventType(types[0])])
        if types[0] == EventType.GTID:
            return _mysql(frames, frames.starts[places])
        if types[0] == EventType.ANONYMOUS_GTID:
            return _anonymous(frames, frames.starts[places])
        if types[0] == EventType.MARIADB_GTID:
            return _mariadb(frames, frames.starts[places])
        return joined([_tagged(frames, int(place)) for place in places])
    return joined([read_gtids(frames, places[i : i + 1]) for i in range(len(places))])


def _require_length(frames: Frames, places: IntArray, least: int) -> None:
    """Refuse GTID events that are shorter than their fields."""
    shortest = int((frames.ends[places] - frames.starts[places]).min())
    if shortest < least:
        raise damaged(f"a GTID event is {shortest} bytes long, {least} are the least")


def _counted_up(numbers: IntArray) -> IntArray:
    """Return the transactions' numbers; a number below 1 is a damaged event."""
    if len(numbers) and int(numbers.min()) < 1:
        raise damaged(f"a transaction has the number {int(numbers.min())}")
    return numbers


def joined(parts: list[GtidColumns]) -> GtidColumns:
    """Concatenate GTID columns, with each origin listed once."""
    if len(parts) == 1:
        return parts[0]
    origins: dict[GtidOrigin, int] = {}
    indexes = []
    for part in parts:
        places = [origins.setdefault(origin, len(origins)) for origin in part.origins]
        indexes.append(np.array(places, np.int64)[part.origin])
    return GtidColumns(
        list(origins),
        np.concatenate([*indexes, np.zeros(0, np.int64)]),
        np.concatenate([*(part.number for part in parts), np.zeros(0, np.int64)]),
        np.concatenate([*(part.committed_us for part in parts), np.zeros(0, np.int64)]),
    )


def _committed(frames: Frames, starts: IntArray) -> IntArray:
    """Return the commit times at the original server, in microseconds."""
    immediate = frames.data.little(starts + _COMMITTED_AT, 7)
    replicated = (immediate & _ORIGINAL_FOLLOWS) != 0
    if replicated.any():
        original = frames.data.little(starts + np.where(replicated, _COMMITTED_AT + 7, 0), 7)
        return np.where(replicated, original, immediate) & (_ORIGINAL_FOLLOWS - 1)
    return immediate


@lru_cache(maxsize=256)
def _source(uuid_bytes: bytes) -> GtidSource:
    """Return the GTID source of a uuid's bytes."""
    return GtidSource(str(uuid.UUID(bytes=uuid_bytes)))


def _mysql(frames: Frames, starts: IntArray) -> GtidColumns:
    """Read GTID events of MySQL as columns."""
    blocks = frames.data.blocks(starts + HEADER_BYTES + 1, 16)
    number = _counted_up(frames.data.little(starts + _NUMBER_AT, 8))
    committed = _committed(frames, starts)
    if bool((blocks == blocks[0]).all()):
        one = _source(blocks[0].tobytes())
        return GtidColumns([one], np.zeros(len(starts), np.int64), number, committed)
    rows = np.ascontiguousarray(blocks).view("V16").ravel()
    different, inverse = np.unique(rows, return_inverse=True)
    origins: list[GtidOrigin] = [_source(each.tobytes()) for each in different]
    return GtidColumns(origins, inverse.astype(np.int64), number, committed)


def _anonymous(frames: Frames, starts: IntArray) -> GtidColumns:
    """Return columns of anonymous transactions: commit times and no GTIDs."""
    none = np.zeros(len(starts), np.int64)
    return GtidColumns([None], none, none, _committed(frames, starts))


def _mariadb(frames: Frames, starts: IntArray) -> GtidColumns:
    """Read GTID events of MariaDB as columns."""
    data = frames.data
    number = _counted_up(data.little(starts + HEADER_BYTES, 8))
    domain = data.little(starts + HEADER_BYTES + 8, 4)
    server = data.little(starts + 5, 4)
    different, inverse = np.unique(domain << 32 | server, return_inverse=True)
    origins: list[GtidOrigin] = [
        (code >> 32 & 0xFFFFFFFF, code & 0xFFFFFFFF) for code in different.tolist()
    ]
    return GtidColumns(origins, inverse.astype(np.int64), number, np.zeros(len(starts), np.int64))


def is_standalone(frames: Frames, place: int) -> bool:
    """Tell whether a MariaDB GTID is for the one event after it, without BEGIN and COMMIT."""
    return bool(_flags(frames, place) & _STANDALONE)


def is_prepared_xa(frames: Frames, place: int) -> bool:
    """Tell whether a MariaDB GTID opens a transaction of XA that ends with XA PREPARE."""
    return bool(_flags(frames, place) & _PREPARED_XA)


def _flags(frames: Frames, place: int) -> int:
    """Return the flags of a MariaDB GTID event."""
    return int(frames.data.u8[int(frames.starts[place]) + HEADER_BYTES + 12])


_LAST_KNOWN_FIELD = 11


def _tagged(frames: Frames, place: int) -> GtidColumns:
    """Read one tagged GTID event of MySQL 8.3 or later.

    Source: MySQL 9.7 source documentation, "mysql::serialization".
    """
    reader = _FieldReader(frames.body(place))
    reader.unsigned()  # version of the serialization
    reader.unsigned()  # size of the message
    reader.unsigned()  # last field that may not be ignored
    found: dict[int, int] = {}
    uuid_bytes, tag = b"", ""
    while reader.left:
        kind = reader.unsigned()
        if kind == 1:
            uuid_bytes = bytes(reader.byte() for _ in range(16))
        elif kind == 3:
            tag = reader.text(reader.unsigned())
        elif kind in {2, 4, 5}:
            found[kind] = reader.signed()
        elif kind <= _LAST_KNOWN_FIELD:
            found[kind] = reader.unsigned()
        else:
            break  # later servers' fields, which they say may be ignored
    if len(uuid_bytes) != 16 or 2 not in found:
        raise UnknownEventError(
            "a tagged GTID event has no uuid or number",
            risk="the position would be wrong",
            remedy="report it with the server's version",
        )
    try:
        origin = GtidSource(str(uuid.UUID(bytes=uuid_bytes)), tag)
        numbers = np.array([[found[2]], [found.get(7, found.get(6, 0))]], np.int64)
    except (ValueError, OverflowError) as error:
        raise damaged(f"a tagged GTID event is of no transaction: {error}") from None
    return GtidColumns([origin], np.zeros(1, np.int64), _counted_up(numbers[0]), numbers[1])


class _FieldReader(ByteReader):
    """Reads MySQL's variable-length numbers: the first byte tells how many bytes follow."""

    def unsigned(self) -> int:
        """Read an unsigned number."""
        first = self.number(1)
        extra = 0
        while extra < 8 and first >> extra & 1:
            extra += 1
        if extra == 8:
            return self.number(8)
        rest = self.number(extra) if extra else 0
        return (rest << 8 | first) >> (extra + 1)

    def byte(self) -> int:
        """Read a number that must fit into one byte."""
        number = self.unsigned()
        if number > 0xFF:
            raise damaged(f"a byte of a GTID is {number}")
        return number

    def signed(self) -> int:
        """Read a signed number."""
        number = self.unsigned()
        return -(number >> 1) - 1 if number & 1 else number >> 1


@dataclass(slots=True)
class GtidProgress:
    """The GTIDs read so far: a start set, and the transactions added since."""

    gtids: Gtids | None
    _runs: dict[GtidSource, list[Interval]] = field(default_factory=dict)
    _last: dict[int, MariaDbGtid] = field(default_factory=dict)

    def add(self, columns: GtidColumns, count: int) -> None:
        """Add the first `count` transactions of some columns."""
        if self.gtids is None or not count:
            return
        if count == 1 and len(columns.origins) == 1:
            self._add_one(columns.origins[0], int(columns.number[0]))
            return
        for index, origin in enumerate(columns.origins):
            numbers = columns.number[:count][columns.origin[:count] == index]
            if origin is None or not len(numbers):
                continue
            if isinstance(origin, GtidSource):
                self._add_numbers(origin, numbers)
            else:
                self._move(origin, int(numbers[-1]))

    def _add_one(self, origin: GtidOrigin, number: int) -> None:
        """Add one transaction by its origin and number."""
        if isinstance(origin, GtidSource):
            self._add_run(origin, number, number)
        elif origin is not None:
            self._move(origin, number)

    def _add_numbers(self, source: GtidSource, numbers: IntArray) -> None:
        """Add transactions of one source, as runs of consecutive numbers."""
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        firsts = numbers[np.concatenate([np.zeros(1, np.int64), cuts])].tolist()
        lasts = numbers[np.concatenate([cuts - 1, np.array([-1])])].tolist()
        for first, last in zip(firsts, lasts, strict=True):
            self._add_run(source, first, last)

    def _add_run(self, source: GtidSource, first: int, last: int) -> None:
        """Add a run of numbers, joined to the source's last run where it continues that."""
        runs = self._runs.setdefault(source, [])
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], last + 1)
        else:
            runs.append((first, last + 1))

    def _move(self, origin: tuple[int, int], number: int) -> None:
        """Remember a MariaDB transaction as the last of its domain, if its number is larger."""
        known = self._last.get(origin[0])
        if known is None or known.sequence < number:
            self._last[origin[0]] = MariaDbGtid(origin[0], origin[1], number)

    def current(self) -> Gtids | None:
        """Return all GTIDs added so far, in a set or a MariaDB position."""
        if isinstance(self.gtids, GtidSet) and self._runs:
            self.gtids = self.gtids.union(
                GtidSet({source: tuple(runs) for source, runs in self._runs.items()})
            )
            self._runs = {}
        elif isinstance(self.gtids, MariaDbGtidPosition) and self._last:
            for gtid in self._last.values():
                self.gtids = self.gtids.add(gtid)
            self._last = {}
        return self.gtids
