"""Several statements in one round trip.

A server takes statements parted by semicolons as one command, where the client has said that it
sends such. It runs them one after the other and answers each; behind one that fails it runs none.
The connection must be opened with `many_statements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.systems.mysql.server.raw_connection import (
    RawConnection,
    StatementOutcome,
)

Rows = list[tuple[str | None, ...]]

_OK, _LOCAL_FILE, _END, _ERROR, _NULL = 0x00, 0xFB, 0xFE, 0xFF, 0xFB
_LONGEST_END = 8
_MORE_RESULTS = 0x0008
_NUMBER_BYTES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""By a packed number's first byte: how many follow."""


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The server's answers to a script's statements, up to the first that failed."""

    answers: tuple[StatementOutcome | Rows, ...]
    error: CdcError | None = None
    """Of the statement behind the last that is answered; those behind it were not run."""

    def rows(self, number: int) -> Rows:
        """Return the rows of the script's statement with this number."""
        found = self.answers[number]
        if isinstance(found, StatementOutcome):
            raise TypeError(f"statement {number} of the script has no rows")
        return found

    def outcome(self, number: int) -> StatementOutcome:
        """Return the outcome of the script's statement with this number, which has no rows."""
        found = self.answers[number]
        if not isinstance(found, StatementOutcome):
            raise TypeError(f"statement {number} of the script has rows")
        return found


def run_script(raw: RawConnection, statements: Sequence[bytes]) -> ScriptOutcome:
    """Run statements as one command; none may hold a semicolon outside its values."""
    raw.send_statement([b";".join(statements)])
    answers: list[StatementOutcome | Rows] = []
    is_more = True
    while is_more:
        raw.name_statement(statements[min(len(answers), len(statements) - 1)])
        payload = raw.read_payload()
        if payload[0] == _ERROR:
            return ScriptOutcome(tuple(answers), raw.error_of(payload))
        if payload[0] == _LOCAL_FILE:
            raw.abandon()
            raise _unasked(raw, "asked for a file")
        if payload[0] == _OK:
            outcome, status = _outcome(payload)
            answers.append(outcome)
        else:
            rows, status = _rows(raw, _packed(payload, 0)[0])
            answers.append(rows)
        is_more = bool(status & _MORE_RESULTS)
    if len(answers) != len(statements):
        raw.abandon()
        raise _unasked(raw, f"gave {len(answers)} answers to {len(statements)} statements")
    return ScriptOutcome(tuple(answers))


def _outcome(payload: bytes) -> tuple[StatementOutcome, int]:
    """Parse an OK packet: the outcome and the server's status."""
    affected, at = _packed(payload, 1)
    _, at = _packed(payload, at)  # the last inserted id
    status, warnings = payload[at : at + 2], payload[at + 2 : at + 4]
    outcome = StatementOutcome(affected, int.from_bytes(warnings, "little"), "")
    return outcome, int.from_bytes(status, "little")


def _rows(raw: RawConnection, columns: int) -> tuple[Rows, int]:
    """Read a result's rows; return them and the server's status."""
    for _ in range(columns + 1):  # the last one ends the columns' descriptions
        raw.read_payload()
    rows: Rows = []
    while True:
        payload = raw.read_payload()
        if payload[0] == _END and len(payload) <= _LONGEST_END:
            return rows, int.from_bytes(payload[3:5], "little")
        if payload[0] == _ERROR:
            raise raw.error_of(payload)
        rows.append(_row(payload, columns))


def _row(payload: bytes, columns: int) -> tuple[str | None, ...]:
    """Parse one row of a result."""
    at, cells = 0, list[str | None]()
    for _ in range(columns):
        if payload[at] == _NULL:
            cells.append(None)
            at += 1
            continue
        length, at = _packed(payload, at)
        cells.append(payload[at : at + length].decode())
        at += length
    return tuple(cells)


def _packed(payload: bytes, at: int) -> tuple[int, int]:
    """Parse a length-encoded number; return it and the offset after it."""
    first = payload[at]
    if first < _NULL:
        return first, at + 1
    end = at + 1 + _NUMBER_BYTES[first]
    return int.from_bytes(payload[at + 1 : end], "little"), end


def _unasked(raw: RawConnection, what: str) -> RefusedError:
    """Return the error for an answer that does not fit a script."""
    return RefusedError(
        f"the server {what} in answer to a transaction's statements",
        where=raw.where,
        risk="what it did is not known; the transaction was not committed",
        remedy="check which server answers at this address",
    )
