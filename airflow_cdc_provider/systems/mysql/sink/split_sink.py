"""Publishing splits into MySQL-protocol sinks: whole or not at all (law 4).

One transaction deletes all the sink holds in the split's range, writes the rows, stores the
report, makes sure that this writer is still the owner, and commits. Publishing a split again,
read at a later time, leaves what that read saw: rows deleted at the source in between go with
the range. The very same report again is recognised and left alone, so a commit whose reply was
lost costs nothing.

**A range that holds nothing is not deleted.** A DELETE also locks the first row behind its range,
and would wait until the neighbour that is being published there has committed: one reader behind
the other, where all of them could write. So the range is looked at first, without a lock: once
as it is committed and once with what is not committed yet, for a DELETE would find both. Only if
neither shows a row it is left out. Whatever fails then is tried once more, behind a DELETE.
Another attempt at the same split would not be stopped by that, so there is one at a time.

The rows go in by the cheapest way that is right: the source's own bytes where no change had to be
replayed onto them, else from Arrow; by LOAD DATA LOCAL where the sink allows it, else as the
values of a prepared INSERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.rows import DecodesChunks, SplitRows
from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.errors import FencedError, IntegrityError, RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import ledger, writers
from airflow_cdc_provider.systems.mysql.sink.insert_statements import RowValues, WriteMode
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import create_ledger
from airflow_cdc_provider.systems.mysql.sink.no_members import enums_of
from airflow_cdc_provider.systems.mysql.sink.row_writer import LoadDoubtedError, RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.wire.load_text import LoadText, load_chunk, load_rows
from airflow_cdc_provider.systems.mysql.wire.parameters import chunk_parameters, row_parameters
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk

if TYPE_CHECKING:
    import pyarrow as pa


class _Way(Enum):
    """How a split's rows are written."""

    LOAD = auto()
    INSERT = auto()
    AGAIN = auto()
    """By INSERT, for one of the others was refused."""


class MySqlSplitSink:
    """Publishes splits over one session."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        *,
        zero_dates: ZeroDates = ZeroDates.FAIL,
    ) -> None:
        self._session = session
        self._owner = owner
        self._plans: Mapping[TableId, TablePlan] = {plan.schema.table: plan for plan in plans}
        self._zero_dates = zero_dates
        create_ledger(session)
        self._lock = writers.announce(session, owner)

    def close(self) -> None:
        """Let go of the connection; a transaction that is open is rolled back."""
        writers.withdraw(self._session, self._lock)
        self._session.close()

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Replace all the sink holds in the split's range by `rows`, and store the report."""
        if rows.rows != report.rows:
            raise IntegrityError(
                f"split {split.split_id} has {rows.rows} rows, its report says {report.rows}",
                where=f"publishing to {self._session.where}",
                risk="rows could be missing; nothing was written",
                remedy="read the split again; if it stays, report this",
            )
        with writers.alone_with(self._session, self._owner, split):
            self._publish_alone(split, rows, report)

    def _publish_alone(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        by_load = self._session.capabilities.takes_local_files
        is_empty = [self._holds_nothing(split)]  # of the first try

        def publish(way: _Way) -> None:
            delete = not (is_empty and is_empty.pop())
            self._publish(split, rows, report, way, delete=delete)

        try:
            self._session.transaction(lambda: publish(_Way.LOAD if by_load else _Way.INSERT))
        except (LoadDoubtedError, RowRefusedError):
            # by INSERT, which names the row, and on a range that was deleted in any case
            self._session.transaction(lambda: publish(_Way.AGAIN))

    def _holds_nothing(self, split: SnapshotSplit) -> bool:
        """Tell whether a DELETE of the split's range would neither find a row nor wait for one."""
        table = quote_table(self._plans[split.table].sink_table)
        predicate = range_predicate(split.key_columns, split.keys)
        look = f"SELECT 1 FROM {table} WHERE {predicate} LIMIT 1"
        if self._session.rows(look):
            return False
        self._session.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")  # of the next one
        return not self._session.rows(look)

    def _publish(
        self,
        split: SnapshotSplit,
        rows: SplitRows,
        report: SplitReport,
        way: _Way,
        *,
        delete: bool,
    ) -> None:
        ledger.check_generation(self._session, self._owner)
        if ledger.finished_report(self._session, self._owner, split) == (split, report):
            return
        plan = self._plans[split.table]
        if delete:
            predicate = range_predicate(split.key_columns, split.keys)
            self._session.execute(f"DELETE FROM {quote_table(plan.sink_table)} WHERE {predicate}")
        stored = self._write(plan, rows, way)
        if stored != rows.rows:
            raise IntegrityError(
                f"{stored} of {rows.rows} rows of split {split.split_id} were written",
                where=f"table {plan.sink_table} on {self._session.where}",
                risk="none: the transaction is rolled back",
                remedy="read the split again; if it stays, report this",
            )
        plan_id = ledger.claim_commit(self._session, self._owner)
        if ledger.stream_owns(self._session, self._owner, split.table):
            raise FencedError(
                f"{split.table} was handed off to the stream, no split of it is published any more",
                where=f"split {split.split_id}, ledger on {self._session.where}",
                risk="none: its transaction is rolled back",
                remedy="nothing: a late reader has ended",
            )
        ledger.store_report(self._session, self._owner, plan_id, split, report)

    def _write(self, plan: TablePlan, rows: SplitRows, way: _Way) -> int:
        columns = plan.schema.copied_columns
        writer = RowWriter(self._session, plan.sink_table, columns, key_columns(plan.schema))
        # what is no member of an ENUM is found in columns only
        in_columns = way is _Way.AGAIN and bool(enums_of(columns))
        if in_columns or rows.native_chunks() is None:
            return writer.write(rows.batches(), WriteMode.INSERT, load=way is _Way.LOAD)
        if way is _Way.LOAD:
            return writer.load(
                _rewritten(
                    rows,
                    lambda chunk: load_chunk(chunk, columns, self._zero_dates),
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
        if not isinstance(rows, DecodesChunks):
            return None
        parameters = chunk_parameters(chunk, columns, self._zero_dates)
        return None if parameters is None else RowValues(parameters, lambda: rows.batch_of(chunk))


Rewritten = TypeVar("Rewritten", LoadText, RowValues)


def _rewritten(
    rows: SplitRows,
    of_chunk: Callable[[TextChunk], Rewritten | None],
    of_batch: Callable[[pa.RecordBatch], Rewritten],
) -> Iterator[Rewritten]:
    """Rewrite chunks as they are; those that cannot be, or hold zero dates, go by way of Arrow.

    So do those of another protocol. Rows that cannot decode a chunk by itself go by Arrow from
    the first such chunk on.
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
    """Yield what follows the first `rows` rows."""
    for batch in batches:
        if batch.num_rows <= rows:
            rows -= batch.num_rows
            continue
        yield batch.slice(rows)
        rows = 0
