"""Which names of tables a pipeline's file picks, as plain values that travel with a job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class TablePicks:
    """Patterns `database.table` by which a pipeline picks tables; by default none.

    A `*` stands for any characters. Names are compared without case: the source knows the exact
    name.
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
    pairs = (TableId.parse(pattern) for pattern in patterns)
    return any(
        _matches(pair.database, table.database) and _matches(pair.table, table.table)
        for pair in pairs
    )


def _matches(pattern: str, name: str) -> bool:
    """Tell whether a pattern with `*` fits a name, ignoring case."""
    parts = ".*".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(parts, name, re.DOTALL | re.IGNORECASE) is not None


def exclude_line(tables: Iterable[TableId]) -> str:
    """Return the line of a pipeline file that excludes tables."""
    names = ", ".join(json.dumps(str(table), ensure_ascii=False) for table in tables)
    return f"exclude: [{names}]"
