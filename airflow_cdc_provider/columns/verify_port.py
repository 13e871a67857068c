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
    """One value of a row, as text for people."""

    identity: str
    """The same on both sides if the values are; empty for NULL."""
    text: str | None
    """At most 200 characters of it, `0x` and digits if it is binary; None is NULL."""


Rows = dict[Key, dict[str, ShownValue]]
"""Rows by their keys, values by their columns' names in lower case."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The rows whose key's hash falls in one of these buckets."""

    numbers: tuple[int, ...]


Part = KeyRange | Buckets


@dataclass(frozen=True, slots=True)
class Sum:
    """The checksum of a part of a table, with its counts of rows and bytes."""

    rows: int
    number: int
    bytes: int

    def same_rows(self, other: Sum) -> bool:
        """Tell whether both parts have the same rows."""
        return (self.rows, self.number) == (other.rows, other.number)


@dataclass(frozen=True, slots=True)
class TablePair:
    """One table as source and sink define it; the source's copied columns are compared."""

    source: TableSchema
    sink: TableSchema


class TableSide(Protocol):
    """One table on one side of a comparison."""

    def sum_of(self, keys: KeyRange) -> Sum:
        """Return the checksum of the rows in a range."""

    def count(self, keys: KeyRange, chosen: Chosen | None = None, *, most: int) -> int:
        """Count the rows of a range, or the chosen ones, up to `most`."""

    def require(self, condition: Condition) -> None:
        """Refuse a condition that this side cannot evaluate; the condition is parsed, not run."""

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Return the checksums of the whole table by buckets of its key, in one pass."""

    def hashes(self, part: Part) -> Hashes:
        """Return the hash of each row in a part, by key."""

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the hashes of the rows that have one of these keys."""

    def values_of(self, keys: Collection[Key]) -> Rows:
        """Return the values of the rows that have one of these keys, which are few."""

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row at a place in a range, counted from 0; None behind the end."""


class VerifySide(Protocol):
    """A session on one side of a comparison."""

    @property
    def digest(self) -> str:
        """The name of the method that hashes rows; both sides must use the same."""

    def definition(self, table: TableId) -> TableSchema | None:
        """Return a table's definition; None if it does not exist or the account cannot see it."""

    def table(self, pair: TablePair) -> TableSide:
        """Return this side of a table, to be compared."""

    def close(self) -> None:
        """Close the connection."""
