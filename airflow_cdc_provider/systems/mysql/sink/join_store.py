"""Rows that join the stream in a MySQL-protocol sink, over one session.

When they may join, and which rows go for them, is `engine.sink.join_sink`'s to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.join_sink import RowDiff
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import living, split_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import unique_conflicts
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.join_ledger import MySqlJoinLedger
from airflow_cdc_provider.systems.mysql.sink.marked_rows import living_and, marking
from airflow_cdc_provider.systems.mysql.sink.marker_rows import MarkerRows, create_marker
from airflow_cdc_provider.systems.mysql.sink.row_diff import row_diff_of
from airflow_cdc_provider.systems.mysql.sink.sink_keys import keys_where, no_keys
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.split_row_writer import LoadMethod, SplitRowWriter
from airflow_cdc_provider.systems.mysql.sink.text_weights import TextWeights

if TYPE_CHECKING:
    import pyarrow as pa


class MySqlJoinStore:
    """One session to a sink, for the joins of one pipeline."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        *,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        edge: Topology | None = None,
    ) -> None:
        self.session = session
        self._marker = MarkerRows(edge)
        create_marker(session, edge)
        self._writer = SplitRowWriter(session, owner, plans, zero_dates)
        self.ledger = MySqlJoinLedger(session, owner)
        self.rows = MySqlJoinRows(session, self._writer)

    def text_weights(self) -> TextWeights:
        """Return what asks the server which texts are equal, over the same session."""
        return TextWeights(self.session)

    def mark(self) -> None:
        """Mark the transaction, before its first row, as its topology wants it."""
        self._marker.mark_read(self.session)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._writer.close()


class MySqlJoinRows:
    """The rows that joins replace."""

    def __init__(self, session: SinkSession, writer: SplitRowWriter) -> None:
        self._session = session
        self._writer = writer

    def plan_of(self, table: TableId) -> TablePlan:
        """Return a table's plan."""
        return self._writer.plan_of_table(table)

    def require_as_planned(self, table: TableId) -> None:
        """Refuse to write to a table whose definition has drifted; it stays so until the commit."""
        self._writer.require_as_planned(table)

    def difference(self, split: SnapshotSplit, wanted: SplitRows) -> RowDiff | None:
        """Compare the split's rows with the wanted ones; None if all are to be written."""
        plan = self.plan_of(split.table)
        condition = living_and(plan, split_predicate(plan.split_at_sink(split)))
        return row_diff_of(self._session, plan, condition, wanted, self._writer.zero_dates)

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        """Take away all rows in the split's range, and those in whose place `rows` come."""
        self._writer.clear_range(split, rows, stamp)

    def take_away(self, table: TableId, keys: pa.RecordBatch, stamp: RowStamp) -> None:
        """Delete the rows with these keys, or mark them as the table keeps deleted rows."""
        plan, writer = self.plan_of(table), self._writer.writer_of(table)
        if plan.shape.deleted_flag:
            only = living(plan.shape.deleted_flag)
            writer.update_keys(keys, marking(plan, stamp), only=only)
        else:
            writer.delete_keys(keys)

    def delete_keys(self, table: TableId, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys."""
        self._writer.writer_of(table).delete_keys(keys)

    def insert(self, table: TableId, rows: pa.RecordBatch) -> None:
        """Write rows, none of which meets an old one but one that is marked as deleted."""
        load = self._writer.first_method is LoadMethod.LOAD
        plan, writer = self.plan_of(table), self._writer.writer_of(table)
        if plan.shape.deleted_flag:
            writer.delete_keys(rows.select(list(plan.target.primary_key)))
        writer.write([rows], WriteMode.INSERT, load=load)

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        """Write a split's rows, `again` by INSERT; return their number."""
        return self._writer.write(split, rows, again=again)

    def free_unique_values(
        self,
        table: TableId,
        rows: SplitRows,
        *,
        within: Sequence[KeyRange],
        kept: Sequence[KeyRange],
    ) -> Sequence[pa.Table]:
        """Delete rows in the ranges `within` that hold unique values of `rows`; return their keys.

        A holder elsewhere, or in one of the ranges that are to be `kept`, is an error.
        """
        plan = self.plan_of(table)
        if plan.shape.deleted_flag:
            return ()  # no row of it is deleted; the insert names who has the value
        return unique_conflicts.free_unique_values(
            self._session, plan, rows, within=within, kept=kept
        )

    def keys_in(self, split: SnapshotSplit, most: int) -> pa.Table:
        """Return the keys of at most so many rows of a split."""
        plan = self.plan_of(split.table)
        condition = living_and(plan, split_predicate(plan.split_at_sink(split)))
        return keys_where(self._session, plan, condition, f"LIMIT {most}")

    def no_keys(self, table: TableId) -> pa.Table:
        """Return an empty table with the columns of a table's key."""
        return no_keys(self.plan_of(table))
