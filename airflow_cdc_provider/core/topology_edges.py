"""The edges of a topology as their files describe them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import (
    ALL_TABLES,
    Route,
    TablePattern,
    sink_table,
)
from airflow_cdc_provider.core.topology import Topology

Key = tuple[str | int, ...]
"""A key of a pipeline file, by its path."""


@dataclass(frozen=True, slots=True)
class TableScope:
    """Which tables a pipeline copies, and where they go."""

    patterns: tuple[TablePattern, ...]
    excluded: tuple[TablePattern, ...] = ()
    routes: tuple[Route, ...] = ()

    def picks(self, table: TableId) -> bool:
        """Tell whether a table of the source is copied."""
        is_named = any(_fits(pattern, table) for pattern in self.patterns)
        return is_named and not any(_fits(pattern, table) for pattern in self.excluded)

    def target_of(self, table: TableId) -> TableId | None:
        """Return the sink's table for one of the source, None if it is not copied."""
        return sink_table(table, self.routes) if self.picks(table) else None


def _fits(pattern: TablePattern, table: TableId) -> bool:
    """Tell whether a pattern picks a table; most patterns are one table, compared as text."""
    if pattern.is_exact:
        return (pattern.database.text, pattern.table.text) == (table.database, table.table)
    return pattern.matches(table)


EVERY_TABLE = TableScope((ALL_TABLES,))


@dataclass(frozen=True, slots=True)
class ServerName:
    """A server by its name in a file, and by its address where that is known."""

    reference: str
    """`conn_id shop_mysql` or `dsn_env SHOP_DSN`."""
    address: str = ""
    """`host:port`; empty if what the reference stands for is not known here."""

    def __str__(self) -> str:
        return self.address or self.reference


@dataclass(frozen=True, slots=True)
class PipelineEnds:
    """A pipeline of a folder: its file, the servers that it joins, and its tables."""

    file: str
    source: ServerName = ServerName("")
    sink: ServerName = ServerName("")
    tables: TableScope = EVERY_TABLE


@dataclass(frozen=True, slots=True)
class EdgeFile:
    """A pipeline that is an edge of a topology."""

    edge: Topology
    ends: PipelineEnds
    definitions_from: str = ""
    """The node where definitions are changed; empty: at both."""

    @property
    def file(self) -> str:
        """Return the name of the edge's file."""
        return self.ends.file

    @property
    def pair(self) -> tuple[str, str]:
        """Return the nodes that the edge joins: from, to."""
        return self.edge.src_node, self.edge.dst_node


@dataclass(frozen=True, slots=True)
class EdgeProblem:
    """What is wrong with an edge among the others, at a key of its file, and the fix."""

    file: str
    key: Key
    what: str
    fix: str
    is_warning: bool = False
    """The edges do what they say; something may not be meant, or was not looked at."""
    topology: str = ""


def nodes_of(edges: Sequence[EdgeFile]) -> list[str]:
    """Return the nodes that edges join, sorted."""
    return sorted({node for each in edges for node in each.pair})


def listed(names: Sequence[str]) -> str:
    """Return names as text: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
