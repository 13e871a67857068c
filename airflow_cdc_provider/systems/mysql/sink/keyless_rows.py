"""Rows of a table without a key are deleted by all that they hold, each as often as the log says.

Nothing else tells the server which row is meant, so it reads the whole table for each statement,
unless it has an index that helps. Many rows go by one statement, after a look at how many of each
there are. Where the sink has more than are to go, a statement of their own takes as many as that.
Where it has fewer, the copy is not what the source was, and that is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.row_keys import row_codes
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.systems.mysql.wire.row_match import any_of, matches_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.numpy_types import IntArray
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
    from airflow_cdc_provider.systems.mysql.wire.sql_text import RowsText

_MOST_AT_ONCE = 100
"""Each row of the table is compared with as many."""


def delete_rows(session: SinkSession, plan: TablePlan, rows: pa.RecordBatch) -> None:
    """Delete these rows from a plan's sink table, one row for each; `IntegrityError` if one lacks.

    `rows` have all of the table's columns.
    """
    if not rows.num_rows:
        return
    distinct, counts = _counted(rows)
    capabilities = session.capabilities
    columns = plan.target.copied_columns
    text = matches_sql(distinct, columns, is_mariadb=capabilities.is_mariadb)
    deletes = _Deletes(session, plan, text, counts)
    for first, end in text.runs(capabilities.statement_bytes // 4):
        for at in range(first, end, _MOST_AT_ONCE):
            deletes.run(at, min(end, at + _MOST_AT_ONCE))


def _counted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, IntArray]:
    """Return each distinct row once, and how often it is there."""
    (codes,) = row_codes([rows.columns]).groups
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return rows.take(numbers_of(first)), counts


class _Deletes:
    """Deletes rows of one table by their conditions."""

    def __init__(
        self, session: SinkSession, plan: TablePlan, text: RowsText, counts: IntArray
    ) -> None:
        self._session = session
        self._plan = plan
        self._text = text
        self._counts = counts
        self._from = b" FROM " + quote_table(plan.sink_table).encode() + b" WHERE "

    def run(self, first: int, end: int) -> None:
        """Delete a run of rows, each as often as it is to go."""
        if end - first == 1:
            self._delete_some(first)
            return
        held = self._held(first, end)
        wanted = self._counts[first:end]
        if np.array_equal(held, wanted):
            self._delete(any_of(self._text, first, end), int(wanted.sum()))
            return
        for number in range(first, end):
            self._delete_some(number)

    def _held(self, first: int, end: int) -> IntArray:
        """Return how many of each of these rows the table has."""
        cases = b"".join(
            b" WHEN " + any_of(self._text, number, number + 1) + b" THEN %d" % (number - first)
            for number in range(first, end)
        )
        where = any_of(self._text, first, end)
        sql = b"SELECT CASE" + cases + b" END, COUNT(*)" + self._from + where + b" GROUP BY 1"
        held = np.zeros(end - first, np.int64)
        for number, count in self._session.rows(sql.decode()):
            held[int(number)] = int(count)
        return held

    def _delete_some(self, number: int) -> None:
        """Delete as many of one row as are to go; there may be more."""
        count = int(self._counts[number])
        self._delete(any_of(self._text, number, number + 1) + b" LIMIT %d" % count, count)

    def _delete(self, which: bytes, count: int) -> None:
        """Delete rows; `IntegrityError` unless as many went."""
        gone = self._session.execute(b"DELETE" + self._from + which).affected_rows
        if gone != count:
            raise self._lacking(count, gone)

    def _lacking(self, count: int, gone: int) -> IntegrityError:
        """Return the error for a sink that does not have the rows that the log takes away."""
        table = self._plan.schema.table
        return IntegrityError(
            f"the log takes {count} rows of one content from {table}, which has no key, and the "
            f"sink has {gone} of them",
            where=f"table {self._plan.sink_table} on {self._session.where}",
            risk="somebody else has written to the sink's table; nothing of the batch was kept",
            remedy=f"`reset` it with --table {table}: all its rows are read again",
        )
