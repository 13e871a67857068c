"""The columns of a lake's table: the table's own, and what became of each row."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from airflow_cdc_provider.core.identifiers import TableId

OP, ORDER, POSITION, COMMITTED_AT = "_op", "_order", "_position", "_committed_at"
CHANGE_COLUMNS = {
    OP: pa.string(),
    ORDER: pa.int64(),
    POSITION: pa.string(),
    COMMITTED_AT: pa.timestamp("us", "UTC"),
}
"""What is told of each change, behind the table's own columns."""
SNAPSHOT_ORDER = -1
"""Of the rows that a snapshot read: before all changes."""
ROW, DOUBLED = "=", "=="
"""In the place of an operation, while a table of current rows is read: a row of it, and one whose
key it has more than once."""


def current_rows(columns: list[str], key: list[str], table: str) -> str:
    """Return the query of a table's current rows: of each key the last change, if it is no delete.

    `table` is what the engine that runs it calls the table. It is the SQL of Spark, DuckDB and
    Trino alike, but for the quotes, which are DuckDB's and Trino's.
    """
    chosen = ", ".join(map(_quoted, columns))
    keys = ", ".join(map(_quoted, key))
    latest = free_name("_latest", columns)
    return (
        f"SELECT {chosen} FROM (\n"
        f"  SELECT {chosen}, {OP},\n"
        f"    row_number() OVER (PARTITION BY {keys} ORDER BY {ORDER} DESC) AS {latest}\n"
        f"{_behind_voids(table)}"
        f") AS changes WHERE {latest} = 1 AND {OP} <> 'd'"
    )


def counted_rows(columns: list[str], table: str, floating: Collection[str] = ()) -> str:
    """Return the query of a table without a key: each row as often as it came more than it went.

    The first ones of equal rows are those that went. `floating` columns are told apart by their
    texts: engines take 0 and -0 for equal.
    """
    chosen = ", ".join(map(_quoted, columns))
    alike = ", ".join(
        f"CAST({_quoted(name)} AS VARCHAR(40))" if name in floating else _quoted(name)
        for name in columns
    )
    number, gone = free_name("_number", columns), free_name("_gone", columns)
    return (
        f"SELECT {chosen} FROM (\n"
        f"  SELECT {chosen}, {OP},\n"
        f"    row_number() OVER (PARTITION BY {alike}, {OP} = 'd' ORDER BY {ORDER}) AS {number},\n"
        f"    sum(CASE WHEN {OP} = 'd' THEN 1 ELSE 0 END) OVER (PARTITION BY {alike}) AS {gone}\n"
        f"{_behind_voids(table)}"
        f") AS changes WHERE {OP} <> 'd' AND {number} > {gone}"
    )


def _behind_voids(table: str) -> str:
    """Return the lines that choose the changes behind the last one that says all is void."""
    return (
        f"  FROM {table}\n"
        f"  WHERE {ORDER} > (SELECT coalesce(max({ORDER}), {SNAPSHOT_ORDER - 1}) FROM {table} "
        f"WHERE {OP} = 't')\n"
    )


def mirrored_rows(columns: list[str], table: str, flag: str = "") -> str:
    """Return the query of a table whose rows are the current ones, but for those with a `flag`."""
    living = f" WHERE {_quoted(flag)} = 0" if flag else ""
    return f"SELECT {', '.join(map(_quoted, columns))} FROM {table}{living}"


def free_name(name: str, columns: Iterable[str]) -> str:
    """Return a name that no column has, in any case: this one, or with more behind it."""
    taken = {column.casefold() for column in columns}
    while name in taken:
        name += "_"
    return name


def name_in_catalog(table: TableId) -> str:
    """Return a table's name in a catalog, quoted: its database is the namespace."""
    return f"{_quoted(table.database)}.{_quoted(table.table)}"


def _quoted(name: str) -> str:
    """Return a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'
