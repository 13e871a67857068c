"""What the sink's own tables have beyond the plan, and which way of writing is right for them.

An upsert finds its row by any unique key. So it is used only where the primary key is the only
one, at the source and at the sink: unique keys may be added while the stream runs, and an upsert
would then change another row without a word. Elsewhere all touched keys are deleted first, then
the rows are inserted, and a conflict is an error.

LOAD DATA ... REPLACE upserts at half the server's cost, but as delete and insert: it fires
triggers, cascades, and resets columns that are not written. It is used where there are none.

What a table has is looked at when the stream begins, and again behind each change of definition
that it follows. In a table that several of the source share, another of them may get a column
meanwhile, by a request or apart from the stream. That does no harm: rows of a table that has not
had the column hold NULL there, whether they are replaced or updated, and one that gets it or drops
it begins anew behind that. A unique key would do harm, as anywhere: it is drift, and refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession


@dataclass(frozen=True, slots=True)
class SinkTable:
    """What a sink table has: columns, secondary unique keys, triggers, foreign keys."""

    exists: bool = False
    columns: frozenset[str] = frozenset()
    """Columns that hold values of their own: all but generated ones, in lower case."""
    unique_keys: frozenset[str] = frozenset()
    """Names of secondary unique keys."""
    has_triggers: bool = False
    has_foreign_keys: bool = False
    """It refers to a table, or one refers to it."""

    def upserts(self, plan: TablePlan) -> bool:
        """Tell whether an upsert is right: the primary key is the only unique key on both sides."""
        return not self.unique_keys and not plan.target.unique_keys

    def replaces(self, plan: TablePlan) -> bool:
        """Tell whether REPLACE equals an upsert: no trigger, foreign key or extra column."""
        written = {column.name.lower() for column in plan.target.copied_columns}
        whole = self.columns <= written
        return self.exists and whole and not self.has_triggers and not self.has_foreign_keys


@dataclass(slots=True)
class _Facts:
    """Facts of one sink table, while they are collected from several queries."""

    columns: set[str] = field(default_factory=set)
    unique_keys: set[str] = field(default_factory=set)
    triggers: bool = False
    foreign: bool = False


def sink_tables(session: SinkSession, tables: Sequence[TableId]) -> dict[TableId, SinkTable]:
    """Query what sink tables have, by one query for each kind of fact."""
    facts = {_folded(table): _Facts() for table in tables}
    if not facts:
        return {}
    wanted = {literal(table.database) for table in tables}
    databases = f"({', '.join(sorted(wanted))})"

    def at(database: str, table: str) -> _Facts:
        # facts about other tables of these databases are gathered and dropped
        return facts.setdefault((database.lower(), table.lower()), _Facts())

    for database, table, column in session.rows(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        f"WHERE table_schema IN {databases} AND COALESCE(generation_expression, '') = ''"
    ):
        at(database, table).columns.add(column.lower())
    for database, table, index in session.rows(
        "SELECT DISTINCT table_schema, table_name, index_name FROM information_schema.statistics "
        f"WHERE table_schema IN {databases} AND non_unique = 0 AND index_name <> 'PRIMARY'"
    ):
        at(database, table).unique_keys.add(index)
    for database, table in session.rows(
        "SELECT event_object_schema, event_object_table FROM information_schema.triggers "
        f"WHERE event_object_schema IN {databases}"
    ):
        at(database, table).triggers = True
    for database, table, other_database, other_table in session.rows(
        "SELECT table_schema, table_name, referenced_table_schema, referenced_table_name "
        "FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL "
        f"AND (table_schema IN {databases} OR referenced_table_schema IN {databases})"
    ):
        at(database, table).foreign = at(other_database, other_table).foreign = True
    return {table: _frozen(facts[_folded(table)]) for table in tables}


def _folded(table: TableId) -> tuple[str, str]:
    """Return a table's database and name in lower case."""
    # A server may give names back in another case than they were asked for.
    return table.database.lower(), table.table.lower()


def _frozen(facts: _Facts) -> SinkTable:
    """Return collected facts as a `SinkTable`."""
    return SinkTable(
        exists=bool(facts.columns),
        columns=frozenset(facts.columns),
        unique_keys=frozenset(facts.unique_keys),
        has_triggers=facts.triggers,
        has_foreign_keys=facts.foreign,
    )
