"""A table as its server's catalogue lists it, before its definition is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId


class TableKind(StrEnum):
    """The kind of a table, as `information_schema` names it."""

    BASE = "BASE TABLE"
    VERSIONED = "SYSTEM VERSIONED"
    SEQUENCE = "SEQUENCE"
    VIEW = "VIEW"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table as the source's catalogue lists it."""

    table: TableId
    kind: TableKind
    engine: str
    collation: str | None
    estimated_rows: int
    """The engine's guess; it can be wrong by half."""
    estimated_bytes: int
    partitioned: bool
