"""Ask the server for the values that cut an interval of a column, if an index of its finds them.

Many rows may have one value, and those are never cut: a boundary is always greater than the one
before. A piece that is too big for that is cut by the key, by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.keys import KeyPart
from airflow_cdc_provider.core.splits import Interval
from airflow_cdc_provider.systems.mysql.dialect.sql import (
    behind_predicate,
    interval_predicate,
    literal,
)
from airflow_cdc_provider.systems.mysql.server.connection import query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


def interval_cuts(
    connection: ServerConnection, table: TableId, interval: Interval, rows: int
) -> Iterator[KeyPart] | None:
    """Yield values that leave about so many rows between them; None without an index."""
    is_indexed = _is_indexed(connection, table, interval.column)
    return _cuts(connection, table, interval, rows) if is_indexed else None


def _cuts(
    connection: ServerConnection, table: TableId, interval: Interval, rows: int
) -> Iterator[KeyPart]:
    column = (interval.column,)
    name, reached = quote_identifier(interval.column), interval.start
    select = f"SELECT {name} FROM {quote_table(table)}"

    def first(condition: str, offset: int) -> KeyPart | None:
        found = query(
            connection, f"{select} WHERE {condition} ORDER BY {name} LIMIT 1 OFFSET {offset}"
        )
        return cast("KeyPart", found[0][0]) if found else None

    while True:
        rest = interval_predicate(replace(interval, start=reached))
        cut = first(rest, rows)
        if cut == reached:
            cut = first(f"{rest} AND {behind_predicate(column, (reached,))}", 0)
        if cut is None:
            return
        yield cut
        reached = cut


def _is_indexed(connection: ServerConnection, table: TableId, column: str) -> bool:
    """Tell whether an index has the whole column first."""
    found = query(
        connection,
        "SELECT 1 FROM information_schema.statistics "
        f"WHERE table_schema = {literal(table.database)} AND table_name = {literal(table.table)} "
        f"AND column_name = {literal(column)} AND seq_in_index = 1 AND sub_part IS NULL "
        "AND index_type = 'BTREE' LIMIT 1",
    )
    return bool(found)
