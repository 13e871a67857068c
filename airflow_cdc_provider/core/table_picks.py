"""Which names of tables a pipeline's file picks, as plain values that travel with a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern


@dataclass(frozen=True, slots=True)
class TablePicks:
    """Patterns `database.table` by which a pipeline picks tables; by default none.

    Names are compared without case: the source knows the exact name.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __contains__(self, table: TableId) -> bool:
        return _fits(table, self.include) and not _fits(table, self.exclude)

    @classmethod
    def from_json(cls, form: Mapping[str, Iterable[str]]) -> TablePicks:
        """Read the patterns from JSON."""
        return cls(**{name: tuple(patterns) for name, patterns in form.items()})


NO_PICKS = TablePicks()
_CAME = " came at the source"


def came(table: TableId) -> str:
    """Return the event text by which a stream reports a new table that the file picks."""
    return f"{table}{_CAME}"


def is_new_table_event(event: str) -> bool:
    """Tell whether an event's text reports a new table, as `came` returns it."""
    return event.endswith(_CAME)


def _fits(table: TableId, patterns: Iterable[str]) -> bool:
    """Tell whether any pattern fits the table."""
    parsed = map(TablePattern.parse, patterns)
    return any(pattern.matches(table, ignore_case=True) for pattern in parsed)


def in_file(table: TableId) -> str:
    """Return a table's name as a pipeline file has it, in quotes."""
    return json.dumps(str(TablePattern.of(table)), ensure_ascii=False)


def exclude_line(tables: Iterable[TableId]) -> str:
    """Return the line of a pipeline file that excludes tables."""
    return f"exclude: [{', '.join(map(in_file, tables))}]"
