"""Which tables a server has, and what surrounds them: kinds, sizes, triggers.

One query of each kind for a whole database. `information_schema` compares names by its own
collations, so every answer is matched exactly here: two tables may differ by case alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.source_port import Pattern
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, TableId
from airflow_cdc_provider.core.table_facts import TableFacts, TableKind
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import tokens
from airflow_cdc_provider.systems.mysql.server.connection import Role, query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

SYSTEM_DATABASES = ("information_schema", "mysql", "performance_schema", "sys")


def picked_tables(
    connection: ServerConnection,
    capabilities: Capabilities,
    include: Sequence[Pattern],
    exclude: Sequence[Pattern] = (),
) -> tuple[TableFacts, ...]:
    """Return the tables that the patterns pick, by the server's rule for case.

    Never the server's own, nor those of a ledger: it changes with every commit of its pipelines.
    """
    fold = capabilities.names_fold_case

    def picked(table: TableId) -> bool:
        if reserved_for(table.database, fold=fold):
            return False
        if not any(pattern.matches(table, ignore_case=fold) for pattern in include):
            return False
        return not any(pattern.matches(table, ignore_case=fold) for pattern in exclude)

    system = ", ".join(literal(name) for name in SYSTEM_DATABASES)
    facts = _facts(connection, f"TABLE_SCHEMA NOT IN ({system})")
    return tuple(sorted((f for f in facts if picked(f.table)), key=lambda f: f.table))


def reserved_for(database: str, *, fold: bool) -> str:
    """Return what a database is reserved for, empty if it may hold tables to be copied."""
    name = database.lower() if fold else database
    if name == LEDGER_DATABASE:
        return "the ledger of the pipelines that copy to this server"
    return "the server itself" if name in SYSTEM_DATABASES else ""


def table_facts(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role = Role.SOURCE
) -> dict[TableId, TableFacts]:
    """Return the catalogue's facts on these tables; missing tables are left out."""
    wanted = set(tables)
    found: dict[TableId, TableFacts] = {}
    for condition in name_conditions("TABLE_SCHEMA", "TABLE_NAME", wanted):
        for facts in _facts(connection, condition, role=role):
            if facts.table in wanted:
                found[facts.table] = facts
    return found


_OURS = "airflow_cdc"
"""The user variable that our sessions at a sink set (`connection.sink_session`)."""


def triggers(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role = Role.SOURCE
) -> dict[TableId, tuple[str, ...]]:
    """Return the names of each table's triggers; tables without one are left out."""
    found = _triggers(connection, tables, role=role)
    return {table: tuple(name for name, _ in own) for table, own in found.items()}


def firing_triggers(
    connection: ServerConnection, tables: Iterable[TableId]
) -> dict[TableId, tuple[str, ...]]:
    """Return the names of a sink's triggers that do not ask for `@airflow_cdc`, of each table."""
    found = _triggers(connection, tables, role=Role.SINK)
    firing = {
        table: tuple(name for name, body in own if not _asks_for_us(body))
        for table, own in found.items()
    }
    return {table: names for table, names in firing.items() if names}


def _asks_for_us(body: str) -> bool:
    """Tell whether a trigger's statement reads the variable that our sessions set."""
    found = [*tokens(body)]
    return any(
        sign.is_mark("@") and name.is_name and name.text.lower() == _OURS
        for sign, name in pairwise(found)
    )


def _triggers(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role
) -> dict[TableId, list[tuple[str, str]]]:
    """Return the names and statements of each table's triggers."""
    stored = stored_names(connection, tables, role=role)
    wanted = set(stored.values())
    found: dict[TableId, list[tuple[str, str]]] = defaultdict(list)
    for condition in name_conditions("EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE", wanted):
        rows = query(
            connection,
            "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME, ACTION_STATEMENT "
            f"FROM information_schema.TRIGGERS WHERE {condition} ORDER BY TRIGGER_NAME",
            role=role,
        )
        for database, table, name, body in rows:
            found[TableId(database, table)].append((str(name), str(body)))
    return {table: found[name] for table, name in stored.items() if name in found}


def stored_names(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role = Role.SOURCE
) -> dict[TableId, TableId]:
    """Return each table's name as the server stores it, in lower case where it folds names."""
    asked = set(tables)
    folded = {table: TableId(table.database.lower(), table.table.lower()) for table in asked}
    if all(table == name for table, name in folded.items()):
        return folded
    (kept,) = query(connection, "SELECT @@lower_case_table_names", role=role)[0]
    return folded if int(kept) == 1 else {table: table for table in asked}


def name_conditions(database: str, table: str, wanted: Iterable[TableId]) -> list[str]:
    """Return SQL conditions on two name columns that pick these tables, one for each database.

    Constants compared to single columns are what both servers turn into catalogue look-ups.
    """
    by_database: dict[str, list[str]] = defaultdict(list)
    for name in sorted(wanted):
        by_database[name.database].append(literal(name.table))
    return [
        f"{database} = {literal(name)} AND {table} IN ({', '.join(tables)})"
        for name, tables in by_database.items()
    ]


def _facts(
    connection: ServerConnection, condition: str, *, role: Role = Role.SOURCE
) -> Iterable[TableFacts]:
    """Yield the catalogue's facts on the tables that meet a condition."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_COLLATION, TABLE_ROWS, "
        "DATA_LENGTH, CREATE_OPTIONS FROM information_schema.TABLES "
        f"WHERE {condition}",
        role=role,
    )
    kinds = {kind.value: kind for kind in TableKind}
    for database, table, kind, engine, collation, count, size, options in rows:
        yield TableFacts(
            table=TableId(database, table),
            kind=kinds.get(kind, TableKind.OTHER),
            engine=engine or "",
            collation=collation,
            estimated_rows=int(count or 0),
            estimated_bytes=int(size or 0),
            partitioned="partitioned" in (options or ""),
        )
