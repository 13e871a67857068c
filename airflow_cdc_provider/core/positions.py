"""Places in the log: file and offset on one server, and the transactions executed up to there.

File and offset are a total order on one server only. GTIDs are a partial order over all servers
of one lineage. A `LogPosition` carries what is known of both and answers questions; it has no
`<`, because two positions may share no common ground, and then the answer is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from airflow_cdc_provider.core.errors import RESTART, IncomparablePositionsError
from airflow_cdc_provider.core.gtid import Gtid, GtidSet, MariaDbGtid, MariaDbGtidPosition

Gtids = GtidSet | MariaDbGtidPosition
AnyGtid = Gtid | MariaDbGtid

_FILE = re.compile(r"(?P<base>.+)\.(?P<number>[0-9]{6,})")


@dataclass(frozen=True, slots=True, order=True)
class BinlogPosition:
    """A place between two events in one server's binlog; `offset` is in bytes."""

    file_number: int
    offset: int
    base: str = field(default="binlog", compare=False)

    @classmethod
    def of(cls, file: str, offset: int) -> BinlogPosition:
        """Build from the server's file name, such as `binlog.000009`."""
        match = _FILE.fullmatch(file)
        if match is None:
            raise ValueError(f"expected a log file name like 'binlog.000001', got {file!r}")
        return cls(int(match["number"]), offset, match["base"])

    @classmethod
    def parse(cls, text: str) -> BinlogPosition:
        """Read `binlog.000009:154`."""
        file, colon, offset = text.rpartition(":")
        if not colon or not offset.isdigit():
            raise ValueError(f"expected 'file:offset', got {text!r}")
        return cls.of(file, int(offset))

    @property
    def file(self) -> str:
        return f"{self.base}.{self.file_number:06d}"

    def at(self, offset: int) -> BinlogPosition:
        """Return another place in the same file."""
        return BinlogPosition(self.file_number, offset, self.base)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True)
class TransactionPoint:
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


@dataclass(frozen=True, slots=True)
class Imprint:
    """What the log held shortly before a position: by it the same log is known again.

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


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Everything up to a boundary between transactions, by file and offset, by GTIDs, or both.

    A low watermark on a MySQL server with GTIDs has no `binlog`; a server without GTIDs gives no
    `gtids`. At least one is present. Two positions at one place are equal, whatever is known of
    the log before them.
    """

    server_uuid: str
    binlog: BinlogPosition | None = None
    gtids: Gtids | None = None
    imprint: Imprint | None = field(default=None, compare=False)
    """Of the server's log, to be found again where reading goes on from here."""

    def __post_init__(self) -> None:
        if self.binlog is None and self.gtids is None:
            raise ValueError("a log position needs a file and offset, GTIDs, or both")

    def contains(self, point: TransactionPoint) -> bool:
        """Tell whether `point` lies at or before this position.

        GTIDs decide where both sides have them, else file and offset of the same server.
        """
        if isinstance(self.gtids, GtidSet) and isinstance(point.gtid, Gtid):
            return point.gtid in self.gtids
        if self.binlog is not None and point.server_uuid == self.server_uuid:
            return point.end <= self.binlog
        if isinstance(self.gtids, MariaDbGtidPosition) and isinstance(point.gtid, MariaDbGtid):
            return point.gtid in self.gtids
        raise _incomparable(str(self), f"transaction {point.gtid} at {point.end}")

    def covers(self, other: LogPosition) -> bool:
        """Tell whether everything up to `other` is also up to here."""
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
        """Tell whether nothing is left to read up to `end`; False where that cannot be told.

        Only places in one server's log are compared: an end that was asked of another server may
        never come in this one's.
        """
        if self.server_uuid != end.server_uuid or self.binlog is None or end.binlog is None:
            return False
        return self.binlog >= end.binlog

    def meet(self, other: LogPosition) -> LogPosition:
        """Return a position that both cover, as late as can be told."""
        same_server = self.server_uuid == other.server_uuid
        binlog = None
        if same_server and self.binlog is not None and other.binlog is not None:
            binlog = min(self.binlog, other.binlog)
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
        return LogPosition(self.server_uuid if same_server else "", binlog, gtids, imprint)

    def join(self, other: LogPosition) -> LogPosition:
        """Return the later of two positions; one of them must cover the other."""
        if self.covers(other):
            return self
        if other.covers(self):
            return other
        raise _incomparable(str(self), str(other))

    def after(self, point: TransactionPoint) -> LogPosition:
        """Return the position just behind `point`, which follows this one in the log."""
        gtids = self.gtids
        if isinstance(gtids, GtidSet) and isinstance(point.gtid, Gtid):  # noqa: SIM114 - as above
            gtids = gtids.add(point.gtid)
        elif isinstance(gtids, MariaDbGtidPosition) and isinstance(point.gtid, MariaDbGtid):
            gtids = gtids.add(point.gtid)
        return LogPosition(point.server_uuid, point.end, gtids)

    def __str__(self) -> str:
        parts = [str(part) for part in (self.binlog, self.gtids) if part is not None]
        return f"{' '.join(part for part in parts if part)} on {self.server_uuid or 'any server'}"


def _incomparable(left: str, right: str) -> IncomparablePositionsError:
    return IncomparablePositionsError(
        f"positions cannot be compared: {left} and {right}",
        risk="none yet: nothing was skipped or applied on a guess",
        remedy=f"if the source failed over and has no GTIDs, {RESTART}",
    )
