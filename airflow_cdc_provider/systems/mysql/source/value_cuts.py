"""Ask the server for the values that cut an interval of a column, if an index of its finds them.

What meets a condition has no such values. It is read at once if the server would find few rows by
an index, as it says itself; it is only about speed, so its guess will do.

Many rows may have one value, and those are never cut: a boundary is always greater than the one
before. A piece that is too big for that is cut by the key, by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never, cast

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.keys import KeyPart
from airflow_cdc_provider.core.splits import Chosen, Condition, Interval, KeyList
from airflow_cdc_provider.systems.mysql.dialect.sql import (
    behind_predicate,
    chosen_predicate,
    literal,
)
from airflow_cdc_provider.systems.mysql.server.connection import query, query_named

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


def value_cuts(
    connection: ServerConnection, table: TableId, chosen: Chosen, rows: int
) -> Iterator[KeyPart] | None:
    """Yield column values that cut the chosen rows in pieces of `rows`; None without an index."""
    match chosen:
        case KeyList():
            return iter(())
        case Condition():
            return iter(()) if _are_few(connection, table, chosen, rows) else None
        case Interval():
            is_indexed = _is_indexed(connection, table, chosen.column)
            return _cuts(connection, table, chosen, rows) if is_indexed else None
        case _:
            assert_never(chosen)


def _are_few(connection: ServerConnection, table: TableId, condition: Condition, rows: int) -> bool:
    """Tell whether the server expects to find a condition's rows by an index, at most `rows`."""
    select = f"SELECT 1 FROM {quote_table(table)} WHERE {chosen_predicate(condition)}"
    (plan,) = query_named(connection, f"EXPLAIN FORMAT=TRADITIONAL {select}")
    return plan["type"] not in {None, "ALL", "index"} and int(plan["rows"] or 0) <= rows


def _cuts(
    connection: ServerConnection, table: TableId, interval: Interval, rows: int
) -> Iterator[KeyPart]:
    """Yield values of an interval's column, about `rows` rows apart, in increasing order."""
    column = (interval.column,)
    name, reached = quote_identifier(interval.column), interval.start
    select = f"SELECT {name} FROM {quote_table(table)}"

    def first(condition: str, offset: int) -> KeyPart | None:
        found = query(
            connection, f"{select} WHERE {condition} ORDER BY {name} LIMIT 1 OFFSET {offset}"
        )
        return cast("KeyPart", found[0][0]) if found else None

    while True:
        rest = chosen_predicate(replace(interval, start=reached))
        cut = first(rest, rows)
        if cut is not None and cut == reached:
            cut = first(f"{rest} AND {behind_predicate(column, (reached,))}", 0)
        if cut is None:
            return
        yield cut
        reached = cut


def _is_indexed(connection: ServerConnection, table: TableId, column: str) -> bool:
    """Tell whether an index begins with the whole column."""
    found = query(
        connection,
        "SELECT 1 FROM information_schema.statistics "
        f"WHERE table_schema = {literal(table.database)} AND table_name = {literal(table.table)} "
        f"AND column_name = {literal(column)} AND seq_in_index = 1 AND sub_part IS NULL "
        "AND index_type = 'BTREE' LIMIT 1",
    )
    return bool(found)
