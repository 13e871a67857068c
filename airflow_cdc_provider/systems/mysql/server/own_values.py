"""Columns of a sink's tables that give rows a value by themselves, where none is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.systems.mysql.server.catalogue import name_conditions, stored_names
from airflow_cdc_provider.systems.mysql.server.connection import Role, query
from airflow_cdc_provider.systems.mysql.server.raw_connection import is_mariadb

if TYPE_CHECKING:
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


def values_of_others(
    connection: ServerConnection, plans: Sequence[TablePlan]
) -> Mapping[TableId, str]:
    """Return what shared sink tables would put into columns that a shard lacks, by source table.

    The shards of one table are to be among the plans together: their columns are looked at.
    """
    together = {
        shards[0].sink_table: {
            plan.schema.table: {column.name.lower() for column in plan.target.as_copied.columns}
            for plan in shards
        }
        for shards in shards_of(plans)
        if len(shards) > 1
    }
    found = _own_values(connection, together)
    told = {}
    for target, shards in together.items():
        theirs = set[str]().union(*shards.values())
        values = found.get(target, {})
        for table, own in shards.items():
            texts = [values[name] for name in sorted(theirs - own) if name in values]
            if texts:
                told[table] = "; ".join(texts)
    return told


def _own_values(
    connection: ServerConnection, tables: Iterable[TableId]
) -> dict[TableId, dict[str, str]]:
    """Return which columns of tables have a DEFAULT or ON UPDATE, in words, by name."""
    tables = list(tables)
    if not tables:
        return {}
    stored = stored_names(connection, tables, role=Role.SINK)
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    # MariaDB has the text NULL for the default that a column without one has
    is_null = "COLUMN_DEFAULT = 'NULL'" if is_mariadb(connection) else "FALSE"
    for condition in name_conditions("TABLE_SCHEMA", "TABLE_NAME", set(stored.values())):
        rows = query(
            connection,
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
            f"WHERE {condition} AND COALESCE(GENERATION_EXPRESSION, '') = '' "
            f"AND ((COLUMN_DEFAULT IS NOT NULL AND NOT {is_null}) OR EXTRA LIKE '%on update%')",
            role=Role.SINK,
        )
        for database, table, column in rows:
            text = f"column {column}, which only others have, has a DEFAULT or ON UPDATE of its own"
            found[str(database), str(table)][str(column).lower()] = text
    return {table: found[name.database, name.table] for table, name in stored.items()}
