"""What verify asks of each side it compares.

A *part* of a table is a range of its key where the key can bound one, else a set of hash buckets of
the key. Each side adds up hashes of its own rows, so only sums travel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.splits import Chosen, Condition
from airflow_cdc_provider.core.table_schema import TableSchema

Hashes = dict[Key, str]
"""Each row's hash by its key."""


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One value of a row, for people."""

    identity: str
    """The same on both sides if the values are; empty for NULL."""
    text: str | None
    """At most 200 characters of it, `0x` and digits if it is binary; None is NULL."""


Rows = dict[Key, dict[str, ShownValue]]
"""Rows by their keys, values by their columns' names in lower case."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Rows whose key's hash falls in one of these."""

    numbers: tuple[int, ...]


Part = KeyRange | Buckets


@dataclass(frozen=True, slots=True)
class Sum:
    """What a part of a table adds up to."""

    rows: int
    number: int
    bytes: int

    def same_rows(self, other: Sum) -> bool:
        """Tell whether both parts hold the same rows."""
        return (self.rows, self.number) == (other.rows, other.number)


@dataclass(frozen=True, slots=True)
class TablePair:
    """A table as both sides define it; compared are the source's copied columns."""

    source: TableSchema
    sink: TableSchema


class TableSide(Protocol):
    """One side's table."""

    def sum_of(self, keys: KeyRange) -> Sum:
        """Add up the rows of a range."""

    def count(self, keys: KeyRange, chosen: Chosen | None = None, *, most: int) -> int:
        """Count the rows of a range, or those of them that are chosen, and no more than `most`."""

    def require(self, condition: Condition) -> None:
        """Refuse a condition that this side cannot judge; it is looked at, and not run."""

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Add up the whole table by buckets of its key, in one pass."""

    def hashes(self, part: Part) -> Hashes:
        """Return each row of a part."""

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the rows that have one of these keys."""

    def values_of(self, keys: Collection[Key]) -> Rows:
        """Return the values of the few rows that have one of these keys."""

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row at a place in a range, counted from 0; None behind its end."""


class VerifySide(Protocol):
    """One side's session."""

    @property
    def digest(self) -> str:
        """How rows become hashes; only sides that do it alike can be compared."""

    def definition(self, table: TableId) -> TableSchema | None:
        """Return a table's definition, None if it is not there or may not be seen."""

    def table(self, pair: TablePair) -> TableSide:
        """Return this side's table of a pair."""

    def close(self) -> None:
        """Let go of the connection."""
