"""Rows of `cdc_table_count`: what the stream has changed in each table, and what of it today.

The sink's ledger counts from the plan's beginning on. The counts of the last look before a day
began are kept beside the newest, so that their difference is the day's. Days are those of UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.row_counts import NO_ROWS, RowCounts, TableCounts
from airflow_cdc_provider.state.rows import Values
from airflow_cdc_provider.state.tables import table_counts

_DAY_US = 86_400_000_000


def write_counts(
    connection: Connection, name: PipelineName, counts: Mapping[TableId, TableCounts], now_us: int
) -> None:
    """Store tables' newest counts of changes; the caller's transaction has the lock."""
    columns, today_us = table_counts.c, _day_of(now_us)
    mine = columns.pipeline == str(name)
    query = select(table_counts).where(mine)
    known = {row.source_table: row for row in connection.execute(query)} if counts else {}
    for table, new in counts.items():
        row = known.get(str(table))
        values = _values(new, row, today_us)
        if row is None:
            fresh = {"pipeline": str(name), "source_table": str(table), **values}
            connection.execute(insert(table_counts).values(fresh))
        elif any(getattr(row, column) != value for column, value in values.items()):
            change = update(table_counts).where(mine, columns.source_table == str(table))
            connection.execute(change.values(values))


def find_counts(
    connection: Connection, name: PipelineName, now_us: int
) -> Iterator[tuple[str, TableCounts]]:
    """Yield each table's changes of today, for tables that have counts."""
    query = select(table_counts).where(table_counts.c.pipeline == str(name))
    for row in connection.execute(query):
        is_today = row.day_us == _day_of(now_us)
        today = _counted(row) - _before(row) if is_today else NO_ROWS
        yield row.source_table, TableCounts(today, row.changed_us)


def _values(new: TableCounts, row: Row[Any] | None, today_us: int) -> Values:
    """Return a table's counts as columns, with the counts before today."""
    before = NO_ROWS
    if row is not None:
        before = _before(row) if row.day_us == today_us else _counted(row)
    if new.rows.total < before.total:  # a new plan counts anew
        before = NO_ROWS
    return {
        "day_us": today_us,
        "changed_us": new.changed_us,
        "inserts": new.rows.inserts,
        "updates": new.rows.updates,
        "deletes": new.rows.deletes,
        "inserts_before": before.inserts,
        "updates_before": before.updates,
        "deletes_before": before.deletes,
    }


def _counted(row: Row[Any]) -> RowCounts:
    """Return the counts of a row of `cdc_table_count`."""
    return RowCounts(row.inserts, row.updates, row.deletes)


def _before(row: Row[Any]) -> RowCounts:
    """Return the counts that a row of `cdc_table_count` had before today."""
    return RowCounts(row.inserts_before, row.updates_before, row.deletes_before)


def _day_of(now_us: int) -> int:
    """Return the start of the UTC day of a time."""
    return now_us - now_us % _DAY_US
