"""A split's rows into a range of a sink's table that holds none, inside the session's transaction.

They go in by the cheapest way that is right: the source's own bytes where no change had to be
replayed onto them, else from Arrow; by LOAD DATA LOCAL where the sink allows it, else as the
values of a prepared INSERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.rows import DecodesChunks, SplitRows
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import writers
from airflow_cdc_provider.systems.mysql.sink.enum_zero import enums_of
from airflow_cdc_provider.systems.mysql.sink.insert_statements import RowValues, WriteMode
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import create_ledger
from airflow_cdc_provider.systems.mysql.sink.marked_rows import living_and, marking
from airflow_cdc_provider.systems.mysql.sink.row_writer import RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.table_drift import TableLooks
from airflow_cdc_provider.systems.mysql.wire.load_text import LoadText, load_chunk, load_rows
from airflow_cdc_provider.systems.mysql.wire.parameters import chunk_parameters, row_parameters
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk

if TYPE_CHECKING:
    import pyarrow as pa


class LoadMethod(Enum):
    """How a split's rows are written: by LOAD DATA, by INSERT, or by INSERT after a refusal."""

    LOAD = auto()
    INSERT = auto()
    AGAIN = auto()
    """By INSERT, for one of the others was refused."""


class SplitRowWriter:
    """Writes the rows of splits into the sink's tables, over one session."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        zero_dates: ZeroDates,
    ) -> None:
        self._session = session
        self._plans = {plan.schema.table: plan for plan in plans}
        self.zero_dates = zero_dates
        create_ledger(session)
        self._lock = writers.register_writer(session, owner)
        self._looks = TableLooks(session, owner, plans)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        writers.unregister_writer(self._session, self._lock)
        self._session.close()

    def plan_of(self, split: SnapshotSplit) -> TablePlan:
        """Return the plan of a split's table."""
        return self.plan_of_table(split.table)

    def plan_of_table(self, table: TableId) -> TablePlan:
        """Return a table's plan."""
        return self._plans[table]

    def require_as_planned(self, table: TableId) -> None:
        """Refuse to write to a sink table whose definition has drifted.

        It is locked to the commit.
        """
        self._looks.require_as_planned(self._plans[table])

    @property
    def first_method(self) -> LoadMethod:
        """Return the method to try first: LOAD DATA where the sink allows it, else INSERT."""
        return (
            LoadMethod.LOAD if self._session.capabilities.takes_local_files else LoadMethod.INSERT
        )

    def writer_of(self, table: TableId) -> RowWriter:
        """Return the row writer of a table."""
        plan = self.plan_of_table(table)
        columns, key = plan.target.copied_columns, key_columns(plan.target)
        return RowWriter(self._session, plan.sink_table, columns, key, plan.shard)

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        """Delete all rows in a split's range, or mark them; of `rows` nothing is left there.

        `stamp` says which read did not find those that are marked.
        """
        plan, writer = self.plan_of(split), self.writer_of(split.table)
        at_sink = plan.split_at_sink(split)
        condition = range_predicate(at_sink.key_columns, at_sink.keys)
        if not plan.shape.deleted_flag:
            writer.delete_where(condition)
            return
        writer.update_where(living_and(plan, condition), marking(plan, stamp))
        for batch in rows.batches():
            writer.delete_keys(batch.select(list(plan.target.primary_key)))

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        """Write a split's rows, none of which meets an old one; return their number.

        `again`: they were refused before. By INSERT a refusal names the row.
        """
        way = LoadMethod.AGAIN if again else self.first_method
        columns = self.plan_of(split).target.copied_columns
        writer = self.writer_of(split.table)
        # what is no member of an ENUM is found in columns only
        in_columns = way is LoadMethod.AGAIN and bool(enums_of(columns))
        if in_columns or rows.native_chunks() is None:
            return writer.write(rows.batches(), WriteMode.INSERT, load=way is LoadMethod.LOAD)
        if way is LoadMethod.LOAD:
            return writer.load(
                _rewritten(
                    rows,
                    lambda chunk: load_chunk(chunk, columns, self.zero_dates),
                    lambda batch: load_rows(batch, columns),
                )
            )
        values = _rewritten(
            rows,
            lambda chunk: self._values(chunk, columns, rows),
            lambda batch: RowValues(row_parameters(batch, columns), lambda: batch),
        )
        return writer.insert_values(values, rows=rows.rows, size=rows.bytes, otherwise=rows.batches)

    def _values(
        self, chunk: TextChunk, columns: Sequence[Column], rows: SplitRows
    ) -> RowValues | None:
        """Encode a chunk of source bytes as prepared values; None if that is not possible."""
        if not isinstance(rows, DecodesChunks):
            return None
        parameters = chunk_parameters(chunk, columns, self.zero_dates)
        return None if parameters is None else RowValues(parameters, lambda: rows.batch_of(chunk))


Rewritten = TypeVar("Rewritten", LoadText, RowValues)


def _rewritten(
    rows: SplitRows,
    of_chunk: Callable[[TextChunk], Rewritten | None],
    of_batch: Callable[[pa.RecordBatch], Rewritten],
) -> Iterator[Rewritten]:
    """Yield chunks of source bytes rewritten for the sink; from Arrow where that is impossible.

    From the first chunk of another protocol on, or the first one that must come from Arrow and
    that `rows` cannot decode by itself, all rows come from Arrow.
    """
    done = 0
    for chunk in rows.native_chunks() or ():
        if not isinstance(chunk, TextChunk):
            break
        text = of_chunk(chunk)
        if text is None and isinstance(rows, DecodesChunks):
            text = of_batch(rows.batch_of(chunk))
        if text is None:
            break
        yield text
        done += chunk.rows
    if done < rows.rows:
        for batch in _behind(rows.batches(), done):
            yield of_batch(batch)


def _behind(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches' rows after the first `rows` rows."""
    for batch in batches:
        if batch.num_rows <= rows:
            rows -= batch.num_rows
            continue
        yield batch.slice(rows)
        rows = 0
