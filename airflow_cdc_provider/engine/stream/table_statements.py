"""What the log says of one table from a statement on that changes its definition."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind


@dataclass(slots=True)
class TableStatements:
    """What the log says of one table from a changing statement on."""

    found: list[Statement]
    """Those that change rows, columns, unique keys or names."""
    named: list[StatementEffect]
    """What all did that named it, the harmless ones, too."""
    first_end: LogPosition
    """Behind the first of them."""
    through: LogPosition
    """Behind the last of them that is not harmless."""
    has_rows: bool = False
    """Rows of the table came behind the last of them."""
    has_rows_between: bool = False
    has_harmless: bool = False
    """It was altered once more in a way that changes no rows, such as a default."""

    @property
    def first(self) -> TableStatements:
        """Return what the log says of the table up to the end of the first statement."""
        return TableStatements(self.found[:1], self.named[:1], self.first_end, self.first_end)

    @property
    def truncates(self) -> bool:
        """Tell whether one of the statements truncates the table."""
        return any(each.effect.kind is StatementKind.TRUNCATE for each in self.found)
