"""Conflicts: rows that both ends of an edge have changed, neither knowing of the other's change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from airflow_cdc_provider.core.identifiers import TableId

Values = Mapping[str, Any]
"""A row's values by column, as JSON has them; bytes as 0x and hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """What one node did to a row: the row before and after, None where there was none."""

    before: Values | None
    after: Values | None
    at: str
    """The transaction's place in that node's log."""

    @property
    def verb(self) -> str:
        """Return what was done: `inserted`, `updated` or `deleted`."""
        if self.before is None:
            return "inserted"
        return "deleted" if self.after is None else "updated"

    def to_json(self) -> dict[str, Any]:
        """Return the row before and after as JSON holds it."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Conflict:
    """One row that both nodes changed, and whose change was kept."""

    table: TableId
    """As the source names it."""
    key: Values
    kept: str
    """The node whose change stays, on both nodes."""
    source: RowChange
    sink: RowChange
    """The last change at the sink that the source did not know."""


@dataclass(frozen=True, slots=True)
class NotedConflict:
    """A conflict as the sink's ledger has it."""

    number: int
    """It grows with each conflict of the sink."""
    noted_us: int
    conflict: Conflict


@dataclass(frozen=True, slots=True)
class ConflictsOfTable:
    """How many conflicts of one table were settled for one node."""

    table: TableId
    """As the source names it."""
    kept: str
    """The node whose changes stay."""
    conflicts: int
    rows: int
    """Of how many rows they are."""
    last_us: int


@runtime_checkable
class KeepsConflicts(Protocol):
    """A ledger's store that keeps conflicts."""

    def conflict_count(self) -> int:
        """Return how many conflicts of the pipeline are kept."""

    def conflicts(self, *, since_us: int, most: int) -> Sequence[NotedConflict]:
        """Return the last `most` of the pipeline's conflicts since a time, oldest first."""

    def conflicts_of_tables(self, *, since_us: int) -> Sequence[ConflictsOfTable]:
        """Return how many conflicts of each table there were since a time, by the node kept."""
