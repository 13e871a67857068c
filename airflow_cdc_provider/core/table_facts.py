"""A table as its server's catalogue lists it, before its definition is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId


class TableKind(StrEnum):
    """What kind of table a name stands for, in the words of `information_schema`."""

    BASE = "BASE TABLE"
    VERSIONED = "SYSTEM VERSIONED"
    SEQUENCE = "SEQUENCE"
    VIEW = "VIEW"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as the catalogue lists it."""

    table: TableId
    kind: TableKind
    engine: str
    collation: str | None
    estimated_rows: int
    """The engine's guess; it can be wrong by half."""
    estimated_bytes: int
    partitioned: bool
