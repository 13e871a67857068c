"""Rows into one sink table, in statements as large as pays, checked as they come back.

**LOAD DATA LOCAL** where the sink allows it: it costs the server half of what SQL text does. The
rows are streamed from memory while the server stores those before. LOCAL turns errors into
warnings and skips what it cannot store, so its counts are compared: any doubt raises
`LoadDoubtedError`, and the caller does its whole transaction again by INSERT, where strict mode
names the row.

**INSERT** else, many rows to a statement, filled up by exact byte counts. The next statement is
built while the server runs the last: a statement is sent, and its outcome is read only when the
next one is ready. No thread is needed for that, and there is never more than one built ahead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from airflow_cdc_provider.columnar.keys import key_at
from airflow_cdc_provider.columnar.load_text import LoadText, load_rows
from airflow_cdc_provider.columnar.sql_text import key_list, values_sql
from airflow_cdc_provider.core.errors import CdcError, IntegrityError, RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.mysql.connection import StatementOutcome
from airflow_cdc_provider.sinks.session import SinkSession

_FIRST_SLICE = 2_000
_KEYS_IN_A_DELETE = 2_000
"""More would leave the optimizer's memory for ranges, and it would read the whole table."""
_LOAD_SLICE = 16_384
_LOAD_FROM_ROWS = 200
"""For fewer rows the extra round trip of LOAD DATA costs more than it saves."""
_AT_ROW = re.compile(r"at row (\d+)")
_LOADED = re.compile(r"Records: (\d+)\s+Deleted: (\d+)\s+Skipped: (\d+)\s+Warnings: (\d+)")

if TYPE_CHECKING:
    import pyarrow as pa


class WriteMode(Enum):
    """What happens to a row whose key is there already."""

    INSERT = "insert"
    """It is an error."""
    UPSERT = "upsert"
    """It gets the new values; right only where the primary key is the only unique key.

    LOAD DATA deletes it and writes it anew.
    """


class LoadDoubtedError(IntegrityError):
    """LOAD DATA LOCAL did not store exactly what it was sent; do the same by INSERT."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One multi-row statement and the rows it holds."""

    parts: tuple[bytes | memoryview, ...]
    rows: pa.RecordBatch


class RowWriter:
    """Writes rows of some columns into one sink table, inside the session's transaction."""

    def __init__(
        self,
        session: SinkSession,
        table: TableId,
        columns: Sequence[Column],
        key: Sequence[Column],
    ) -> None:
        self._session = session
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._name = quote_table(table)

    def delete_keys(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys, if they are there."""
        names = ", ".join(quote_identifier(column.name) for column in self._key)
        head = f"DELETE FROM {self._name} WHERE {names} IN (".encode()
        if len(self._key) > 1:
            head = f"DELETE FROM {self._name} WHERE ({names}) IN (".encode()
        limit = self._session.capabilities.statement_bytes - len(head) - 1

        def statements() -> Iterator[_Statement]:
            for at in range(0, keys.num_rows, _KEYS_IN_A_DELETE):
                some = keys.slice(at, _KEYS_IN_A_DELETE)
                text = key_list(some, self._key)
                for first, end in text.runs(limit):
                    yield _Statement(
                        (head, text.run(first, end), b")"), some.slice(first, end - first)
                    )

        self._run(statements(), counts_rows=False)

    def write(
        self, batches: Iterable[pa.RecordBatch], mode: WriteMode, *, load: bool = True
    ) -> int:
        """Write rows and return how many; `load` permits LOAD DATA where the sink allows it."""
        if not (load and self._session.capabilities.takes_local_files):
            return self._insert(batches, mode)
        total = 0
        small: list[pa.RecordBatch] = []
        large = _joined_large(_sliced(batches), small)
        total += self.load((load_rows(batch, self._columns) for batch in large), mode)
        return total + self._insert(small, mode)

    # --- LOAD DATA LOCAL ----------------------------------------------------------------------

    def load(self, texts: Iterable[LoadText], mode: WriteMode = WriteMode.INSERT) -> int:
        """Stream texts, one statement for each run with the same clause; return the rows."""
        verb = "" if mode is WriteMode.INSERT else "REPLACE "
        total = 0
        pending = iter(texts)
        text = next(pending, None)
        while text is not None:
            run = _Run(text, pending)
            sql = f"LOAD DATA LOCAL INFILE 'rows' {verb}INTO TABLE {self._name} {text.clause}"
            try:
                outcome = self._session.raw.load_rows(sql, run.bodies())
            except RowRefusedError as error:
                raise self._doubted(error.what) from None
            self._check_load(outcome, run.rows)
            total += run.rows
            text = run.following
        return total

    def _check_load(self, outcome: StatementOutcome, rows: int) -> None:
        match = _LOADED.search(outcome.message)
        records, skipped = (int(match[1]), int(match[3])) if match else (-1, -1)
        if (records, skipped, outcome.warnings) != (rows, 0, 0):
            raise self._doubted(
                f"LOAD DATA took {records} of {rows} rows, skipped {skipped}, "
                f"with {outcome.warnings} warnings"
            )

    def _doubted(self, what: str) -> LoadDoubtedError:
        return LoadDoubtedError(
            what,
            where=f"table {self._table} on {self._session.where}",
            risk="none: what it did is undone",
            remedy="it is done again by INSERT, which names the row",
        )

    # --- INSERT -------------------------------------------------------------------------------

    def _insert(self, batches: Iterable[pa.RecordBatch], mode: WriteMode) -> int:
        return self._run(self._inserts(batches, mode), counts_rows=mode is WriteMode.INSERT)

    def _inserts(self, batches: Iterable[pa.RecordBatch], mode: WriteMode) -> Iterator[_Statement]:
        names = ",".join(quote_identifier(column.name) for column in self._columns)
        head = f"INSERT INTO {self._name} ({names}) VALUES ".encode()
        tail = self._upsert_clause() if mode is WriteMode.UPSERT else b""
        limit = self._session.capabilities.statement_bytes - len(head) - len(tail)
        largest = self._session.capabilities.largest_statement - len(head) - len(tail)
        step = _FIRST_SLICE
        for batch in batches:
            at = 0
            while at < batch.num_rows:
                some = batch.slice(at, step)
                text = values_sql(some, self._columns)
                for first, end in text.runs(limit):
                    body = text.run(first, end)
                    rows = some.slice(first, end - first)
                    if len(body) > largest:
                        raise self._too_large(rows, len(body), largest)
                    yield _Statement((head, body, tail), rows)
                at += some.num_rows
                # the next slice is cut so that its text just about fills a statement
                bytes_a_row = max(1, len(text.body) // text.rows)
                step = max(1, limit // (bytes_a_row + bytes_a_row // 32 + 1))

    def _upsert_clause(self) -> bytes:
        has_alias = self._session.capabilities.has_row_alias
        shape = "{0}=`cdc_new`.{0}" if has_alias else "{0}=VALUES({0})"
        sets = ",".join(shape.format(quote_identifier(c.name)) for c in self._columns)
        alias = " AS `cdc_new`" if has_alias else ""
        return f"{alias} ON DUPLICATE KEY UPDATE {sets}".encode()

    def _run(self, statements: Iterable[_Statement], *, counts_rows: bool) -> int:
        raw, total = self._session.raw, 0
        running: _Statement | None = None
        try:
            for statement in statements:  # building it overlaps the one that runs
                if running is not None:
                    finished, running = running, None
                    self._finish(finished, counts_rows=counts_rows)
                raw.send_statement(statement.parts)
                running = statement
                total += statement.rows.num_rows
            if running is not None:
                finished, running = running, None
                self._finish(finished, counts_rows=counts_rows)
        finally:
            if running is not None:  # building the next one failed: its reply is still to come
                with suppress(CdcError):
                    raw.read_outcome()
        return total

    def _finish(self, statement: _Statement, *, counts_rows: bool) -> None:
        """Read a statement's outcome; a refused row is named."""
        try:
            outcome = self._session.raw.read_outcome()
        except RowRefusedError as error:
            raise self._refused(error.what, statement.rows) from None
        if outcome.warnings:
            self._check_warnings(statement.rows)
        if counts_rows and outcome.affected_rows != statement.rows.num_rows:
            raise IntegrityError(
                f"the sink stored {outcome.affected_rows} of {statement.rows.num_rows} rows",
                where=f"table {self._table} on {self._session.where}",
                risk="rows would be missing; the transaction is rolled back",
                remedy="look for triggers and partitions of the sink's table",
            )

    def _check_warnings(self, rows: pa.RecordBatch) -> None:
        for level, number, text in self._session.rows("SHOW WARNINGS"):
            if str(level) != "Note":
                raise self._refused(f"the sink warned with {number}: {text}", rows)

    def _refused(self, what: str, rows: pa.RecordBatch) -> RowRefusedError:
        match = _AT_ROW.search(what)
        number = int(match[1]) - 1 if match else -1
        if 0 <= number < rows.num_rows:
            keys = f"key {self._shown(rows, number)}"
        elif rows.num_rows:
            keys = f"one of the keys {self._shown(rows, 0)} .. {self._shown(rows, -1)}"
        else:
            keys = "no key"
        return RowRefusedError(
            what,
            where=f"table {self._table} on {self._session.where}, {keys}",
            risk="nothing of its transaction was kept",
            remedy="compare the two tables' definitions and the row that is named",
        )

    def _shown(self, rows: pa.RecordBatch, row: int) -> str:
        place = row % rows.num_rows
        return "/".join(str(part) for part in key_at(rows, place, self._key))

    def _too_large(self, rows: pa.RecordBatch, size: int, largest: int) -> RowRefusedError:
        return RowRefusedError(
            f"a row is {size} bytes as SQL, the sink takes {largest}",
            where=f"table {self._table} on {self._session.where}, key {self._shown(rows, 0)}",
            risk="nothing of its transaction was kept",
            remedy="raise max_allowed_packet at the sink, or allow local_infile there",
        )


class _Run:
    """Texts that go into one LOAD statement: as long as the clause stays the same."""

    def __init__(self, first: LoadText, pending: Iterator[LoadText]) -> None:
        self._first = first
        self._pending = pending
        self.rows = 0
        self.following: LoadText | None = None

    def bodies(self) -> Iterator[memoryview]:
        """Yield the bytes; `rows` and `following` are known once this has ended."""
        text: LoadText | None = self._first
        while text is not None and text.clause == self._first.clause:
            self.rows += text.rows
            yield text.body
            text = next(self._pending, None)
        self.following = text


def _sliced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches, so that the server stores the first rows while later ones are written out."""
    for batch in batches:
        for at in range(0, batch.num_rows, _LOAD_SLICE):
            yield batch.slice(at, _LOAD_SLICE)


def _joined_large(
    batches: Iterable[pa.RecordBatch], small: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches worth a LOAD; if all rows together are few, put them into `small` instead."""
    held, rows, loading = [], 0, False
    for batch in batches:
        if loading:
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows >= _LOAD_FROM_ROWS:
            loading = True
            yield from held
            held = []
    small.extend(held)
