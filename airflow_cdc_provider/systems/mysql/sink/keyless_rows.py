"""Rows of a table without a key are deleted by all that they hold, each as often as the log says.

Nothing else tells the server which row is meant, so it reads the whole table for each statement,
unless it has an index that helps. So many rows go by one statement, and a list of one column's
values spares the comparison of nearly all rows with each of them. Before it a look says how many of
each there are. Where the sink has more than are to go, all of them go and the rest is written anew;
where a row may hold more than is copied, or other texts of JSON are the same document, a statement
of its own takes as many as are to go.
Where the sink has fewer, the copy is not what the source was, and that is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.row_keys import row_codes
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table, table_option
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.systems.mysql.wire.row_match import any_of, matches_sql
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.numpy_types import IntArray
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.core.table_schema import Column
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_MOST_AT_ONCE = 500
_LISTED = frozenset({TypeKind.INTEGER, TypeKind.DECIMAL, TypeKind.TEMPORAL})
"""Kinds of columns whose values servers look up in a list by bisection."""


def delete_rows(
    session: SinkSession, plan: TablePlan, rows: pa.RecordBatch, *, are_whole: bool
) -> pa.RecordBatch:
    """Delete these rows from a plan's sink table, one row for each; `IntegrityError` if one lacks.

    `rows` have all of the table's columns that are copied; `are_whole`: the sink's rows have no
    others. Returns rows that have gone as well, and are to be written again.
    """
    if not rows.num_rows:
        return rows
    deletes = _Deletes(session, plan, rows, are_whole=are_whole)
    limit = session.capabilities.statement_bytes // 4
    again = [rows.slice(0, 0)]
    for first, end in deletes.text.runs(limit):
        starts = range(first, end, _MOST_AT_ONCE)
        again += [deletes.run(at, min(end, at + _MOST_AT_ONCE)) for at in starts]
    return pa.concat_batches(again)


class _Deletes:
    """Deletes rows of one table by their conditions."""

    def __init__(
        self, session: SinkSession, plan: TablePlan, rows: pa.RecordBatch, *, are_whole: bool
    ) -> None:
        (codes,) = row_codes([rows.columns]).groups
        _, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
        columns = plan.target.copied_columns
        self._session = session
        self._plan = plan
        self._are_whole = are_whole and not any(each.type.name == "json" for each in columns)
        self._rows = rows.take(numbers_of(firsts))
        self._counts: IntArray = counts
        self.text = matches_sql(self._rows, columns, is_mariadb=session.capabilities.is_mariadb)
        self._listed = _most_telling(self._rows, columns)
        self._from = b" FROM " + quote_table(plan.sink_table).encode() + b" WHERE "

    def run(self, first: int, end: int) -> pa.RecordBatch:
        """Delete a run of rows, each as often as it is to go; return those to be written again."""
        none = self._rows.slice(0, 0)
        if end - first == 1:
            self._delete_some(first)
            return none
        held = self._held(first, end)
        more = held - self._counts[first:end]
        # of two texts of JSON that are one document at the sink, the first was counted for both
        if (more < 0).any() or (more.any() and not self._are_whole):
            for number in range(first, end):
                self._delete_some(number)
            return none
        self._delete(self._which(first, end), int(held.sum()))
        return self._rows.take(numbers_of(np.repeat(np.arange(first, end), more)))

    def _which(self, first: int, end: int) -> bytes:
        """Return the condition that a row is one of these."""
        matches = any_of(self.text, first, end)
        if self._listed is None:
            return matches
        name = quote_identifier(self._listed.name).encode()
        some = self._rows.slice(first, end - first)
        values = key_list(some, [self._listed])
        return b"%b IN (%b) AND (%b)" % (name, bytes(values.run(0, values.rows)), matches)

    def _held(self, first: int, end: int) -> IntArray:
        """Return how many of each of these rows the table has."""
        cases = b"".join(
            b" WHEN " + any_of(self.text, number, number + 1) + b" THEN %d" % (number - first)
            for number in range(first, end)
        )
        sql = b"SELECT CASE%b END, COUNT(*)%b%b GROUP BY 1" % (
            cases,
            self._from,
            self._which(first, end),
        )
        held = np.zeros(end - first, np.int64)
        for number, count in self._session.rows(sql.decode()):
            held[int(number)] = int(count)
        return held

    def _delete_some(self, number: int) -> None:
        """Delete as many of one row as are to go; there may be more."""
        count = int(self._counts[number])
        self._delete(self._which(number, number + 1) + b" LIMIT %d" % count, count)

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
            remedy=f"`reset` it with {table_option(table)}: all its rows are read again",
        )


def _most_telling(rows: pa.RecordBatch, columns: tuple[Column, ...]) -> Column | None:
    """Return the column, of those that may be listed, that has the most values; None for none."""
    found = {
        column: int(pc.count_distinct(rows.column(column.name)).as_py())
        for column in columns
        if column.type.kind in _LISTED and not rows.column(column.name).null_count
    }
    return max(found, key=found.__getitem__) if found else None
