"""Which unique key tells a table's rows apart, where the pipeline file names one.

It is read with the table's definition, wherever that is read at the source, so all that is done
with the table goes by it. The sink's tables have keys of their own, and none is named for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern, name_in
from airflow_cdc_provider.core.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class NamedKeys:
    """The keys that a pipeline file names, by the sections of its tables."""

    sections: tuple[tuple[str, str], ...] = ()
    """The name or pattern of each section with its key, in the file's order.

    A section without a key is there too, its key empty: it may be that of a table which the pattern
    of another one fits.
    """

    def __bool__(self) -> bool:
        return any(key for _, key in self.sections)

    def of(self, table: TableId, *, ignore_case: bool = False) -> str:
        """Return the key that the file names for a table; empty if it names none."""
        name = name_in((name for name, _ in self.sections), table, ignore_case=ignore_case)
        return "" if name is None else dict(self.sections)[name]

    @classmethod
    def as_read(cls, schema: TableSchema) -> Self:
        """Return the key by which a table's definition was read."""
        return cls(((str(TablePattern.of(schema.table)), schema.named_key),))

    def to_json(self) -> Sequence[Sequence[str]]:
        """Return the sections as JSON holds them."""
        return [list(each) for each in self.sections]

    @classmethod
    def from_json(cls, form: Iterable[Any]) -> Self:
        """Read the sections from JSON."""
        return cls(tuple((name, key) for name, key in form))


NO_NAMED_KEYS = NamedKeys()
