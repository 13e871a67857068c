"""The one place that touches PyMySQL's private names.

PyMySQL connects and authenticates; rows in quantity must not pass through its cursors (they cost
17 times the CPU of the column decoder). `RawConnection` gives a connection's socket in both
directions, in terms of the client/server protocol:

- reading: `start_query`, then `recv_into` until the caller has seen the result's last packet,
  then `finish_result`;
- writing: `send_statement` from several buffers without joining them, then `read_outcome`, so
  that the next statement can be built while the server works; `prepare` and `send_execution`
  the same for prepared statements; `load_rows` streams LOAD DATA LOCAL from memory;
- the log: `start_binlog_dump` or `start_gtid_dump`, then `recv_into` or `read_packet`.

A connection is used by one thread at a time. After an error in the middle of anything it is
closed, because what the server sends next can no longer be told apart.
"""

# ruff: noqa: SLF001 - this module exists to hold every use of private names

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import COMMAND, CR
from pymysql.protocol import FieldDescriptorPacket, OKPacketWrapper

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.systems.mysql.server.server_errors import Role, translated

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

Buffer = bytes | bytearray | memoryview

LARGEST_PACKET = 0xFFFFFF
_JOIN_BELOW = 1 << 16  # smaller buffers are cheaper copied together than sent one by one
_LOAD_PACKET = 1 << 20
_REMEMBERED = 1000

_PREPARED = struct.Struct("<IHH").unpack_from
"""The number of a prepared statement, its result's columns, its parameters."""

DUMP_THROUGH_GTID = 0x04
_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E


@dataclass(frozen=True, slots=True)
class FieldDescriptor:
    """One column of a result as the protocol describes it."""

    name: str
    type_code: int
    charset: int
    """The collation's number; 63 is binary."""
    length: int
    flags: int
    scale: int


@dataclass(frozen=True, slots=True)
class StatementOutcome:
    """The server's answer to a statement without rows: affected rows, warnings, message."""

    affected_rows: int
    warnings: int
    message: str
    """For LOAD DATA: `Records: 3  Deleted: 0  Skipped: 0  Warnings: 0`."""


@dataclass(slots=True)
class PreparedStatement:
    """A prepared statement on the connection that prepared it."""

    number: int
    """The server's name for it."""
    parameters: int
    knows_types: bool = False
    """The parameters' types were sent; they hold for later executions."""


class _Payload:
    """A packet whose payload PyMySQL does not parse, an error packet too."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def is_error_packet(self) -> bool:
        """Return False, so that PyMySQL leaves an error packet to the reader."""
        return False


def _payload_of(data: bytes, _encoding: str) -> _Payload:
    """Return a packet of PyMySQL's with its payload unparsed."""
    return _Payload(data)


def refuse_local_files(connection: Connection[Cursor]) -> None:
    """Keep PyMySQL from ever answering a server's request for a file of this machine."""
    unlocked: Any = connection
    unlocked._local_infile = False


def shut(connection: Connection[Cursor]) -> None:
    """Shut a connection's socket down, which wakes a thread that waits on it with an error."""
    inner: Any = connection
    held = inner._sock
    if isinstance(held, socket.socket):
        with suppress(OSError):
            # the socket's own, also under TLS: to say goodbye there would wait for the other thread
            socket.socket.shutdown(held, socket.SHUT_RDWR)


def server_version_text(connection: Connection[Cursor]) -> str:
    """Return the version that the server sent in its greeting."""
    greeted: Any = connection
    return str(greeted.server_version)


def is_mariadb(connection: Connection[Cursor]) -> bool:
    """Tell whether the server is a MariaDB, by its greeting."""
    return "mariadb" in server_version_text(connection).lower()


class RawConnection:
    """The socket of a PyMySQL connection, in terms of the client/server protocol."""

    def __init__(
        self, connection: Connection[Cursor], *, where: str = "", role: Role = Role.SOURCE
    ) -> None:
        self.connection = connection
        self.where = where or f"{connection.host}:{connection.port}"
        self.role = role
        self._inner: Any = connection
        self._may_hold_bytes = True
        self._sent = b""

    def start_query(self, sql: str | bytes) -> tuple[FieldDescriptor, ...]:
        """Send a query and read its column descriptors; rows stay on the socket.

        The tuple is empty for a statement that has no result.
        """
        self._remember(sql)
        try:
            self._inner._execute_command(COMMAND.COM_QUERY, sql)
            first = self._inner._read_packet()
            if first.is_ok_packet():
                return ()
            if first.is_load_local_packet():
                raise self._unasked_file()
            count = first.read_length_encoded_integer()
            packets = [self._inner._read_packet(FieldDescriptorPacket) for _ in range(count)]
            self._inner._read_packet()  # the EOF packet between descriptors and rows
        except pymysql.Error as error:
            raise self._translated(error) from None
        self._may_hold_bytes = True
        return tuple(
            FieldDescriptor(p.name, p.type_code, p.charsetnr, p.length, p.flags, p.scale)
            for p in packets
        )

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what has arrived, at least one byte, into `buffer`; return the number of bytes.

        A connection that ends here raises: the end of a result is a packet, never silence.
        """
        try:
            if self._may_hold_bytes:
                count = self._take_held(buffer)
            else:
                count = self._inner._sock.recv_into(buffer)
        except (OSError, ValueError, AttributeError) as error:
            raise self._lost(f"lost connection while reading ({error})") from None
        if count == 0:
            raise self._lost("lost connection while reading: the server closed it")
        return int(count)

    def _take_held(self, buffer: memoryview) -> int:
        """Copy bytes that PyMySQL's reader has buffered already."""
        # PyMySQL's buffered reader may hold bytes behind the last packet it gave out.
        held = len(self._inner._rfile.peek())
        count = min(held, len(buffer))
        buffer[:count] = self._inner._rfile.read(count)
        self._may_hold_bytes = count < held
        return count

    def finish_result(self) -> None:
        """Mark the result as read to its end, so that the next statement may be sent."""
        self._inner._next_seq_id = 0

    def error_of(self, packet: Buffer) -> CdcError:
        """Return the error in an ERR packet's payload."""
        payload = bytes(packet)
        number = int.from_bytes(payload[1:3], "little")
        text = payload[9:] if payload[3:4] == b"#" else payload[3:]
        error = pymysql.err.OperationalError(number, text.decode("utf-8", "replace"))
        return translated(error, self.where, role=self.role)

    def send_statement(self, parts: Sequence[Buffer]) -> None:
        """Send one statement given as buffers, without joining them; its outcome is read later."""
        self._remember(parts[0] if parts else b"")
        self._send_parts(COMMAND.COM_QUERY, parts)

    def prepare(self, sql: str | bytes) -> PreparedStatement:
        """Prepare a statement without a result at the server; `?` marks its parameters."""
        self._remember(sql)
        try:
            self._inner._execute_command(COMMAND.COM_STMT_PREPARE, sql)
            answer = bytes(self._inner._read_packet().get_all_data())
            number, columns, parameters = _PREPARED(answer, 1)
            for described in (parameters, columns):
                for _ in range(described + 1 if described else 0):  # the last one ends them
                    self._inner._read_packet()
        except pymysql.Error as error:
            raise self._translated(error) from None
        return PreparedStatement(number, parameters)

    def send_execution(
        self, statement: PreparedStatement, *, nulls: bytes, types: bytes, values: Sequence[Buffer]
    ) -> None:
        """Send one execution of a prepared statement; its outcome is read later.

        `nulls` has a bit for each parameter, `types` two bytes, and `values` are in the binary
        form the types ask for, NULLs left out.
        """
        self._remember(b"")  # the statement's text is with the server
        head = struct.pack("<IBI", statement.number, 0, 1) + nulls
        head += b"\0" if statement.knows_types else b"\1" + types
        self._send_parts(COMMAND.COM_STMT_EXECUTE, [head, *values])
        statement.knows_types = True

    def close_statement(self, statement: PreparedStatement) -> None:
        """Have the server drop a prepared statement; there is no answer."""
        self._send_parts(COMMAND.COM_STMT_CLOSE, [struct.pack("<I", statement.number)])
        self._inner._next_seq_id = 0

    def _send_parts(self, command: int, parts: Sequence[Buffer]) -> None:
        """Send a command given as buffers, cut into packets."""
        total = sum(len(part) for part in parts) + 1
        try:
            self._inner._next_seq_id = 0
            for piece in _coalesced(_packets(command, parts, total)):
                self._inner._write_bytes(piece)
        except pymysql.Error as error:
            raise self._translated(error) from None
        self._inner._next_seq_id = (total // LARGEST_PACKET + 1) % 256

    def read_outcome(self) -> StatementOutcome:
        """Read the outcome of a statement that has no result."""
        try:
            packet = self._inner._read_packet()
        except pymysql.Error as error:
            raise self._translated(error) from None
        if not packet.is_ok_packet():
            raise self._unasked_file()
        return self._outcome(packet)

    def execute(self, sql: str | bytes) -> StatementOutcome:
        """Run one statement that has no result."""
        self.send_statement([sql.encode() if isinstance(sql, str) else sql])
        return self.read_outcome()

    def load_rows(self, sql: str, buffers: Iterable[Buffer]) -> StatementOutcome:
        """Run a LOAD DATA LOCAL and send its rows from `buffers`.

        LOCAL turns errors into warnings: compare `warnings` with 0 and the records with the rows.
        If `buffers` fails, the connection is closed, so that the server keeps nothing.
        """
        self._remember(sql)
        try:
            self._inner._execute_command(COMMAND.COM_QUERY, sql)
            if not self._inner._read_packet().is_load_local_packet():
                raise RefusedError(
                    "the server did not ask for the rows of LOAD DATA LOCAL",
                    where=self.where,
                    remedy="open the connection with local_infile and start the statement "
                    "with LOAD DATA LOCAL INFILE",
                )
            self._stream(buffers)
            packet = self._inner._read_packet()
        except pymysql.Error as error:
            raise self._translated(error) from None
        return self._outcome(packet)

    def _stream(self, buffers: Iterable[Buffer]) -> None:
        """Send the bytes that the server asked for; close the connection if they fail."""
        completed = False
        try:
            for packet in _load_packets(buffers):
                self._inner._write_bytes(len(packet).to_bytes(3, "little") + self._sequence())
                self._inner._write_bytes(packet)
            self._inner._write_bytes(b"\0\0\0" + self._sequence())
            completed = True
        finally:
            if not completed:
                self.abandon()

    def _sequence(self) -> bytes:
        """Return the next packet's sequence number as a byte."""
        number = self._inner._next_seq_id
        self._inner._next_seq_id = (number + 1) % 256
        return bytes([number])

    def command(self, number: int, request: bytes) -> None:
        """Run a command of the protocol that the server answers with OK."""
        self._remember(b"")
        try:
            self._inner._execute_command(number, request)
            self._inner._read_packet()
        except pymysql.Error as error:
            raise self._translated(error) from None

    def start_binlog_dump(self, *, file: str, offset: int, server_id: int, flags: int = 0) -> None:
        """Request the log from a file and offset on."""
        request = struct.pack("<IHI", offset, flags, server_id) + file.encode()
        self._start_dump(_COM_BINLOG_DUMP, request)

    def start_gtid_dump(
        self, *, executed: bytes, server_id: int, flags: int = DUMP_THROUGH_GTID
    ) -> None:
        """Request all transactions of MySQL's log but those in `executed`, an encoded GTID set."""
        request = struct.pack("<HIIQI", flags, server_id, 0, 4, len(executed)) + executed
        self._start_dump(_COM_BINLOG_DUMP_GTID, request)

    def _start_dump(self, command: int, request: bytes) -> None:
        """Send the request for a binlog dump."""
        self._remember(b"")
        try:
            self._inner._execute_command(command, request)
        except pymysql.Error as error:
            raise self._translated(error) from None
        self._may_hold_bytes = True

    def read_packet(self) -> bytes:
        """Read one packet's payload; an ERR packet raises its error."""
        try:
            return bytes(self._inner._read_packet().get_all_data())
        except pymysql.Error as error:
            raise self._translated(error) from None

    def read_payload(self) -> bytes:
        """Read one packet's payload, even an ERR packet's."""
        try:
            payload: bytes = self._inner._read_packet(_payload_of).data
        except pymysql.Error as error:
            raise self._translated(error) from None
        return payload

    def name_statement(self, sql: Buffer) -> None:
        """Remember the statement that the next answer belongs to, for its error message."""
        self._sent = bytes(memoryview(sql)[:_REMEMBERED])

    def set_read_timeout(self, seconds: float | None) -> None:
        """Set how long reads wait before the connection counts as lost."""
        self._inner._read_timeout = seconds
        self._inner._current_timeout = seconds
        if self._inner._sock is not None:
            self._inner._sock.settimeout(seconds)

    def fileno(self) -> int:
        """Return the socket's number, to wait on it."""
        return int(self._inner._sock.fileno())

    def abandon(self) -> None:
        """Close the socket without a command; the server rolls back what is open."""
        self._inner._force_close()

    def _outcome(self, packet: Any) -> StatementOutcome:
        """Return the outcome in an OK packet."""
        ok = OKPacketWrapper(packet)
        self._inner.server_status = ok.server_status
        message = bytes(ok.message)
        # a length-encoded string; LOAD DATA's is always shorter than 251
        text = message[1:] if message else b""
        return StatementOutcome(
            int(ok.affected_rows), int(ok.warning_count), text.decode("utf-8", "replace")
        )

    def _translated(self, error: pymysql.Error) -> CdcError:
        """Return an error of PyMySQL as ours, with the statement that was sent."""
        statement = self._sent.decode("utf-8", "replace")
        return translated(error, self.where, role=self.role, statement=statement)

    def _remember(self, sql: str | Buffer) -> None:
        """Remember the beginning of a statement, for its error message."""
        if isinstance(sql, str):
            self._sent = sql[:_REMEMBERED].encode()
        else:
            self._sent = bytes(memoryview(sql)[:_REMEMBERED])

    def _lost(self, text: str) -> CdcError:
        """Close the connection and return the error that it was lost."""
        self.abandon()
        return self._translated(pymysql.err.OperationalError(CR.CR_SERVER_LOST, text))

    def _unasked_file(self) -> CdcError:
        """Close the connection and return the error for an unexpected request for a file."""
        self.abandon()
        return RefusedError(
            "the server asked for a file, or sent rows, where neither was due",
            where=self.where,
            risk="a hostile server can ask for any file of this machine; none was sent",
            remedy="check which server answers at this address",
        )


def _packets(command: int, parts: Sequence[Buffer], total: int) -> Iterator[Buffer]:
    """Yield a command's packets in wire order: headers and slices of `parts`."""
    left, sequence = total, 0
    room = min(left, LARGEST_PACKET)
    yield room.to_bytes(3, "little") + bytes([sequence, command])
    left, room = left - 1, room - 1
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view) > room:
            yield view[:room]
            view, left = view[room:], left - room
            sequence, room = (sequence + 1) % 256, min(left, LARGEST_PACKET)
            yield room.to_bytes(3, "little") + bytes([sequence])
        yield view
        left, room = left - len(view), room - len(view)
    if total % LARGEST_PACKET == 0:  # a full packet is always followed by another
        yield b"\0\0\0" + bytes([(sequence + 1) % 256])


def _coalesced(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield buffers with runs of small ones joined; large ones are not copied."""
    held = bytearray()
    for piece in pieces:
        if len(piece) >= _JOIN_BELOW:
            if held:
                yield held
                held = bytearray()
            yield piece
            continue
        held += piece
        if len(held) >= _JOIN_BELOW:
            yield held
            held = bytearray()
    if held:
        yield held


def _load_packets(buffers: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield buffers cut or joined to packets of about a megabyte."""
    held = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if held or len(view) < _LOAD_PACKET:
            held += view
            if len(held) < _LOAD_PACKET:
                continue
            view, held = memoryview(held), bytearray()
        for at in range(0, len(view), _LOAD_PACKET):
            yield view[at : at + _LOAD_PACKET]
    if held:
        yield held
