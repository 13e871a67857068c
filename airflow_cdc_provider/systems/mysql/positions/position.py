"""Places in the log: file and offset on one server, and the transactions executed up to there.

File and offset are a total order on one server only. GTIDs are a partial order over all servers
of one lineage. A `MySqlPosition` carries what is known of both and answers questions; it has no
`<`, because two positions may share no common ground, and then the answer is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, ClassVar

from airflow_cdc_provider.core.errors import RESET, IncomparablePositionsError
from airflow_cdc_provider.core.positions import Fact, LogPosition, TransactionPoint
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    Gtid,
    GtidSet,
    MariaDbGtid,
    MariaDbGtidPosition,
)

Gtids = GtidSet | MariaDbGtidPosition
FIRST_EVENT = 4
"""Where the first event of a log file begins."""
AnyGtid = Gtid | MariaDbGtid

_FILE = re.compile(r"(?P<base>.+)\.(?P<number>[0-9]{6,})")


@lru_cache(maxsize=256)
def _file_parts(file: str) -> tuple[int, str]:
    """Return the number of a log file, and its name without the number."""
    match = _FILE.fullmatch(file)
    if match is None:
        raise ValueError(f"expected a log file name like 'binlog.000001', got {file!r}")
    return int(match["number"]), match["base"]


@dataclass(frozen=True, slots=True, order=True)
class BinlogPosition:
    """A place between two events in one server's binlog; `offset` is in bytes."""

    file_number: int
    offset: int
    base: str = field(default="binlog", compare=False)

    @classmethod
    def of(cls, file: str, offset: int) -> BinlogPosition:
        """Return the position of an offset in a log file named like `binlog.000009`."""
        number, base = _file_parts(file)
        return cls(number, offset, base)

    @classmethod
    def parse(cls, text: str) -> BinlogPosition:
        """Parse a position like `binlog.000009:154`."""
        file, colon, offset = text.rpartition(":")
        if not colon or not offset.isdigit():
            raise ValueError(f"expected 'file:offset', got {text!r}")
        return cls.of(file, int(offset))

    @property
    def file(self) -> str:
        """Return the log file's name, such as `binlog.000009`."""
        return f"{self.base}.{self.file_number:06d}"

    def at(self, offset: int) -> BinlogPosition:
        """Return the position of another offset in the same file."""
        return BinlogPosition(self.file_number, offset, self.base)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True)
class MySqlPoint:
    """One source transaction's place in the log it was read from."""

    server_uuid: str
    """The server whose log was read (MariaDB: `server_id-<n>@<hostname>`)."""
    gtid: AnyGtid | None
    start: BinlogPosition
    """Where its first event begins."""
    end: BinlogPosition
    """Where its last event ends."""
    committed_us: int
    """The original commit's time, microseconds since the epoch; second resolution on MariaDB."""

    @property
    def name(self) -> str:
        """Return the transaction's GTID, or else its file and offset, as text."""
        return str(self.gtid or f"file={self.start.file},pos={self.start.offset}")

    @property
    def sort_text(self) -> str:
        """Return the transaction's place in the log as text that sorts."""
        return f"{self.start.file_number:06d}-{self.start.offset:010d}"

    @property
    def where(self) -> str:
        """Return the transaction's place in the log and its GTID, for an error message."""
        named = f"transaction {self.gtid}" if self.gtid else "a transaction without GTID"
        return f"log at {self.start}, {named}"

    def is_called(self, text: str) -> bool:
        """Tell whether a text is the transaction's name or its place in the log."""
        return text.strip() in {self.name, str(self.start)}


@dataclass(frozen=True, slots=True)
class Imprint:
    """A digest of the log shortly before a position, by which the same log is recognised.

    File names, offsets and transaction numbers begin anew when a log is reset, and go on from
    where they were when a server is restored from a copy. What stood there does not come again.
    """

    end: BinlogPosition
    """Where the last event that was read ends; at or before the position."""
    start: int
    """The offset in that file from which on events are in the digest; `end`'s if none is."""
    created: int
    """When the file was begun, seconds since the epoch: it is in the file's first event."""
    digest: str = ""
    """Of the events from `start` to `end`, in hexadecimal digits; empty if only the file's
    beginning is known."""

    def to_json(self) -> list[Any]:
        """Return the imprint as JSON."""
        return [str(self.end), self.start, self.created, self.digest]

    @classmethod
    def from_json(cls, form: Any) -> Imprint:
        """Read an imprint from JSON."""
        end, start, created, digest = form
        return cls(BinlogPosition.parse(end), start, created, digest)


@dataclass(frozen=True, slots=True)
class MySqlPosition:
    """A position in the log: a boundary between transactions, by file and offset, GTIDs, or both.

    A low watermark on a MySQL server with GTIDs has no `binlog`; a server without GTIDs gives no
    `gtids`. At least one is present. Two positions at one place are equal, whatever is known of
    the log before them.
    """

    system: ClassVar[str] = "mysql"
    server_uuid: str
    binlog: BinlogPosition | None = None
    gtids: Gtids | None = None
    imprint: Imprint | None = field(default=None, compare=False)
    """Of the server's log, to be found again where reading goes on from here."""

    def __post_init__(self) -> None:
        if self.binlog is None and self.gtids is None:
            raise ValueError("a log position needs a file and offset, GTIDs, or both")

    @property
    def server(self) -> str:
        """Return the uuid of the server whose log the position is in."""
        return self.server_uuid

    @property
    def short(self) -> str:
        """Return the file and offset as text, or the whole position if it has none."""
        return str(self.binlog or self)

    @property
    def exact(self) -> tuple[str, ...]:
        """Return the position and its imprint as texts, which differ if anything does."""
        return str(self), str(self.imprint)

    def contains(self, point: TransactionPoint) -> bool:
        """Tell whether a transaction is at or before this position.

        GTIDs decide where both sides have them, else file and offset of the same server.
        """
        point = own_point(point)
        if isinstance(self.gtids, GtidSet) and isinstance(point.gtid, Gtid):
            return point.gtid in self.gtids
        if self.binlog is not None and point.server_uuid == self.server_uuid:
            return point.end <= self.binlog
        if isinstance(self.gtids, MariaDbGtidPosition) and isinstance(point.gtid, MariaDbGtid):
            return point.gtid in self.gtids
        raise _incomparable(str(self), f"transaction {point.name} at {point.end}")

    def covers(self, other: LogPosition) -> bool:
        """Tell whether everything up to `other` is also up to here."""
        other = own(other)
        same_server = self.server_uuid == other.server_uuid
        if same_server and self.binlog is not None and other.binlog is not None:
            return self.binlog >= other.binlog
        if isinstance(self.gtids, GtidSet) and isinstance(other.gtids, GtidSet):
            return self.gtids.covers(other.gtids)
        mine, theirs = self.gtids, other.gtids
        if isinstance(mine, MariaDbGtidPosition) and isinstance(theirs, MariaDbGtidPosition):
            return mine.covers(theirs)
        raise _incomparable(str(self), str(other))

    def reaches(self, end: LogPosition) -> bool:
        """Tell whether this position is at or past `end` in one log; False where that is unknown.

        Only places in one server's log are compared: an end that was asked of another server may
        never come in this one's.
        """
        places = self._places(end)
        return places is not None and places[0] >= places[1]

    def placed_by(self, passed: Iterable[LogPosition]) -> MySqlPosition:
        """Return this position with the latest file and offset, of `passed`, that its GTIDs cover.

        A position that has both has the names of all that lies before its place.
        """
        if self.binlog is not None or not isinstance(self.gtids, GtidSet):
            return self
        ours = [own(each) for each in passed]
        covered = [
            (each.binlog, each.imprint)
            for each in ours
            if each.binlog is not None
            and each.server_uuid == self.server_uuid
            and isinstance(each.gtids, GtidSet)
            and self.gtids.covers(each.gtids)
        ]
        if not covered:
            return self
        binlog, imprint = max(covered, key=lambda each: each[0])
        return replace(self, binlog=binlog, imprint=imprint)

    def may_be_purged(self, end: LogPosition) -> bool:
        """Tell whether `end` is in another log file, or that is unknown.

        This file may be purged then.
        """
        places = self._places(end)
        return places is None or places[0].file_number != places[1].file_number

    def _places(self, other: LogPosition) -> tuple[BinlogPosition, BinlogPosition] | None:
        """Return both binlog positions if they are in one server's log, else None."""
        if not isinstance(other, MySqlPosition) or self.server_uuid != other.server_uuid:
            return None
        return None if self.binlog is None or other.binlog is None else (self.binlog, other.binlog)

    def meet(self, other: LogPosition) -> MySqlPosition:
        """Return the latest position that is known to be covered by both."""
        other = own(other)
        places = self._places(other)
        binlog = None if places is None else min(places)
        gtids: Gtids | None = None
        mine, theirs = self.gtids, other.gtids
        if isinstance(mine, GtidSet) and isinstance(theirs, GtidSet):  # noqa: SIM114 - types differ
            gtids = mine.intersection(theirs)
        elif isinstance(mine, MariaDbGtidPosition) and isinstance(theirs, MariaDbGtidPosition):
            gtids = mine.intersection(theirs)
        if binlog is None and gtids is None:
            raise _incomparable(str(self), str(other))
        imprints = [
            position.imprint
            for position in (self, other)
            if binlog is not None and position.binlog == binlog and position.imprint is not None
        ]
        imprint = max(imprints, key=lambda each: bool(each.digest), default=None)
        same_server = self.server_uuid == other.server_uuid
        return MySqlPosition(self.server_uuid if same_server else "", binlog, gtids, imprint)

    def join(self, other: LogPosition) -> LogPosition:
        """Return the later of two positions; one of them must cover the other."""
        if self.covers(other):
            return self
        if other.covers(self):
            return other
        raise _incomparable(str(self), str(other))

    def after(self, point: MySqlPoint) -> MySqlPosition:
        """Return the position just after a transaction that follows this position."""
        gtids = self.gtids
        if isinstance(gtids, GtidSet) and isinstance(point.gtid, Gtid):  # noqa: SIM114 - as above
            gtids = gtids.add(point.gtid)
        elif isinstance(gtids, MariaDbGtidPosition) and isinstance(point.gtid, MariaDbGtid):
            gtids = gtids.add(point.gtid)
        return MySqlPosition(point.server_uuid, point.end, gtids)

    def before(
        self, point: TransactionPoint, passed: Iterable[TransactionPoint], end: LogPosition
    ) -> MySqlPosition:
        """Return the position just before a transaction that `end` contains."""
        point, end = own_point(point), own(end)
        imprint = self.imprint if self.server_uuid == end.server_uuid else None
        if isinstance(end.gtids, GtidSet) and isinstance(point.gtid, Gtid):
            number = point.gtid.number
            itself = GtidSet({point.gtid.source: ((number, number + 1),)})
            gtids = end.gtids.subtract(itself)
            return MySqlPosition(end.server_uuid, point.start, gtids, imprint)
        others = (own_point(each) for each in passed if each != point)
        reached = reduce(MySqlPosition.after, others, self)
        return replace(reached, server_uuid=point.server_uuid, binlog=point.start, imprint=imprint)

    def bare(self) -> MySqlPosition:
        """Return the position without its imprint."""
        return replace(self, imprint=None)

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON; absent parts and the system are left out."""
        form: dict[str, Any] = {"server": self.server_uuid}
        if self.binlog is not None:
            form["binlog"] = str(self.binlog)
        if isinstance(self.gtids, GtidSet):
            form["gtids"] = str(self.gtids)
        elif self.gtids is not None:
            form["mariadb_gtid"] = str(self.gtids)
        if self.imprint is not None:
            form["imprint"] = self.imprint.to_json()
        return form

    @classmethod
    def from_json(cls, form: Any) -> MySqlPosition:
        """Read a position from JSON."""
        gtids: Gtids | None = None
        if "gtids" in form:
            gtids = GtidSet.parse(form["gtids"])
        elif "mariadb_gtid" in form:
            gtids = MariaDbGtidPosition.parse(form["mariadb_gtid"])
        binlog = BinlogPosition.parse(form["binlog"]) if "binlog" in form else None
        imprint = Imprint.from_json(form["imprint"]) if "imprint" in form else None
        return cls(form["server"], binlog, gtids, imprint)

    def facts(self) -> Mapping[str, Fact]:
        """Return the file and offset by Debezium's names, for envelopes of rows read here."""
        if self.binlog is None:
            return {"file": "", "pos": 0}
        return {"file": self.binlog.file, "pos": self.binlog.offset}

    def __str__(self) -> str:
        parts = [str(part) for part in (self.binlog, self.gtids) if part is not None]
        return f"{' '.join(part for part in parts if part)} on {self.server_uuid or 'any server'}"


read_position = MySqlPosition.from_json
"""Reads a stored position of this system."""


def own(position: LogPosition) -> MySqlPosition:
    """Return a position as MySQL's; another system's cannot be compared and is an error."""
    if isinstance(position, MySqlPosition):
        return position
    raise _incomparable("one of MySQL or MariaDB", str(position))


def own_point(point: TransactionPoint) -> MySqlPoint:
    """Return a transaction's point as MySQL's; another system's is an error."""
    if isinstance(point, MySqlPoint):
        return point
    raise _incomparable("one of MySQL or MariaDB", point.where)


def _incomparable(left: str, right: str) -> IncomparablePositionsError:
    """Return the error for positions that cannot be compared."""
    return IncomparablePositionsError(
        f"positions cannot be compared: {left} and {right}",
        risk="none yet: nothing was skipped or applied on a guess",
        remedy=f"if the source failed over and has no GTIDs, {RESET}",
    )
