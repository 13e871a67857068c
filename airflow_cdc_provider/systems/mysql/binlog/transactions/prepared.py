"""XA transactions: held back from XA PREPARE until XA COMMIT.

The log has the rows of a distributed transaction where it is prepared, and only a statement where
it is committed, maybe much later, maybe never. The rows are kept, as columns, under the name that
the application gave the transaction, as long as memory allows. Of what is too much, only the place
is kept: the log still has the rows, and they are read there again when the commit comes, in parts.

A commit may name a transaction that was prepared before the log was read from: before a snapshot,
or before a crash. Then its rows are looked for in the log before. Whoever made the decoder reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from airflow_cdc_provider.core.errors import RESET, PreparedTransactionError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import Piece
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition


@dataclass(frozen=True, slots=True)
class XaName:
    """The name of a distributed transaction."""

    format_id: int
    global_part: bytes
    branch: bytes

    def __str__(self) -> str:
        return f"X'{self.global_part.hex()}',X'{self.branch.hex()}',{self.format_id}"


_STATEMENT = re.compile(r"XA\s+\w+\s+(?P<name>.*)", re.IGNORECASE | re.DOTALL)
_PART = re.compile(
    r"""\s*(?:X'(?P<hex>[0-9a-f]*)'|0x(?P<plain>[0-9a-f]*)|'(?P<text>[^']*)')\s*,?""",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\s*(?P<number>\d+|0x[0-9a-f]+)", re.IGNORECASE)


def xa_name_of(sql: str) -> XaName:
    """Parse the name in an XA statement as the server logs it: X'..',X'..',n."""
    match = _STATEMENT.match(sql)
    rest = match["name"] if match else ""
    parts: list[bytes] = []
    while len(parts) < 2 and (part := _PART.match(rest)):
        digits = part["hex"] if part["hex"] is not None else part["plain"]
        parts.append((part["text"] or "").encode() if digits is None else bytes.fromhex(digits))
        rest = rest[part.end() :]
    if not parts:
        raise PreparedTransactionError(
            f"the name of an XA transaction cannot be read: {sql[:80]!r}",
            risk="its rows would be lost",
            remedy="report it with the server's version",
        )
    number = _NUMBER.match(rest)
    return XaName(int(number["number"], 0) if number else 1, parts[0], (*parts, b"")[1])


def read_xa_prepare(body: bytes) -> tuple[bool, XaName]:
    """Read an XA_PREPARE event: whether it commits in one phase, and the transaction's name."""
    reader = ByteReader(body)
    one_phase = reader.number(1) != 0
    format_id = reader.number(4)
    global_bytes, branch_bytes = reader.number(4), reader.number(4)
    return one_phase, XaName(format_id, reader.take(global_bytes), reader.take(branch_bytes))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared XA transaction: its place in the log, and its rows if they are kept."""

    start: BinlogPosition
    end: BinlogPosition
    pieces: list[Piece] | None
    """None if they are not kept."""
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Some rows of an XA transaction, and how many bytes of log were read for them."""

    pieces: list[Piece]
    bytes: int = 0


class PreparedBefore(Protocol):
    """Reads the rows of prepared XA transactions from the log again."""

    def find(self, name: XaName, before: BinlogPosition) -> Iterator[RowsPart] | None:
        """Return the rows of an XA transaction prepared before a position.

        None if it is not found.
        """

    def between(self, start: BinlogPosition, end: BinlogPosition) -> Iterator[RowsPart]:
        """Return the rows of the XA transaction that is between two positions of one log file."""


class NothingBefore:
    """A `PreparedBefore` that cannot read any earlier log."""

    def find(self, name: XaName, before: BinlogPosition) -> Iterator[RowsPart] | None:  # noqa: ARG002
        """Return None: this reader cannot read earlier log."""
        return None

    def between(self, start: BinlogPosition, end: BinlogPosition) -> Iterator[RowsPart]:
        """Raise an error: this reader cannot read earlier log."""
        raise PreparedTransactionError(
            "the rows of a large XA transaction cannot be read again",
            where=f"log from {start} to {end}",
            risk="its rows would be lost",
            remedy="read the log over a connection to the server",
        )


nothing_before = NothingBefore()


@dataclass(slots=True)
class PreparedTransactions:
    """The prepared XA transactions by name, with their rows up to `limit_bytes` together."""

    limit_bytes: int
    before: PreparedBefore = field(default_factory=NothingBefore)
    _held: dict[XaName, Prepared] = field(default_factory=dict)
    _bytes: int = 0

    def named(self, name: XaName) -> Prepared | None:
        """Return a prepared XA transaction, None if there is none of that name."""
        return self._held.get(name)

    def hold(self, name: XaName, prepared: Prepared) -> None:
        """Keep a prepared XA transaction; over the limit, keep the largest without their rows."""
        size = sum(piece.nbytes for piece in prepared.pieces or ())
        self._held[name] = replace(prepared, nbytes=size)
        self._bytes += size
        while self._bytes > self.limit_bytes:
            largest = max(self._held, key=lambda each: self._held[each].nbytes)
            dropped = self._held[largest]
            self._bytes -= dropped.nbytes
            self._held[largest] = replace(dropped, pieces=None, nbytes=0)

    def commit(self, name: XaName, place: BinlogPosition) -> Iterator[RowsPart]:
        """Return the rows of an XA transaction that is committed at a position, and forget it."""
        prepared = self._let_go(name)
        if prepared is not None:
            if prepared.pieces is not None:
                return iter((RowsPart(prepared.pieces),))
            return self.again(prepared)
        parts = self.before.find(name, place)
        if parts is None:
            raise rows_are_gone(f"XA {name}")
        return parts

    def again(self, prepared: Prepared) -> Iterator[RowsPart]:
        """Read the rows of a prepared XA transaction from the log again."""
        return self.before.between(prepared.start, prepared.end)

    def roll_back(self, name: XaName) -> None:
        """Forget a rolled back XA transaction; an unknown name is no error."""
        self._let_go(name)

    def _let_go(self, name: XaName) -> Prepared | None:
        """Remove and return a prepared XA transaction, None if it is not known."""
        prepared = self._held.pop(name, None)
        self._bytes -= 0 if prepared is None else prepared.nbytes
        return prepared


def rows_are_gone(what: str) -> PreparedTransactionError:
    """Return the error for an XA commit whose rows the log does not hold any more."""
    return PreparedTransactionError(
        f"{what} is committed, but was prepared before the log that can be read",
        where=what,
        risk="its rows are not in the log any more and are lost if we go on",
        remedy=f"{RESET}; keep logs longer than transactions stay prepared",
    )
