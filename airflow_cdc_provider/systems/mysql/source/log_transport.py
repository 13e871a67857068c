"""One binlog dump: raw events off the socket, as a replica would read them.

The session registers as a replica, unless its server id is 0 as that of `mysqlbinlog`, so that the
server lists it, and announces what a replica
would: that it understands CRC32, how often it wants heartbeats, and to MariaDB that it knows GTID
events (with less, MariaDB garbles them). It names no uuid of its own: then the server knows the
reader by its server id, and of two with the same id the newer one goes on while the older gets a
named error, instead of both reading.

Heartbeats make silence meaningful. A server with nothing to say speaks every second; one that
says nothing for `silence_s` is gone, however alive its TCP connection looks. Only the first bytes
may take longer, because the server may have to search its log files for a GTID.

There is no reconnect in here. Who reads on after an error starts again from a boundary.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

from pymysql.constants import COMMAND

from airflow_cdc_provider.core.errors import (
    UNHARMED,
    CdcError,
    LogPurgedError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import RawConnection, connect, query
from airflow_cdc_provider.systems.mysql.source.event_framing import EventFramer, is_error
from airflow_cdc_provider.systems.mysql.source.gtid_encoding import encode_gtid_set
from airflow_cdc_provider.systems.mysql.source.hung_dumps import end_hung_dumps
from airflow_cdc_provider.systems.mysql.source.log_start import check_start, purged, purged_unread

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

NO_SERVER_ID = 0
"""As that of `mysqlbinlog`: such a dump is nobody's rival, and ends where the log ends."""
_CHUNK_BYTES = (1 << 21) - (1 << 17)  # what a framer holds without growing
_FIRST_BYTES_S = 600.0
_UNHINDERED_S = 1.0  # longer than a dump takes to begin, unless another one stands before it
_MARIADB_CAPABILITY = 4
_SEND_ANNOTATE_ROWS = 2  # MySQL sends what it has unasked


class LogTransport:
    """One open binlog dump, over a connection of its own."""

    def __init__(  # noqa: PLR0913 - each option is one a caller chooses by name
        self,
        endpoint: Endpoint,
        *,
        server_id: int,
        start: MySqlPosition,
        held: Sequence[AppliedThrough] = (),
        heartbeat_s: float = 1.0,
        silence_s: float = 30.0,
        with_queries: bool = False,
    ) -> None:
        """Connect, check the start, and begin the dump.

        `with_queries`: MariaDB sends the statements that it has noted before their rows.
        """
        self._where = str(endpoint)
        self._endpoint = endpoint
        self._silence_s = silence_s
        self._with_queries = with_queries
        self._framer = EventFramer()
        self._heard = False
        self._heard_at = time.monotonic()
        self._lost: SourceUnreachableError | None = None
        self.has_ended = False
        """The server has said that there is no more."""
        connection = connect(endpoint, purpose="log", read_timeout_s=_FIRST_BYTES_S)
        self._raw = RawConnection(connection, where=self._where)
        try:
            self.capabilities = read_capabilities(connection)
            self.start = check_start(connection, self.capabilities, start, held=held)
            _announce(connection, self.capabilities, heartbeat_s)
            if server_id:
                _register(connection, server_id)
            self._dump(connection, server_id)
        except BaseException:
            self._raw.abandon()
            raise
        self._poll = select.poll()
        self._poll.register(self._raw.fileno(), select.POLLIN)
        if server_id and self.capabilities.is_mariadb and not self._arrived(_UNHINDERED_S):
            end_hung_dumps(endpoint)

    @property
    def has_answered(self) -> bool:
        """Tell whether the server has sent anything since the dump began, even an error."""
        return self._heard

    def receive(self, wait_s: float) -> EventChunk | None:
        """Return the events that have come; None if none came within `wait_s`."""
        deadline = time.monotonic() + wait_s
        while True:
            chunk = self._framer.take()
            if chunk is not None:
                return chunk
            if self._framer.last_packet is not None:
                self._raise_end(self._framer.last_packet)
            if self._lost is not None:
                raise self._lost
            if not self._read_some(deadline):
                return None

    def close(self) -> None:
        """Close the connection; the server notices at its next heartbeat."""
        self._raw.abandon()

    def _read_some(self, deadline: float) -> bool:
        """Receive what has come; False if nothing came before the deadline."""
        if not self._arrived(max(deadline - time.monotonic(), 0.0)):
            silence_s = self._silence_s if self._heard else _FIRST_BYTES_S
            if time.monotonic() - self._heard_at > silence_s:
                self.close()
                raise SourceUnreachableError(
                    f"the source was silent for {silence_s:g} s, without a heartbeat",
                    f"log of {self._where}",
                    UNHARMED,
                    remedy="the log is read on from the last boundary over a new connection",
                )
            return False
        more = self._receive()
        while more and self._framer.pending < _CHUNK_BYTES and self._arrived(0.0):
            more = self._receive()
        return True

    def _arrived(self, wait_s: float) -> bool:
        """Tell whether bytes come from the server within a time."""
        return bool(self._poll.poll(wait_s * 1000))

    def _receive(self) -> bool:
        """Receive once; a lost connection is noted, and raised after the events before it."""
        try:
            with self._framer.space() as space:
                count = self._raw.recv_into(space)
        except SourceUnreachableError as lost:
            self._lost = lost
            return False
        self._framer.received(count)
        self._heard, self._heard_at = True, time.monotonic()
        return True

    def _dump(self, connection: ServerConnection, server_id: int) -> None:
        """Request the dump: by file and offset, or by GTIDs in the server family's way."""
        start, gtids = self.start, self.start.position.gtids
        annotated = self._with_queries and self.capabilities.is_mariadb
        flags = _SEND_ANNOTATE_ROWS if annotated else 0
        if start.by_file and start.dump_from is not None:
            place = start.dump_from
            self._raw.start_binlog_dump(
                file=place.file, offset=place.offset, server_id=server_id, flags=flags
            )
        elif isinstance(gtids, GtidSet):
            executed = encode_gtid_set(gtids, version=self.capabilities.version, where=self._where)
            self._raw.start_gtid_dump(executed=executed, server_id=server_id)
        else:
            query(connection, f"SET @slave_connect_state = '{gtids}'")
            self._raw.start_binlog_dump(file="", offset=4, server_id=server_id, flags=flags)

    def _raise_end(self, packet: bytes) -> NoReturn:
        """Raise the error that ended the dump, or say that the server ended the log."""
        self.close()
        if not is_error(packet):
            self.has_ended = True
            raise SourceUnreachableError(
                "the server ended the log, though it was asked to wait for more",
                self._where,
                remedy="the log is read on from the last boundary over a new connection",
            )
        error = self._raw.error_of(packet)
        if isinstance(error, LogPurgedError):
            raise self._with_gap(error)
        raise error

    def _with_gap(self, error: LogPurgedError) -> CdcError:
        """Return the error for a purged log with the exact gap, queried over a new connection."""
        with closing(connect(self._endpoint, purpose="log gap")) as connection:
            try:
                check_start(connection, self.capabilities, self.start.position)
            except LogPurgedError as exact:
                return exact
            oldest = query(connection, "SHOW BINARY LOGS")[0][0]
            gtids = self.start.position.gtids
            missing = None if gtids is None else purged_unread(connection, gtids)
        where = f"{self._where}; we have {self.start.position}, the oldest file is {oldest}"
        return LogPurgedError(
            error.what if missing is None else purged(missing), where, error.risk, error.remedy
        )


def _announce(connection: ServerConnection, capabilities: Capabilities, heartbeat_s: float) -> None:
    """Set the session variables by which a replica announces itself: checksums, heartbeats."""
    period = int(heartbeat_s * 1_000_000_000)
    settings = [
        "@master_binlog_checksum = 'CRC32'",
        "@source_binlog_checksum = 'CRC32'",
        f"@master_heartbeat_period = {period}",
        f"@source_heartbeat_period = {period}",
    ]
    if capabilities.is_mariadb:
        settings += [
            f"@mariadb_slave_capability = {_MARIADB_CAPABILITY}",
            # else a start in a hole, at a transaction it lost, would be moved on to the next one
            "@slave_gtid_strict_mode = 1",
            "@slave_gtid_ignore_duplicates = 0",
        ]
    query(connection, "SET " + ", ".join(settings))


def _register(connection: ServerConnection, server_id: int) -> None:
    """Register this reader as a replica, which SHOW REPLICAS lists."""
    name = b"airflow-cdc"
    request = struct.pack("<IB", server_id, len(name)) + name
    request += bytes(2) + struct.pack("<HII", 0, 0, 0)  # no user, no password, no port
    RawConnection(connection).command(COMMAND.COM_REGISTER_SLAVE, request)
