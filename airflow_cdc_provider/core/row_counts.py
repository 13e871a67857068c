"""How many rows were inserted, updated and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_cdc_provider.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of inserts, updates and deletes."""

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
    """The row changes that the stream has applied to one table, and the last one's time."""

    rows: RowCounts
    changed_us: int
    """When it changed it last, 0 if it never did."""


NO_COUNTS: Mapping[TableId, TableCounts] = MappingProxyType({})


def added(
    one: Mapping[TableId, RowCounts], other: Mapping[TableId, RowCounts]
) -> dict[TableId, RowCounts]:
    """Return the sum of two sets of counts, table by table."""
    found = dict(one)
    for table, counts in other.items():
        found[table] = found.get(table, NO_ROWS) + counts
    return found
