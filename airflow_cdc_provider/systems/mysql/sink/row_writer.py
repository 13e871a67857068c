"""Rows into one sink table, in statements as large as pays, checked as they come back.

**LOAD DATA LOCAL** where the sink allows it: it costs the server half of what SQL text does. The
rows are streamed from memory while the server stores those before. LOCAL turns errors into
warnings and skips what it cannot store, so its counts are compared: any doubt raises
`LoadDoubtedError`, and the caller does its whole transaction again by INSERT, where strict mode
names the row.

**INSERT** else, many rows to a statement (see `insert_statements`). The next statement is built
while the server runs the last: a statement is sent, and its outcome is read only when the next
one is ready. No thread is needed for that, and there is never more than one built ahead.

**Index 0 of an ENUM** is a value that is no member: rows got it without strict mode, or when a
member was taken away. Strict mode refuses it, so its rows are written apart and without it, a few
at a time, and every warning must be about such a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError, IntegrityError, RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.systems.mysql.dialect.sql import of_shard
from airflow_cdc_provider.systems.mysql.server.connection import StatementOutcome
from airflow_cdc_provider.systems.mysql.sink.enum_zero import (
    enum_zeros_of,
    enums_of,
    without_no_members,
)
from airflow_cdc_provider.systems.mysql.sink.insert_statements import (
    InsertStatements,
    RowValues,
    Statement,
    TextStatement,
    WriteMode,
    listed_in,
    shown_key,
)
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.wire.load_text import LoadText, load_rows
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list

_KEYS_IN_A_DELETE = 2_000
"""More would leave the optimizer's memory for ranges, and it would read the whole table."""
_LOAD_SLICE = 16_384
_LOAD_FROM_ROWS = 200
"""For fewer rows the extra round trip of LOAD DATA costs more than it saves."""
_PREPARE_FROM_ROWS = 1_000
"""For fewer rows preparing a statement costs more than it saves."""
_MANY_BYTES = 1 << 20
"""Few rows that are as large as this are written as many are: SQL text may be twice as long as
what it stands for, and then a row that the source could take would not fit into a statement."""
_TRUNCATED = 1265
"""Of a DECIMAL that loses digits behind its point the server only makes a note."""
_WARNINGS_TOLD = 60
"""MariaDB keeps 64 of a statement's warnings."""
_CELL = re.compile(r"'([^']*)'\D*(\d+)\D*$")
_AT_ROW = re.compile(r"at row (\d+)")
_LOADED = re.compile(r"Records: (\d+)\s+Deleted: (\d+)\s+Skipped: (\d+)\s+Warnings: (\d+)")

if TYPE_CHECKING:
    import pyarrow as pa


class LoadDoubtedError(RowRefusedError):
    """LOAD DATA LOCAL may have stored other than what was sent; the caller repeats by INSERT."""


class RowWriter:
    """Writes rows of some columns into one sink table, inside the session's transaction.

    Where the table is shared it deletes and updates rows of one shard alone.
    """

    def __init__(
        self,
        session: SinkSession,
        table: TableId,
        columns: Sequence[Column],
        key: Sequence[Column],
        shard: OutputColumn | None = None,
    ) -> None:
        """`shard` is the column that all rows have with one value, and rows of others do not."""
        self._session = session
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._shard = shard
        # servers look up a list of values of one column, and not always of several
        self._looked_up = tuple(each for each in key if shard is None or each.name != shard.name)
        self._name = quote_table(table)

    def delete_keys(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys; a missing row is no error."""
        self._run(self.delete_statements(keys), counts_rows=False)

    def delete_statements(self, keys: pa.RecordBatch) -> Iterator[TextStatement]:
        """Yield the DELETEs of the rows with these keys."""
        yield from self._listing(f"DELETE FROM {self._name} WHERE ", keys)

    def update_keys(self, keys: pa.RecordBatch, assignments: str, *, only: str) -> None:
        """Update the rows with these keys that meet the condition `only`."""
        head = f"UPDATE {self._name} SET {assignments} WHERE {only} AND "
        self._run(self._listing(head, keys), counts_rows=False)

    def _listing(self, verb: str, keys: pa.RecordBatch) -> Iterator[TextStatement]:
        """Yield statements that begin with `verb` and end with lists of these keys."""
        self._refuse_no_member(keys)
        capabilities, key = self._session.capabilities, self._looked_up
        own = "" if self._shard is None else f"{of_shard(self._shard, 'TRUE')} AND "
        head = f"{verb}{own}{listed_in(key)}".encode()
        limit = capabilities.statement_bytes - len(head) - 1
        for at in range(0, keys.num_rows, _KEYS_IN_A_DELETE):
            some = keys.slice(at, _KEYS_IN_A_DELETE)
            text = key_list(some, key, own_charset=capabilities.is_mariadb)
            for first, end in text.runs(limit):
                yield TextStatement(
                    (head, text.run(first, end), b")"), some.slice(first, end - first)
                )

    def delete_where(self, condition: str) -> None:
        """Delete the rows that meet a condition."""
        own = of_shard(self._shard, condition)
        self._session.execute(f"DELETE FROM {self._name} WHERE {own}")

    def update_where(self, condition: str, assignments: str) -> None:
        """Update the rows that meet a condition."""
        own = of_shard(self._shard, condition)
        self._session.execute(f"UPDATE {self._name} SET {assignments} WHERE {own}")

    def write(
        self, batches: Iterable[pa.RecordBatch], mode: WriteMode, *, load: bool = True
    ) -> int:
        """Write rows and return their number; `load` permits LOAD DATA where allowed."""
        apart: list[pa.RecordBatch] = []
        usual = without_no_members(batches, self._columns, apart)
        total = self._write(usual, mode, load=load)
        return total + self._write_no_members(apart, mode)

    def write_statements(
        self, rows: pa.RecordBatch, mode: WriteMode
    ) -> Iterator[TextStatement] | None:
        """Return the INSERTs as SQL text; None if some rows hold index 0 of an ENUM."""
        apart: list[pa.RecordBatch] = []
        usual = list(without_no_members([rows], self._columns, apart))
        return None if apart else self._inserts(mode).text(usual)

    def _write(self, batches: Iterable[pa.RecordBatch], mode: WriteMode, *, load: bool) -> int:
        """Write rows by LOAD DATA where the sink allows it and there are enough, else by INSERT."""
        if not (load and self._session.capabilities.takes_local_files):
            return self._insert(batches, mode)
        total = 0
        small: list[pa.RecordBatch] = []
        large = _joined_large(_sliced(batches), small, _LOAD_FROM_ROWS)
        total += self.load((load_rows(batch, self._columns) for batch in large), mode)
        return total + self._insert(small, mode)

    # --- index 0 of an ENUM -------------------------------------------------------------------

    def _write_no_members(self, batches: Sequence[pa.RecordBatch], mode: WriteMode) -> int:
        """Write the rows with index 0 of an ENUM, without strict mode, a few at a time."""
        if not batches:
            return 0
        for batch in batches:
            self._refuse_no_member(batch)
        inserts, total = self._inserts(mode), 0
        step = max(1, _WARNINGS_TOLD // max(1, len(enums_of(self._columns))))
        some = (b.slice(at, step) for b in batches for at in range(0, b.num_rows, step))
        with self._session.lenient():
            for statement in inserts.text(some):
                statement.send(self._session)
                expected = enum_zeros_of(statement.rows(), self._columns)
                self._finish(statement, counts_rows=mode is WriteMode.INSERT, expected=expected)
                total += statement.count
        return total

    def _refuse_no_member(self, rows: pa.RecordBatch) -> None:
        """Refuse rows whose key holds index 0 of an ENUM."""
        for name, number in enum_zeros_of(rows, self._key):
            what = f"key column {name} holds index 0, a value that is no member of its ENUM"
            raise self._refused(f"{what}, at row {number}", rows)

    # --- LOAD DATA LOCAL ----------------------------------------------------------------------

    def load(self, texts: Iterable[LoadText], mode: WriteMode = WriteMode.INSERT) -> int:
        """Send rows by LOAD DATA, one statement for each run of one clause; return their number."""
        verb = "" if mode is WriteMode.INSERT else "REPLACE "
        total = 0
        pending = iter(texts)
        text = next(pending, None)
        while text is not None:
            run = _LoadedTexts(text, pending)
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
        """Raise `LoadDoubtedError` unless LOAD DATA stored all rows without a warning."""
        match = _LOADED.search(outcome.message)
        records, skipped = (int(match[1]), int(match[3])) if match else (-1, -1)
        if (records, skipped, outcome.warnings) != (rows, 0, 0):
            raise self._doubted(
                f"LOAD DATA took {records} of {rows} rows, skipped {skipped}, "
                f"with {outcome.warnings} warnings"
            )

    def _doubted(self, what: str) -> LoadDoubtedError:
        """Return the error at which the caller undoes a LOAD DATA and repeats it by INSERT."""
        return LoadDoubtedError(
            what,
            where=f"table {self._table} on {self._session.where}",
            risk="none: what it did is undone",
            remedy="it is done again by INSERT, which names the row",
        )

    # --- INSERT -------------------------------------------------------------------------------

    def insert_values(
        self,
        values: Iterable[RowValues],
        *,
        rows: int,
        size: int,
        otherwise: Callable[[], Iterable[pa.RecordBatch]],
    ) -> int:
        """Insert encoded rows by a prepared statement, or as SQL text if they are few.

        `rows` is their number, `size` their bytes, `otherwise` gives the same rows as Arrow.
        """
        inserts = self._inserts(WriteMode.INSERT)
        is_much = rows >= _PREPARE_FROM_ROWS or size >= _MANY_BYTES
        if is_much and inserts.can_be_prepared():
            return self._run(inserts.prepared(values), counts_rows=True)
        return self._run(inserts.text(otherwise()), counts_rows=True)

    def _insert(self, batches: Iterable[pa.RecordBatch], mode: WriteMode) -> int:
        """Insert rows by a prepared statement if they are many, else as SQL text."""
        counts_rows, inserts = mode is WriteMode.INSERT, self._inserts(mode)
        few: list[pa.RecordBatch] = []
        many = _joined_large(_sliced(batches), few, _PREPARE_FROM_ROWS)
        total = 0
        first = next(many, None)
        if first is not None:
            rows = chain((first,), many)
            if inserts.can_be_prepared():
                statements = inserts.prepared(inserts.values_of(batch) for batch in rows)
            else:
                statements = inserts.text(rows)
            total = self._run(statements, counts_rows=counts_rows)
        return total + self._run(inserts.text(few), counts_rows=counts_rows)

    def _inserts(self, mode: WriteMode) -> InsertStatements:
        """Return the builder of the INSERTs for this table."""
        return InsertStatements(self._session, self._table, self._columns, self._key, mode)

    def _run(self, statements: Iterable[Statement], *, counts_rows: bool) -> int:
        """Send statements, each built while the server runs the last; return the number of rows."""
        raw, total = self._session.raw, 0
        running: Statement | None = None
        try:
            for statement in statements:  # building it overlaps the one that runs
                if running is not None:
                    finished, running = running, None
                    self._finish(finished, counts_rows=counts_rows)
                statement.send(self._session)
                running = statement
                total += statement.count
            if running is not None:
                finished, running = running, None
                self._finish(finished, counts_rows=counts_rows)
        finally:
            if running is not None:  # building the next one failed: its reply is still to come
                with suppress(CdcError):
                    raw.read_outcome()
        return total

    def _finish(
        self,
        statement: Statement,
        *,
        counts_rows: bool,
        expected: Collection[tuple[str, int]] = (),
    ) -> None:
        """Read a statement's outcome and check its warnings and its count; name a refused row.

        `expected` are the column and row of values that the server may warn of.
        """
        try:
            outcome = self._session.raw.read_outcome()
        except RowRefusedError as error:
            raise self._refused(error.what, statement.rows()) from None
        if outcome.warnings:
            self._check_warnings(statement, outcome.warnings, expected)
        self._check_count(outcome, statement, counts_rows=counts_rows)

    def _check_count(
        self, outcome: StatementOutcome, statement: Statement, *, counts_rows: bool
    ) -> None:
        """Raise an error unless the server stored as many rows as were sent."""
        if counts_rows and outcome.affected_rows != statement.count:
            raise IntegrityError(
                f"the sink stored {outcome.affected_rows} of {statement.count} rows",
                where=f"table {self._table} on {self._session.where}",
                risk="rows would be missing; the transaction is rolled back",
                remedy="look for triggers and partitions of the sink's table",
            )

    def _check_warnings(
        self, statement: Statement, counted: int, expected: Collection[tuple[str, int]]
    ) -> None:
        """Refuse rows unless each warning is a note or about an expected ENUM index 0."""
        shown = self._session.rows("SHOW WARNINGS")
        for level, number, text in shown:
            is_note = str(level) == "Note"
            if int(number) == _TRUNCATED:
                passes = not is_note and _cell(text) in expected
            else:
                passes = is_note
            if not passes:
                raise self._refused(f"the sink warned with {number}: {text}", statement.rows())
        if len(shown) < counted:
            raise self._unshown(counted, len(shown))

    def _unshown(self, counted: int, shown: int) -> IntegrityError:
        """Return the error for warnings that the server counted and does not show."""
        return IntegrityError(
            f"the sink counted {counted} warnings and shows the texts of {shown}",
            where=f"table {self._table} on {self._session.where}",
            risk="a value may have been changed on the way; the transaction is rolled back",
            remedy="SET GLOBAL max_error_count = 1024; at the sink (MySQL: SET PERSIST), or GRANT "
            "SESSION_VARIABLES_ADMIN ON *.* to the account, then run again",
        )

    def _refused(self, what: str, rows: pa.RecordBatch) -> RowRefusedError:
        """Return the error for a refused row, with its key if the message names its number."""
        match = _AT_ROW.search(what)
        number = int(match[1]) - 1 if match else -1
        if 0 <= number < rows.num_rows:
            keys = f"key {shown_key(rows, number, self._key)}"
        elif rows.num_rows:
            first, last = (shown_key(rows, row, self._key) for row in (0, -1))
            keys = f"one of the keys {first} .. {last}"
        else:
            keys = "no key"
        return RowRefusedError(
            what,
            where=f"table {self._table} on {self._session.where}, {keys}",
            risk="nothing of its transaction was kept",
            remedy="compare the two tables' definitions and the row that is named; where the "
            "sink's was changed, change it back and `resume` with --table; where rows of the sink "
            "have drifted under a stream, `reset` with --table and run: that table is then read "
            "anew",
        )


class _LoadedTexts:
    """Texts of LOAD DATA with the same clause, which go into one statement."""

    def __init__(self, first: LoadText, pending: Iterator[LoadText]) -> None:
        self._first = first
        self._pending = pending
        self.rows = 0
        self.following: LoadText | None = None

    def bodies(self) -> Iterator[memoryview]:
        """Yield each text's bytes; then `rows` were sent, and `following` is the next text."""
        text: LoadText | None = self._first
        while text is not None and text.clause == self._first.clause:
            self.rows += text.rows
            yield text.body
            text = next(self._pending, None)
        self.following = text


def _cell(text: str) -> tuple[str, int] | None:
    """Return the column and the row number that a warning names, None if it names none."""
    match = _CELL.search(text)
    return (match[1], int(match[2])) if match else None


def _sliced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches into slices, so that the server stores some rows while the next are encoded."""
    for batch in batches:
        for at in range(0, batch.num_rows, _LOAD_SLICE):
            yield batch.slice(at, _LOAD_SLICE)


def _joined_large(
    batches: Iterable[pa.RecordBatch], small: list[pa.RecordBatch], from_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the batches if they are many rows or bytes together, else put them into `small`."""
    held, rows, size, loading = [], 0, 0, False
    for batch in batches:
        if loading:
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= from_rows or size >= _MANY_BYTES:
            loading = True
            yield from held
            held = []
    small.extend(held)
