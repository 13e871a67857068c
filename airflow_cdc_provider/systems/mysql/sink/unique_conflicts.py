"""Unique values of rows that were read again, held by other rows of the sink.

Where the stream is, no two rows of the source have one unique value. So whoever else holds a value
of a row that joins has drifted, if it is outside the rows that have joined already. Inside what the
request reads again it is deleted, with the row's own transaction, and the ledger keeps its key with
the split: its own range comes later, and then it is right, or it is not at the source at all. A
request that ends before that reads it by its key. Outside, nobody would bring it back, and the
request is refused.

A table that several of the source share has no unique keys. If somebody has just added one, no row
of another shard is deleted for it: such a row is an error.

Only keys over whole columns with values of their own are looked at. What another key stands
against (a prefix, an expression, a generated column) the server refuses when the row is inserted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, of_shard, range_predicate
from airflow_cdc_provider.systems.mysql.sink.sink_keys import keys_where
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

log = logging.getLogger(__name__)

_VALUES_IN_A_STATEMENT = 2_000
"""More would leave the optimizer's memory for ranges, and it would read the whole table."""
_ROOM_FOR_THE_REST = 1 << 16


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A secondary unique key of the sink's table, over whole columns that are written."""

    name: str
    columns: tuple[Column, ...]


def free_unique_values(
    session: SinkSession,
    plan: TablePlan,
    rows: SplitRows,
    *,
    within: Sequence[KeyRange],
    kept: Sequence[KeyRange],
) -> list[pa.Table]:
    """Delete rows in the ranges `within` that hold unique values of `rows`; return their keys.

    A holder elsewhere, or in one of the ranges that are to be `kept`, is an error.
    """
    freed: list[pa.Table] = []
    names = _names_of_ranges(plan)
    keys = _listed(key_columns(plan.target))
    inside = f"({_in_one_of(names, within)}) AND NOT ({_in_one_of(names, kept)})"
    may_go = of_shard(plan.shard, inside)
    table = quote_table(plan.sink_table)
    for index in _unique_indexes(session, plan):
        for values in _values(session, rows, index):
            held = f"({_listed(index.columns)}) IN ({values})"
            look = f"SELECT {keys} FROM {table} WHERE {held} AND NOT ({may_go}) LIMIT 1"
            if found := session.rows(look):
                raise _refused(session, plan.sink_table, index, found[0])
            gone = keys_where(session, plan, f"{held} AND {may_go}", "FOR UPDATE")
            if gone.num_rows:
                session.execute(f"DELETE FROM {table} WHERE {held} AND {may_go}")
                freed.append(gone)
                log.warning(
                    "rows that hold others' unique values deleted: table=%s key=%s rows=%d",
                    plan.sink_table,
                    index.name,
                    gone.num_rows,
                )
    return freed


def _names_of_ranges(plan: TablePlan) -> tuple[str, ...]:
    """Return the sink's columns that ranges of the source's key are over."""
    if plan.shape.is_identity:
        return plan.target.primary_key
    return plan.shape.source_key_of(plan.schema)


def _in_one_of(key: Sequence[str], ranges: Sequence[KeyRange]) -> str:
    """Return the condition that a key is in one of the ranges."""
    return " OR ".join(f"({range_predicate(key, keys)})" for keys in ranges) or "FALSE"


def _values(session: SinkSession, rows: SplitRows, index: UniqueIndex) -> Iterator[str]:
    """Yield lists of the rows' values for a unique key, as SQL text.

    Values with a NULL are left out.
    """
    capabilities = session.capabilities
    for batch in rows.batches():
        values = batch.select([column.name for column in index.columns]).drop_null()
        for at in range(0, values.num_rows, _VALUES_IN_A_STATEMENT):
            some = values.slice(at, _VALUES_IN_A_STATEMENT)
            text = key_list(some, index.columns, own_charset=capabilities.is_mariadb)
            for first, end in text.runs(capabilities.statement_bytes - _ROOM_FOR_THE_REST):
                yield bytes(text.run(first, end)).decode()


def _unique_indexes(session: SinkSession, plan: TablePlan) -> list[UniqueIndex]:
    """Return the sink table's secondary unique keys over whole columns that are written.

    A unique key of the same columns as the table's key is none: two rows of one value are one.
    """
    written = {column.name.lower(): column for column in plan.target.copied_columns}
    own = {*plan.target.primary_key}
    found: dict[str, list[Column | None]] = {}
    for index, column, prefix in session.rows(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
        f"WHERE table_schema = {literal(plan.sink_table.database)} "
        f"AND table_name = {literal(plan.sink_table.table)} AND non_unique = 0 "
        "AND index_name <> 'PRIMARY' ORDER BY index_name, seq_in_index"
    ):
        whole = column is not None and prefix is None
        found.setdefault(str(index), []).append(written.get(column.lower()) if whole else None)
    return [
        UniqueIndex(name, tuple(column for column in columns if column is not None))
        for name, columns in found.items()
        if None not in columns and {column.name for column in columns if column} != own
    ]


def _listed(columns: Iterable[Column]) -> str:
    """Return the columns' quoted names, parted by commas."""
    return ", ".join(quote_identifier(column.name) for column in columns)


def _refused(
    session: SinkSession, table: TableId, index: UniqueIndex, key: Sequence[object]
) -> RowRefusedError:
    """Return the error for a unique value that is held by a row which is not read again."""
    shown = "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)
    return RowRefusedError(
        f"unique key {index.name} of {table} has a value of a row that is read again in a row that "
        f"is not, with the key {shown}",
        where=f"table {table} on {session.where}",
        risk="nothing was written; the sink's row is not as the source has it",
        remedy="have the whole table read again, and find who else writes to the sink",
    )
