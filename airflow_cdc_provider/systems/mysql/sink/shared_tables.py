"""Changes of a sink table that several tables of the source share, for one of them.

No statement here changes rows of another shard, and none drops a column or the table. A column is
added, or gets a type that holds more. What a shard no longer has is NULL in its own rows.

Rows are changed some thousands at a time: one statement over a whole shard would hold its locks,
and what undoes it, until its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import Operation, RowStamp
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.shared_tables import (
    disagreements,
    extension,
    united,
)
from airflow_cdc_provider.systems.mysql.dialect.sql import living, of_shard
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import column_definition
from airflow_cdc_provider.systems.mysql.sink.marked_rows import marking
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_ROWS = 10_000
"""Rows that one statement changes."""


def require_agreed(shards: Sequence[TablePlan], asked: Collection[TableId], where: str) -> None:
    """Refuse shards whose definitions one table cannot have; the error is about those `asked`."""
    found = list(disagreements(shards))
    if not found:
        return
    tables = {each.table for each in found} & {*asked} or {each.other for each in found} & {*asked}
    raise RefusedError(
        "; ".join(map(str, found)),
        where=f"table {shards[0].sink_table} on {where}",
        risk="rows would be refused, changed or merged; nothing was written",
        remedy="make their definitions alike, leave the column out by columns.exclude or rename it "
        "in the table's section of tables, or route one of them elsewhere",
    ).about(*sorted(tables))


def as_made(plans: Sequence[TablePlan], known: Sequence[TablePlan]) -> Iterator[TablePlan]:
    """Yield one plan for each sink table; that of a shared one has the columns of all its shards.

    `known` are the pipeline's other plans.
    """
    shared = {shards[0].sink_table: shards for shards in shards_of(plans, known)}
    for plan in plans:
        if plan.shard is None:
            yield plan
        elif plan.sink_table in shared:
            yield united(shared.pop(plan.sink_table))


class SharedTable:
    """One shard's part of a shared sink table, over a session."""

    def __init__(self, session: SinkSession, shard: TablePlan, *, flavour: str) -> None:
        """`flavour` is the sink's family."""
        self._session = session
        self._plan = shard
        self._flavour = flavour
        self._name = quote_table(shard.sink_table)

    def extend(self, found: TableSchema) -> None:
        """Add the columns that the table lacks for the shard, and widen those that it needs."""
        needed = extension(self._plan.target, found)
        clauses = [f"ADD COLUMN {self._definition(name)}" for name in needed.added]
        clauses += [f"MODIFY COLUMN {self._definition(name)}" for name in needed.widened]
        if clauses:
            self._session.execute(f"ALTER TABLE {self._name} {', '.join(clauses)}")

    def follow(self, change: SchemaChange, found: TableSchema) -> None:
        """Make a schema change of the shard; making it twice is harmless.

        `RefusedError` if the table cannot hold its rows and those of the others then.
        """
        needed = extension(self._plan.target, found)
        if needed.unfit:
            raise RefusedError(
                "; ".join(map(str, needed.unfit)),
                where=f"table {self._plan.sink_table} on {self._session.where}",
                risk="rows of other shards would be changed; nothing was",
                remedy="make the tables' definitions alike, or route one of them elsewhere",
            )
        if change.truncates or change.is_made_anew:
            self.take_rows_away(change)
        self.extend(found)
        self.empty(self._to_empty(change, found))

    def take_rows_away(self, change: SchemaChange) -> None:
        """Delete the shard's rows, or mark them where it keeps deleted rows.

        Those of one that is read again are marked by that: what is not found is deleted.
        """
        flag = change.before.shape.deleted_flag
        if not flag:
            self.delete_rows()
        elif not change.rereads:
            through = change.through
            stamp = change.stamp or RowStamp(Operation.TRUNCATE, through.short, through.server)
            marks = marking(change.before, stamp)
            self._in_pieces(f"UPDATE {self._name} SET {marks}", living(flag))

    def delete_rows(self) -> None:
        """Delete the shard's rows."""
        self._in_pieces(f"DELETE FROM {self._name}", "TRUE")

    def _to_empty(self, change: SchemaChange, found: TableSchema) -> list[str]:
        """Return the table's columns in which the shard's rows are to have NULL now.

        It has dropped them, or they are new to it, and what it had there once was kept.
        """
        there = {column.name.lower() for column in found.columns}
        dropped = () if change.keeps_dropped else change.difference.dropped
        names = [*dropped, *(() if change.rereads else change.difference.added)]
        return [name for name in names if name.lower() in there]

    def empty(self, names: Sequence[str]) -> None:
        """Make columns NULL in all rows of the shard."""
        if names:
            nulled = ", ".join(f"{quote_identifier(name)} = NULL" for name in names)
            filled = " OR ".join(f"{quote_identifier(name)} IS NOT NULL" for name in names)
            self._in_pieces(f"UPDATE {self._name} SET {nulled}", filled)

    def _definition(self, name: str) -> str:
        """Return a column's definition at the sink."""
        return column_definition(self._plan.written, name, sink_flavour=self._flavour)

    def _in_pieces(self, statement: str, condition: str) -> None:
        """Run a statement over the shard's rows that meet a condition, until there are none."""
        key = ", ".join(map(quote_identifier, self._plan.target.primary_key))
        own = of_shard(self._plan.shard, condition)
        piece = f"{statement} WHERE {own} ORDER BY {key} LIMIT {_ROWS}"
        while self._session.transaction(lambda: self._session.execute(piece)).affected_rows:
            pass
