"""Debezium's envelope: rows and changes as the trees that the writers write.

One row of an envelope is `key, before, after, source, transaction, op, ts_ms, ts_us, ts_ns`, with
Debezium's names in Debezium's order. The key stands in the same line, because a file has no
place for it of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import numbers_of, texts_of
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.core.positions import Fact, LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.events import Places, TableEvents
from airflow_cdc_provider.systems.file_log.images import image_of, last_rows
from airflow_cdc_provider.systems.file_log.row_form import TruncatedBy
from airflow_cdc_provider.systems.file_log.transactions import Transactions, pointing
from airflow_cdc_provider.systems.file_log.tree import (
    Constant,
    Members,
    Value,
    number,
    numbers,
    text,
)
from airflow_cdc_provider.systems.file_log.values import debezium_values, native_values

_LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}
_NS_OF_US = 1000
_US_OF_MS = 1000


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer of envelopes: the source's family, the pipeline and the version."""

    connector: str
    """The family of the source's servers, as Debezium calls its connectors."""
    name: str
    """The pipeline's; Debezium's topic prefix."""
    version: str


class TableEnvelope:
    """Makes the envelopes of one table's rows and changes."""

    def __init__(self, plan: TablePlan, origin: Origin, *, is_native: bool = False) -> None:
        self._source_table, self._schema = plan.schema.table, plan.target
        self._values = native_values if is_native else debezium_values
        self._origin = origin

    def read(self, rows: pa.RecordBatch, position: LogPosition, now_us: int) -> Members:
        """Return the envelopes of a snapshot's rows, read at a position."""
        source = _read_at(position, now_us)
        row, nowhere = self._row(rows), np.ones(rows.num_rows, np.bool_)
        return self._envelope(
            key=self._key(rows),
            before=Members(row.values, nowhere),
            after=row,
            source=source,
            transaction=Members(_NO_TRANSACTION, nowhere),
            op=text("r"),
            now_us=now_us,
        )

    def joined(
        self,
        rows: pa.RecordBatch,
        position: LogPosition,
        now_us: int,
        *,
        first: int,  # noqa: ARG002 - of the form: envelopes have no numbers in the log
    ) -> Members:
        """Return the envelopes of rows that join beside the stream: those of a snapshot's rows."""
        return self.read(rows, position, now_us)

    def voided(
        self,
        columns: pa.Schema,
        position: LogPosition,
        now_us: int,
        *,
        number: int,  # noqa: ARG002 - of the form: envelopes have no numbers in the log
    ) -> Members:
        """Return the envelope that says that all before it is void, as a snapshot's TRUNCATE."""
        return self._emptied(columns, _read_at(position, now_us), now_us)

    def changed(
        self, events: TableEvents, places: Places, transactions: Transactions, now_us: int
    ) -> Members:
        """Return the envelopes of a table's changes."""
        of = events.transaction
        source: dict[str, Value] = {
            "snapshot": text("false"),
            **transactions.source(of),
            **_facts(events),
        }
        transaction = Members(
            (
                ("id", transactions.ids(of)),
                ("total_order", numbers(places.total)),
                ("data_collection_order", numbers(places.in_table)),
            )
        )
        before = image_of(events.changes, events, before=True)
        after = image_of(events.changes, events, before=False)
        deleted = events.op == Op.DELETE
        key = self._schema.primary_key
        return self._envelope(
            key=self._key(last_rows(before, after, deleted, key) if key else after),
            before=self._row(before, events.op == Op.INSERT),
            after=self._row(after, deleted),
            source=source,
            transaction=transaction,
            op=_letters(events),
            now_us=now_us,
        )

    def truncated(
        self, columns: pa.Schema, by: TruncatedBy, facts: Mapping[str, Fact], now_us: int
    ) -> Members:
        """Return the envelope of a TRUNCATE of the table."""
        source: dict[str, Value] = {
            "snapshot": text("false"),
            **by.transactions.source(np.zeros(1, np.int64)),
            **{name: _of_type(name, value) for name, value in facts.items()},
        }
        return self._emptied(columns, source, now_us)

    def _emptied(self, columns: pa.Schema, source: dict[str, Value], now_us: int) -> Members:
        """Return an envelope without rows, which says that there are none from here on."""
        rows = pa.RecordBatch.from_arrays(
            [pa.nulls(1, field.type) for field in columns], schema=columns
        )
        nowhere = np.ones(1, np.bool_)
        row = Members(self._row(rows).values, nowhere)
        return self._envelope(
            key=self._key(rows, nowhere),
            before=row,
            after=row,
            source=source,
            transaction=Members(_NO_TRANSACTION, nowhere),
            op=text("t"),
            now_us=now_us,
        )

    def _envelope(  # noqa: PLR0913 - the parts of an envelope
        self,
        *,
        key: Value,
        before: Members,
        after: Members,
        source: dict[str, Value],
        transaction: Members,
        op: Value,
        now_us: int,
    ) -> Members:
        """Return an envelope with its members in Debezium's order."""
        return Members(
            (
                ("key", key),
                ("before", before),
                ("after", after),
                ("source", self._source(source)),
                ("transaction", transaction),
                ("op", op),
                ("ts_ms", number(now_us // _US_OF_MS)),
                ("ts_us", number(now_us)),
                ("ts_ns", number(now_us * _NS_OF_US)),
            )
        )

    def _source(self, known: dict[str, Value]) -> Members:
        """Return the `source` member: the given values, null for the others."""
        table = self._source_table
        everywhere: dict[str, Value] = {
            "version": text(self._origin.version),
            "connector": text(self._origin.connector),
            "name": text(self._origin.name),
            "db": text(table.database),
            "table": text(table.table),
        }
        values = _NOT_KNOWN | everywhere | known
        return Members(tuple((name, values[name]) for name in _NOT_KNOWN))

    def _key(self, rows: pa.RecordBatch, absent: BoolArray | None = None) -> Value:
        """Return the `key` member of rows, null where absent, and in a table without one."""
        if not self._schema.has_key:
            return text(None)
        return Members(self._members(rows, self._schema.primary_key).values, absent)

    def _row(self, rows: pa.RecordBatch, absent: BoolArray | None = None) -> Members:
        """Return the `before` or `after` member of rows, null where absent."""
        names = [column.name for column in self._schema.copied_columns]
        return Members(self._members(rows, names).values, absent)

    def _members(self, rows: pa.RecordBatch, names: Sequence[str]) -> Members:
        """Return some columns of rows as named members."""
        return Members(
            tuple(
                (name, self._values(rows.column(name), self._schema.column(name).type))
                for name in names
            )
        )


def _read_at(position: LogPosition, now_us: int) -> dict[str, Value]:
    """Return what `source` says of rows that were read at a position."""
    return {
        "ts_ms": number(now_us // _US_OF_MS),
        "snapshot": text("true"),
        "ts_us": number(now_us),
        "ts_ns": number(now_us * _NS_OF_US),
        **{name: _constant(value) for name, value in position.facts().items()},
        "row": _small(0),
        "server_id": number(0),
    }


def _constant(fact: Fact) -> Constant:
    """Return a fact as a constant text or number."""
    return text(fact) if isinstance(fact, str) else number(fact)


def _of_type(name: str, fact: Fact) -> Constant:
    """Return a fact as a constant of the type that it has in the envelopes of changes."""
    return _small(fact) if name == "row" and isinstance(fact, int) else _constant(fact)


def _small(value: int) -> Constant:
    """Return a constant 32-bit number."""
    return Constant(value, pa.int32())


_NOT_KNOWN: dict[str, Value] = {
    "version": text(None),
    "connector": text(None),
    "name": text(None),
    "ts_ms": number(None),
    "snapshot": text(None),
    "db": text(None),
    "sequence": text(None),
    "ts_us": number(None),
    "ts_ns": number(None),
    "table": text(None),
    "server_id": number(None),
    "gtid": text(None),
    "file": text(None),
    "pos": number(None),
    "row": Constant(None, pa.int32()),
    "thread": number(None),
    "query": text(None),
}
"""The members of `source` in Debezium's order, with nothing known of any."""
_NO_TRANSACTION: tuple[tuple[str, Value], ...] = (
    ("id", text(None)),
    ("total_order", number(None)),
    ("data_collection_order", number(None)),
)


def _facts(events: TableEvents) -> dict[str, Value]:
    """Return the facts of each event, by name."""
    facts = events.changes.facts
    if facts is None:
        return {}
    if len(events) != len(events.changes):
        facts = facts.take(numbers_of(events.change))
    return dict(zip(facts.schema.names, facts.columns, strict=True))


def _letters(events: TableEvents) -> Value:
    """Return each event's `op` letter: c, u or d."""
    every = np.unique(events.op)
    if len(every) == 1:
        return text(_LETTERS[Op(int(every[0]))])
    letters = texts_of([_LETTERS[op] for op in (Op.INSERT, Op.UPDATE, Op.DELETE)])
    return pointing(events.op.astype(np.int64) - 1, letters)
