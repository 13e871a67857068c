"""Taking unique keys off a table that foreign keys need.

Rows that are read again stand beside older ones, so the table's unique keys go for a while. MySQL
refuses that where a foreign key needs the index, of this table or of one that refers to it. So such
foreign keys go as well, and come back with the unique keys once all rows are right (`finish`). Only
those go that the source's tables have, for only those come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import DeferredKind, deferred_keys
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_NEEDED_IN_FOREIGN_KEY = 1553

_Name = tuple[str, str, str]
"""Database, table and foreign key, as the server has them."""


def execute_without(
    session: SinkSession, statement: str, plan: TablePlan, plans: Sequence[TablePlan]
) -> None:
    """Run an ALTER that drops unique keys; if refused, first drop foreign keys that need these.

    `plans` are the pipeline's tables, as far as they are known here.
    """
    try:
        session.execute(statement)
    except CdcError as error:
        if error.server_error != _NEEDED_IN_FOREIGN_KEY:
            raise
        known = {each.schema.table: each for each in (*plans, plan)}
        needing = _needing(session, plan) & _returning(session, tuple(known.values()))
        if not needing:
            raise
        for database, table, name in sorted(needing):
            child = quote_table(TableId(database, table))
            session.execute(f"ALTER TABLE {child} DROP FOREIGN KEY {quote_identifier(name)}")
        session.execute(statement)


def routes_of_copies(plans: Iterable[TablePlan]) -> Mapping[TableId, TableId]:
    """Return the sink's tables that foreign keys may refer to, by the source's.

    A table that differs from the source's may lack rows or columns that they need.
    """
    return {plan.schema.table: plan.sink_table for plan in plans if plan.shape.is_identity}


def _needing(session: SinkSession, plan: TablePlan) -> set[_Name]:
    """Return the sink's foreign keys whose columns begin a unique key of the source's table."""
    target = plan.sink_table
    here = f"_schema = {literal(target.database)}", f"_name = {literal(target.table)}"
    own, referenced = (
        " AND ".join(f"{side}table{each}" for each in here) for side in ("", "referenced_")
    )
    return {
        name
        for side, condition in (("column_name", own), ("referenced_column_name", referenced))
        for name, columns in _columns(session, side, condition).items()
        if _begins_one(columns, [key.columns for key in plan.target.unique_keys])
    }


def _columns(session: SinkSession, side: str, condition: str) -> dict[_Name, tuple[str, ...]]:
    """Return the columns, in lower case, of each foreign key that meets a condition."""
    found: dict[_Name, tuple[str, ...]] = defaultdict(tuple)
    for database, table, name, column in session.rows(
        f"SELECT table_schema, table_name, constraint_name, {side} "
        "FROM information_schema.key_column_usage "
        f"WHERE referenced_table_name IS NOT NULL AND {condition} ORDER BY ordinal_position"
    ):
        found[database, table, name] += (column.lower(),)
    return found


def _begins_one(columns: tuple[str, ...], keys: Collection[tuple[str, ...]]) -> bool:
    """Tell whether the columns are the first ones of any key, whatever their case."""
    folded = [tuple(name.lower() for name in key) for key in keys]
    return any(key[: len(columns)] == columns for key in folded)


def _returning(session: SinkSession, plans: Sequence[TablePlan]) -> set[_Name]:
    """Return the foreign keys that `MySqlTableBuilder.finish` will add again."""
    flavour = "mariadb" if session.capabilities.is_mariadb else "mysql"
    routes = routes_of_copies(plans)

    def names(plan: TablePlan) -> Iterator[_Name]:
        target = plan.sink_table
        keys = deferred_keys(plan.written, target, sink_flavour=flavour, route=routes.get)
        for key in keys:
            if key.kind is DeferredKind.FOREIGN:
                yield target.database, target.table, key.name

    return {name for plan in plans if plan.target.create_statement for name in names(plan)}
