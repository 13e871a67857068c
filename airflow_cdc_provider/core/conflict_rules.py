"""Rules for conflicts: whose change of a row stays where both ends of an edge change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_cdc_provider.core.table_patterns import TablePattern


@dataclass(frozen=True, slots=True)
class ConflictRule:
    """Whose change of a row stays, on both nodes."""

    winner: str
    """The node whose change stays; with `column` only where both have the same value there. Empty:
    a conflict stops the table."""
    column: str = ""
    """The column whose greater value stays; empty: the winner's change stays in any case."""

    @property
    def stops(self) -> bool:
        """Tell whether a conflict stops the table, and nothing is decided."""
        return not self.winner

    @property
    def whole(self) -> str:
        """Return it as text, with what decides where the column's values are the same."""
        return f"{self}, then {self.winner}" if self.column else str(self)

    def __str__(self) -> str:
        if self.stops:
            return "a conflict stops the table"
        return f"the greater {self.column} wins" if self.column else f"{self.winner} wins"


@dataclass(frozen=True, slots=True)
class TableRule:
    """The rule of the tables that a pattern picks."""

    tables: TablePattern
    """As the edge's source names them."""
    rule: ConflictRule

    def to_json(self) -> Mapping[str, Any]:
        """Return it as JSON holds it; `from_json` reads it back equal."""
        return {"tables": str(self.tables), **asdict(self.rule)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TableRule:
        """Read it from JSON."""
        tables, *rule = (form[key] for key in ("tables", "winner", "column"))
        return cls(TablePattern.parse(tables), ConflictRule(*rule))
