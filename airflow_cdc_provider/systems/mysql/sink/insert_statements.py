"""INSERTs of many rows: as SQL text, or as executions of a prepared statement.

**Prepared** where there are rows enough to pay for it: the server has nothing to parse, which is
a third of its work, and rows that come as the source's own bytes are sent almost as they are. A
statement of full size is prepared once a session and table, then one an eighth of it, and what
remains at the end gets one of its own. More values in a statement gain nothing and only take
memory at the server.

**Text** for few rows, for one that is too large for an execution, and for servers that prepare
nothing (`max_prepared_stmt_count`). It is filled up to the server's packet by exact byte counts.

A statement is sent by who runs it, and is prepared only then: while another one runs, nothing
else may be asked on its connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RefusedError,
    RetryableError,
    RowRefusedError,
)
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.wire.key_values import key_at
from airflow_cdc_provider.systems.mysql.wire.parameters import (
    RowParameters,
    parameter_types,
    placeholders,
    row_parameters,
)
from airflow_cdc_provider.systems.mysql.wire.sql_text import values_sql

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

log = logging.getLogger(__name__)

_FIRST_SLICE = 2_000
_MOST_ROWS = 512
_FULL_PARAMETERS = 4_096
_MOST_PARAMETERS = 65_535
"""The protocol counts them in two bytes."""
_EXECUTION_HEAD = 16
_LEAST_PACKET = 1 << 18
"""With smaller packets too few rows fit into an execution."""


class WriteMode(Enum):
    """What happens to a row whose key is there already."""

    INSERT = "insert"
    """It is an error."""
    UPSERT = "upsert"
    """It gets the new values; right only where the primary key is the only unique key.

    LOAD DATA deletes it and writes it anew.
    """


class Statement(Protocol):
    """An INSERT or DELETE to be sent to the sink, and the rows it holds."""

    @property
    def count(self) -> int:
        """The number of rows."""

    def rows(self) -> pa.RecordBatch:
        """Return the statement's rows; called only to name a row that the server refused."""

    def send(self, session: SinkSession) -> None:
        """Send the statement; its outcome is read later."""


@dataclass(frozen=True, slots=True)
class TextStatement:
    """A statement as SQL text, in parts, and the rows it holds."""

    parts: tuple[bytes | memoryview, ...]
    held: pa.RecordBatch

    @property
    def count(self) -> int:
        """Return the number of rows in the statement."""
        return int(self.held.num_rows)

    @property
    def text(self) -> bytes:
        """Return the statement in one piece."""
        return b"".join(self.parts)

    def rows(self) -> pa.RecordBatch:
        """Return the rows that the statement holds."""
        return self.held

    def send(self, session: SinkSession) -> None:
        session.raw.send_statement(self.parts)


@dataclass(frozen=True, slots=True)
class RowValues:
    """Rows encoded as parameters of a prepared statement, and a way to decode them to Arrow."""

    parameters: RowParameters
    decoded: Callable[[], pa.RecordBatch]
    """Gives the same rows as Arrow."""


@dataclass(frozen=True, slots=True)
class _RowRange:
    """A range of rows, from `first` to `end`, of encoded row values."""

    values: RowValues
    first: int
    end: int

    @property
    def count(self) -> int:
        """Return the number of rows in the range."""
        return self.end - self.first

    @property
    def body(self) -> memoryview:
        """Return the encoded parameters of the range's rows."""
        return self.values.parameters.run(self.first, self.end)

    def nulls(self, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which values of the range are NULL, as a mask of rows by columns."""
        found = self.values.parameters.nulls
        if found is None:
            return np.zeros((self.count, columns), np.bool_)
        return found[self.first : self.end]

    def rows(self) -> pa.RecordBatch:
        """Return the rows of the range, decoded to Arrow."""
        return self.values.decoded().slice(self.first, self.count)


@dataclass(frozen=True, slots=True)
class _Execution:
    """One execution of a prepared INSERT."""

    sql: bytes
    types: bytes
    runs: tuple[_RowRange, ...]

    @property
    def count(self) -> int:
        """Return the number of rows in the execution."""
        return sum(run.count for run in self.runs)

    def rows(self) -> pa.RecordBatch:
        """Return the rows of the execution, decoded to Arrow."""
        return pa.concat_batches([run.rows() for run in self.runs])

    def send(self, session: SinkSession) -> None:
        """Send the execution's NULLs, types and values."""
        columns = len(self.types) // 2
        if all(run.values.parameters.nulls is None for run in self.runs):
            nulls = bytes((self.count * columns + 7) // 8)
        else:
            masks = np.concatenate([run.nulls(columns) for run in self.runs])
            nulls = np.packbits(masks, bitorder="little").tobytes()
        session.raw.send_execution(
            session.prepared(self.sql),
            nulls=nulls,
            types=self.types * self.count,
            values=[run.body for run in self.runs],
        )


@dataclass(slots=True)
class _Filling:
    """Row ranges that are collected until they fill one execution of a prepared INSERT."""

    runs: list[_RowRange] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, run: _RowRange) -> None:
        """Add a range of rows to those that wait for an execution."""
        self.runs.append(run)
        self.count += run.count
        self.size += len(run.body)

    def take(self, count: int) -> tuple[_RowRange, ...]:
        """Remove the first `count` rows and return them as row ranges."""
        taken: list[_RowRange] = []
        while count:
            run = self.runs[0]
            some = _RowRange(run.values, run.first, run.first + min(count, run.count))
            taken.append(some)
            count -= some.count
            self.count -= some.count
            self.size -= len(some.body)
            if some.end == run.end:
                del self.runs[0]
            else:
                self.runs[0] = _RowRange(run.values, some.end, run.end)
        return tuple(taken)


class InsertStatements:
    """Builds the INSERTs of rows into one table, as SQL text or as prepared statements."""

    def __init__(
        self,
        session: SinkSession,
        table: TableId,
        columns: Sequence[Column],
        key: Sequence[Column],
        mode: WriteMode,
    ) -> None:
        self._session = session
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        names = ",".join(quote_identifier(column.name) for column in columns)
        self._head = f"INSERT INTO {quote_table(table)} ({names}) VALUES ".encode()
        self._tail = self._upsert_clause() if mode is WriteMode.UPSERT else b""
        self._row = placeholders(columns).encode()
        self._types = parameter_types(columns)
        self._full_rows = min(_MOST_ROWS, max(16, _FULL_PARAMETERS // len(columns)))
        self._full_rows = max(1, min(self._full_rows, _MOST_PARAMETERS // len(columns)))

    @property
    def around(self) -> tuple[bytes, bytes]:
        """Return the SQL text before and after the rows of an INSERT."""
        return self._head, self._tail

    def _upsert_clause(self) -> bytes:
        """Return the ON DUPLICATE KEY UPDATE clause that sets every column to its new value."""
        has_alias = self._session.capabilities.has_row_alias
        shape = "{0}=`cdc_new`.{0}" if has_alias else "{0}=VALUES({0})"
        sets = ",".join(shape.format(quote_identifier(c.name)) for c in self._columns)
        alias = " AS `cdc_new`" if has_alias else ""
        return f"{alias} ON DUPLICATE KEY UPDATE {sets}".encode()

    # --- text ---------------------------------------------------------------------------------

    def text(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TextStatement]:
        """Yield INSERTs as SQL text, each filled up to the server's packet size."""
        capabilities, around = self._session.capabilities, len(self._head) + len(self._tail)
        limit = capabilities.statement_bytes - around
        largest = capabilities.largest_statement - around
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
                    yield TextStatement((self._head, body, self._tail), rows)
                at += some.num_rows
                # the next slice is cut so that its text just about fills a statement
                bytes_a_row = max(1, len(text.body) // text.rows)
                step = max(1, limit // (bytes_a_row + bytes_a_row // 32 + 1))

    def _too_large(self, rows: pa.RecordBatch, size: int, largest: int) -> RowRefusedError:
        """Return the error for a row that does not fit into the sink's largest statement."""
        return RowRefusedError(
            f"a row is {size} bytes as SQL, the sink takes {largest}",
            where=f"table {self._table} on {self._session.where}, "
            f"key {shown_key(rows, 0, self._key)}",
            risk="nothing of its transaction was kept",
            remedy="raise max_allowed_packet at the sink, or allow local_infile there",
        )

    # --- prepared -----------------------------------------------------------------------------

    def can_be_prepared(self) -> bool:
        """Prepare the INSERT of full size at the server; False if the server refuses.

        Nothing may be running on the connection.
        """
        session = self._session
        if not session.may_prepare or session.capabilities.max_allowed_packet < _LEAST_PACKET:
            return False
        try:
            session.prepared(self._sql(self._full_rows))
        except (RetryableError, IntegrityError, RefusedError) as refused:
            if session.is_lost:
                raise
            session.may_prepare = False
            log.warning("rows are written as SQL text: sink=%s cause=%s", session.where, refused)
            return False
        return True

    def values_of(self, rows: pa.RecordBatch) -> RowValues:
        """Encode Arrow rows as the parameters of a prepared statement."""
        return RowValues(row_parameters(rows, self._columns), lambda: rows)

    def prepared(self, values: Iterable[RowValues]) -> Iterator[Statement]:
        """Yield prepared executions for rows; a row too large for one is sent as SQL text."""
        filling = _Filling()
        for some in values:
            at = 0
            while at < some.parameters.rows:
                end = self._reach(some, at, filling)
                if end > at:
                    filling.add(_RowRange(some, at, end))
                    at = end
                    if filling.count < self._full_rows:
                        continue
                elif not filling.count:
                    yield from self._single(_RowRange(some, at, at + 1))
                    at += 1
                    continue
                yield self._execution(filling)
        while filling.count:
            yield self._execution(filling)

    def _reach(self, values: RowValues, at: int, filling: _Filling) -> int:
        """Return up to which row the values from `at` on still fit into the execution."""
        room = self._full_rows - filling.count
        size = self._session.capabilities.statement_bytes - filling.size
        size -= self._overhead(self._full_rows)
        return values.parameters.reach(at, rows=room, size=size)

    def _overhead(self, rows: int) -> int:
        """Return the bytes of an execution of so many rows, beside its values."""
        parameters = rows * len(self._columns)
        return _EXECUTION_HEAD + (parameters + 7) // 8 + 2 * parameters

    def _execution(self, filling: _Filling) -> _Execution:
        """Take collected rows for one execution: a full size, an eighth of that, or the rest."""
        often = (size for size in (self._full_rows, self._full_rows // 8) if size)
        count = next((size for size in often if size <= filling.count), filling.count)
        return _Execution(self._sql(count), self._types, filling.take(count))

    def _single(self, run: _RowRange) -> Iterator[Statement]:
        """Yield the statement for one row that is larger than an execution is usually filled to."""
        size = self._overhead(1) + len(run.body)
        if size > self._session.capabilities.largest_statement:
            yield from self.text([run.rows()])
        else:
            yield _Execution(self._sql(1), self._types, (run,))

    def _sql(self, rows: int) -> bytes:
        """Return the INSERT with placeholders for so many rows."""
        return self._head + b",".join([self._row] * rows) + self._tail


def delete_head(table: TableId, key: Sequence[Column]) -> bytes:
    """Return a DELETE's text before the list of keys; the caller closes the bracket."""
    return f"DELETE FROM {quote_table(table)} WHERE {listed_in(key)}".encode()


def listed_in(key: Sequence[Column]) -> str:
    """Return the condition that a key is in a list, up to the bracket that opens the list."""
    names = ", ".join(quote_identifier(column.name) for column in key)
    return f"({names}) IN (" if len(key) > 1 else f"{names} IN ("


def shown_key(rows: pa.RecordBatch, row: int, key: Sequence[Column]) -> str:
    """Return the key of a row as text; a negative row number counts from the end."""
    return "/".join(str(part) for part in key_at(rows, row % rows.num_rows, key))
