"""How far an edge of a topology has brought one node's log to another, table by table.

That is the position of its stream, but for tables that the stream leaves alone: each of these is at
a position of its own. One that has come back may be further than the stream until the stream has
come there, too. What a node knew of a table never becomes less.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition


@dataclass(frozen=True, slots=True)
class TableApart:
    """A table that is not where the stream is."""

    table: TableId
    position: LogPosition
    is_back: bool = False
    """It is the stream's again, which passes the position or has passed it."""

    def at(self, stream: LogPosition) -> LogPosition:
        """Return where the table is, given the stream's position."""
        return stream if self.is_back and stream.covers(self.position) else self.position


@dataclass(frozen=True, slots=True)
class TablesApart:
    """The tables that are not where the stream is, in the order of their names."""

    tables: tuple[TableApart, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tables)

    def of(self, table: TableId) -> TableApart | None:
        """Return a table that is apart, None if it is where the stream is."""
        return next((each for each in self.tables if each.table == table), None)

    def stopped(self, tables: Collection[TableId], stream: LogPosition) -> TablesApart:
        """Return them with tables that are taken out of the stream, at its position."""
        new = {table: TableApart(table, self.at(table, stream)) for table in tables}
        return self._with(new)

    def moved(self, table: TableId, to: LogPosition) -> TablesApart:
        """Return them with a table brought further; what it had already stays."""
        before = self.of(table)
        if before is not None and not to.covers(before.position):
            return self
        return self._with({table: TableApart(table, to)})

    def back(self, table: TableId, stream: LogPosition) -> TablesApart:
        """Return them with a table that is the stream's again, which is at a position.

        Tables that came back before and that the stream has passed since are not among them.
        """
        kept = (
            replace(each, is_back=True) if each.table == table else each for each in self.tables
        )
        return TablesApart(tuple(kept)).passed(stream)

    def passed(self, stream: LogPosition) -> TablesApart:
        """Return them without those that the stream has passed since they came back."""
        return TablesApart(
            tuple(
                each for each in self.tables if not (each.is_back and stream.covers(each.position))
            )
        )

    def without(self, tables: Collection[TableId]) -> TablesApart:
        """Return them without tables that have left the pipeline, or begin anew."""
        return TablesApart(tuple(each for each in self.tables if each.table not in tables))

    def at(self, table: TableId, stream: LogPosition) -> LogPosition:
        """Return where a table is, given the stream's position."""
        found = self.of(table)
        return stream if found is None else found.at(stream)

    def _with(self, new: dict[TableId, TableApart]) -> TablesApart:
        """Return them with some in the place of those with their names."""
        every = {each.table: each for each in self.tables} | new
        return TablesApart(tuple(every[table] for table in sorted(every)))


NONE_APART = TablesApart()


@dataclass(frozen=True, slots=True)
class KnownLog:
    """What one node of an edge knew of the other node's log, table by table."""

    position: LogPosition
    """Where the stream was that brought it."""
    apart: TablesApart = NONE_APART

    def of(self, table: TableId) -> LogPosition:
        """Return up to where it was known for a table, by the name at the log's own node."""
        return self.apart.at(table, self.position)

    def says_as(self, other: KnownLog) -> bool:
        """Tell whether the same was known by another record of it, for whatever table."""
        tables = {each.table for known in (self, other) for each in known.apart.tables}
        return self.position == other.position and all(
            self.of(table) == other.of(table) for table in tables
        )

    def of_all(self, tables: Collection[TableId]) -> LogPosition:
        """Return a position up to which all was known for each of these tables."""
        found = self.position
        for each in self.apart.tables:
            if each.table in tables:
                found = found.meet(each.at(self.position))
        return found
