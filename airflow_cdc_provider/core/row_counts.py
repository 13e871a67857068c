"""How many rows were inserted, updated and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_cdc_provider.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row changes by what happened to the row."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        """Return the number of row changes."""
        return self.inserts + self.updates + self.deletes

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
        )

    def __sub__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.inserts - other.inserts,
            self.updates - other.updates,
            self.deletes - other.deletes,
        )


NO_ROWS = RowCounts()


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the stream has changed in one table."""

    rows: RowCounts
    changed_us: int
    """When it changed it last, 0 if it never did."""


NO_COUNTS: Mapping[TableId, TableCounts] = MappingProxyType({})


def added(
    one: Mapping[TableId, RowCounts], other: Mapping[TableId, RowCounts]
) -> dict[TableId, RowCounts]:
    """Add the counts of tables."""
    found = dict(one)
    for table, counts in other.items():
        found[table] = found.get(table, NO_ROWS) + counts
    return found
