"""Row changes of the log as columns, and the batches they travel in.

A batch is a run of whole source transactions, so that its end is a place a checkpoint may be.
Inside it, the changes of one table stand together as columns; `ordinal` keeps the order in
which the log had them, across all tables of the batch. One transaction may be larger than
memory: then it travels in several batches, and all but the last have no `end`.

Values follow the source's value model: the same Arrow type and the same canonical value whether
a row came by SELECT or from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import Fact, LogPosition, TransactionPoint
from airflow_cdc_provider.core.row_counts import RowCounts
from airflow_cdc_provider.core.statement_effect import StatementEffect

if TYPE_CHECKING:
    import pyarrow as pa


class Op(IntEnum):
    """The kind of a row change: insert, update or delete."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3


DEFINED_OTHERWISE = b"defined otherwise"
"""In the metadata of a schema: which columns were defined otherwise when the log was written, where
the types of their values do not tell."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table in log order, one entry a changed row.

    `before` and `after` have the table's columns in table order, generated ones included, with
    the schema that the log had at that time. An insert's `before` and a delete's `after` are
    rows of nulls. The arrays all have the same length.
    """

    table: TableId
    transaction: pa.Array
    """int32: index into the batch's `transactions`."""
    ordinal: pa.Array
    """int64: place among all changes of the batch, over all tables; increasing."""
    op: pa.Array
    """int8: a value of `Op`."""
    before: pa.RecordBatch
    after: pa.RecordBatch
    facts: pa.RecordBatch | None = None
    """What the log tells of each change besides, if a sink asked: by Debezium's names."""

    def __len__(self) -> int:
        return len(self.op)

    @property
    def counts(self) -> RowCounts:
        """Return how many rows were inserted, updated and deleted."""
        kinds = {each["values"]: each["counts"] for each in self.op.value_counts().to_pylist()}
        return RowCounts(*(kinds.get(int(op), 0) for op in (Op.INSERT, Op.UPDATE, Op.DELETE)))

    def take(self, places: pa.Array) -> TableChanges:
        """Return the changes at these row numbers, which are in order."""
        return TableChanges(
            self.table,
            self.transaction.take(places),
            self.ordinal.take(places),
            self.op.take(places),
            self.before.take(places),
            self.after.take(places),
            None if self.facts is None else self.facts.take(places),
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement the log carries as text: DDL, or anything that is not a row change."""

    database: str
    sql: str
    point: TransactionPoint
    effect: StatementEffect
    """What it does to tables."""
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)
    """What the log tells of it besides, as of changes."""
    refusal: CdcError | None = field(default=None, compare=False)
    """Why nobody may go on behind it who has a table that it may have changed; None for DDL."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Whole source transactions in columns, or a part of one too large for memory.

    `end` covers the batch; None means that a transaction goes on in the next batch, and the
    sink keeps its own transaction open. A `barrier` is a statement behind the batch's rows:
    the batch ends with it, and `end` covers it.
    """

    start: LogPosition
    end: LogPosition | None
    transactions: Sequence[TransactionPoint]
    """A tuple, or columns that make a record of each when asked."""
    tables: Sequence[TableChanges]
    """A tuple, or a few changes that become columns when asked (`few_changes`)."""
    barrier: Statement | None = None
    bytes: int = field(default=0, compare=False)
    """Bytes of log behind this batch."""
    only_ledgers: bool = field(default=False, compare=False)
    """That log holds rows of pipelines' ledgers, or no transaction at all."""
    origins: frozenset[str] = frozenset()
    """The nodes where its transactions were written; empty if the log is read without that rule."""
    knew: KnownLog | None = None
    """Up to where the opposite edge of a topology had brought the sink's log to the source by then.

    None if the log has said nothing of that since the reader's start, or is read without asking.
    """

    @property
    def changes(self) -> int:
        """Return the number of row changes."""
        counted = getattr(self.tables, "changes", None)
        return sum(len(table) for table in self.tables) if counted is None else int(counted)
