"""Which names of tables a pipeline's file picks, as plain values that travel with a job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class TablePicks:
    """Patterns `database.table`, where a `*` stands for any characters; by default they pick none.

    Names are compared in whatever case: who hears of a name asks the source what it is.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __contains__(self, table: TableId) -> bool:
        return _fits(table, self.include) and not _fits(table, self.exclude)

    @classmethod
    def from_json(cls, form: Mapping[str, Iterable[str]]) -> TablePicks:
        """Read what `dataclasses.asdict` wrote."""
        return cls(**{name: tuple(patterns) for name, patterns in form.items()})


NO_PICKS = TablePicks()
_CAME = " came at the source"


def came(table: TableId) -> str:
    """Write the event by which a stream tells of a table that its file picks."""
    return f"{table}{_CAME}"


def tells_of_table(event: str) -> bool:
    """Tell whether an event is one of these."""
    return event.endswith(_CAME)


def _fits(table: TableId, patterns: Iterable[str]) -> bool:
    pairs = (TableId.parse(pattern) for pattern in patterns)
    return any(
        _matches(pair.database, table.database) and _matches(pair.table, table.table)
        for pair in pairs
    )


def _matches(pattern: str, name: str) -> bool:
    parts = ".*".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(parts, name, re.DOTALL | re.IGNORECASE) is not None


def exclude_line(tables: Iterable[TableId]) -> str:
    """Write the line of a pipeline file that leaves tables out."""
    names = ", ".join(json.dumps(str(table), ensure_ascii=False) for table in tables)
    return f"exclude: [{names}]"
