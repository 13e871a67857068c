"""The queries of tables' current rows, in the SQL that Spark, DuckDB and Trino read alike.

Only the quotes around names differ: DuckDB's and Trino's are double, Spark's are backticks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.systems.lake.columns import OP, ORDER, SNAPSHOT_ORDER, free_name

_DOUBLE = '"'


def query_of(
    plan: TablePlan,
    names: Sequence[str],
    *,
    is_mirror: bool,
    quote: str = _DOUBLE,
    catalog: str = "",
) -> str:
    """Return the query of a table's current rows in these columns, by its name in the catalog.

    With `catalog`, the name that an engine has for it, from anywhere in that engine.
    """
    target, table = plan.target, name_in_catalog(plan.sink_table, quote)
    if catalog:
        table = f"{_quoted(catalog, quote)}.{table}"
    if is_mirror:
        return mirrored_rows(names, table, plan.shape.deleted_flag, quote=quote)
    if not target.has_key:
        floats = (c.name for c in target.copied_columns if c.type.kind is TypeKind.FLOAT)
        return counted_rows(names, table, frozenset(floats), quote=quote)
    if plan.shard is not None:
        return rows_of_shards(names, target.primary_key, table, plan.shard.name, quote=quote)
    return current_rows(names, target.primary_key, table, quote=quote)


def rows_of_shards(
    columns: Sequence[str], key: Sequence[str], table: str, shard: str, *, quote: str = _DOUBLE
) -> str:
    """Return the query of the current rows of a table that several of the source share.

    What says that all is void has the value of its `shard`; without one it is of all of them.
    """
    chosen, own = _list(columns, quote), _quoted(shard, quote)
    latest, void = free_name("_latest", columns), free_name("_void", columns)
    of_all = f"{OP} = 't' AND {own} IS NULL"
    return (
        f"SELECT {chosen} FROM (\n"
        f"  SELECT {chosen}, {OP}, {ORDER},\n"
        f"    row_number() OVER (PARTITION BY {_list(key, quote)} ORDER BY {ORDER} DESC) "
        f"AS {latest},\n"
        f"    max(CASE WHEN {OP} = 't' THEN {ORDER} END) OVER (PARTITION BY {own}) AS {void}\n"
        f"{_behind_voids(table, of_all)}"
        f") AS changes WHERE {latest} = 1 AND {OP} NOT IN ('d', 't')\n"
        f"  AND ({void} IS NULL OR {ORDER} > {void})"
    )


def current_rows(
    columns: Sequence[str], key: Sequence[str], table: str, *, quote: str = _DOUBLE
) -> str:
    """Return the query of a table's current rows: of each key the last change, if it is no delete.

    `table` is what the engine that runs it calls the table.
    """
    chosen = _list(columns, quote)
    keys = _list(key, quote)
    latest = free_name("_latest", columns)
    return (
        f"SELECT {chosen} FROM (\n"
        f"  SELECT {chosen}, {OP},\n"
        f"    row_number() OVER (PARTITION BY {keys} ORDER BY {ORDER} DESC) AS {latest}\n"
        f"{_behind_voids(table)}"
        f") AS changes WHERE {latest} = 1 AND {OP} <> 'd'"
    )


def counted_rows(
    columns: Sequence[str], table: str, floating: Collection[str] = (), *, quote: str = _DOUBLE
) -> str:
    """Return the query of a table without a key: each row as often as it came more than it went.

    The first ones of equal rows are those that went. `floating` columns are told apart by their
    texts: engines take 0 and -0 for equal.
    """
    chosen = _list(columns, quote)
    alike = ", ".join(
        f"CAST({_quoted(name, quote)} AS VARCHAR(40))" if name in floating else _quoted(name, quote)
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


def _behind_voids(table: str, voids: str = f"{OP} = 't'") -> str:
    """Return the lines that choose the changes behind the last one that says all is void."""
    return (
        f"  FROM {table}\n"
        f"  WHERE {ORDER} > (SELECT coalesce(max({ORDER}), {SNAPSHOT_ORDER - 1}) FROM {table} "
        f"WHERE {voids})\n"
    )


def mirrored_rows(
    columns: Sequence[str], table: str, flag: str = "", *, quote: str = _DOUBLE
) -> str:
    """Return the query of a table whose rows are the current ones, but for those with a `flag`."""
    living = f" WHERE {_quoted(flag, quote)} = 0" if flag else ""
    return f"SELECT {_list(columns, quote)} FROM {table}{living}"


def name_in_catalog(table: TableId, quote: str = _DOUBLE) -> str:
    """Return a table's name in a catalog, quoted: its database is the namespace."""
    return f"{_quoted(table.database, quote)}.{_quoted(table.table, quote)}"


def _list(names: Sequence[str], quote: str) -> str:
    """Return names in quotes, parted by commas."""
    return ", ".join(_quoted(name, quote) for name in names)


def _quoted(name: str, quote: str) -> str:
    """Return a name in quotes."""
    return quote + name.replace(quote, quote * 2) + quote
