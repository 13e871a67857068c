"""XA transactions: held back from XA PREPARE until XA COMMIT.

The log has the rows of a distributed transaction where it is prepared, and only a statement where
it is committed, maybe much later, maybe never. The rows are kept, as columns, under the name that
the application gave the transaction. Memory is bounded.

A commit may name a transaction that was prepared before the log was read from: before a snapshot,
or before a crash. Then whoever made the decoder is asked for its rows, of the log before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_cdc_provider.columnar.binlog.byte_reader import ByteReader
from airflow_cdc_provider.columnar.binlog.pending import Piece
from airflow_cdc_provider.core.errors import PreparedTransactionError
from airflow_cdc_provider.core.positions import BinlogPosition


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
    """Read the name in an XA statement as the server logs it: X'..',X'..',n."""
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
    """Read an XA_PREPARE event: whether it commits at once, and the name."""
    reader = ByteReader(body)
    one_phase = reader.number(1) != 0
    format_id = reader.number(4)
    global_bytes, branch_bytes = reader.number(4), reader.number(4)
    return one_phase, XaName(format_id, reader.take(global_bytes), reader.take(branch_bytes))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction that is prepared: where it stands in the log, and its rows."""

    start: BinlogPosition
    end: BinlogPosition
    pieces: list[Piece]


PreparedBefore = Callable[[XaName, BinlogPosition], list[Piece] | None]
"""Returns the rows of a transaction that was prepared before a place, None if it is not found."""


def nothing_before(_name: XaName, _place: BinlogPosition) -> list[Piece] | None:
    """Know nothing of the log before."""
    return None


@dataclass(slots=True)
class PreparedTransactions:
    """Rows of prepared transactions by name, up to `limit_bytes` together."""

    limit_bytes: int
    before: PreparedBefore = nothing_before
    _held: dict[XaName, Prepared] = field(default_factory=dict)
    _bytes: int = 0

    def named(self, name: XaName) -> Prepared | None:
        """Return a transaction that is prepared and not committed by now."""
        return self._held.get(name)

    def hold(self, name: XaName, prepared: Prepared) -> None:
        """Keep the rows of a transaction that was prepared; it may have none."""
        self._bytes += sum(piece.nbytes for piece in prepared.pieces)
        if self._bytes > self.limit_bytes:
            raise PreparedTransactionError(
                f"prepared XA transactions hold more than {self.limit_bytes} bytes of rows",
                where=f"XA {name}",
                risk="none yet: nothing of them was handed on",
                remedy="XA COMMIT or XA ROLLBACK old ones (XA RECOVER lists them), or raise "
                "stream.max_batch",
            )
        self._held[name] = prepared

    def commit(self, name: XaName, place: BinlogPosition) -> list[Piece]:
        """Return the rows of a transaction that is committed at a place."""
        if name in self._held:
            return self._let_go(name)
        pieces = self.before(name, place)
        if pieces is None:
            raise PreparedTransactionError(
                f"XA {name} is committed, but was prepared before the log that can be read",
                where=f"XA {name}",
                risk="its rows are not in the log any more and are lost if we go on",
                remedy="resync the tables it wrote; keep logs longer than transactions stay "
                "prepared",
            )
        return pieces

    def roll_back(self, name: XaName) -> None:
        """Forget a transaction; one that is not known has nothing to forget."""
        if name in self._held:
            self._let_go(name)

    def _let_go(self, name: XaName) -> list[Piece]:
        pieces = self._held.pop(name).pieces
        self._bytes -= sum(piece.nbytes for piece in pieces)
        return pieces
