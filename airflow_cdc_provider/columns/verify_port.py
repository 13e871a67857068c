"""What verify asks of each side it compares.

A *part* of a table is a range of its key where the key can bound one, else a set of hash buckets of
the key.

A *digest* is a way to hash rows. A system may have one of its own: each side adds up hashes of its
own rows (`TableSide`), so only sums travel. Every side has the digest `BY_COLUMNS`: it gives its
rows as columns of the value model (`ColumnsSide`), and who compares hashes them by the canonical
forms of their values. So any two systems can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.splits import Chosen, Condition
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn

if TYPE_CHECKING:
    import pyarrow as pa

BY_COLUMNS = "hash of the canonical form of each value"
"""The digest that every side has; `columns.row_hashes` makes it."""

SHOWN_CHARACTERS = 200
"""Characters of a value that people are shown."""

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
    read: int = 0
    """Rows that were read for it, where some of them are left out; else fewer than `rows`."""

    @property
    def most(self) -> int:
        """The number of rows that the part has in the table, whatever is left out."""
        return max(self.rows, self.read)

    def same_rows(self, other: Sum) -> bool:
        """Tell whether both parts have the same rows."""
        return (self.rows, self.number) == (other.rows, other.number)


@dataclass(frozen=True, slots=True)
class TablePair:
    """One table as source and sink define it, alike but for its name and its types.

    The source's copied columns are compared.
    """

    source: TableSchema
    sink: TableSchema


class TableSide(Protocol):
    """One table on one side of a comparison."""

    def sum_of(self, keys: KeyRange) -> Sum:
        """Return the checksum of the rows in a range."""

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Return the checksums of the whole table by buckets of its key, in one pass."""

    def hashes(self, part: Part) -> Hashes:
        """Return the hash of each row in a part, by key."""

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the hashes of the rows that have one of these keys."""

    def values_of(self, keys: Collection[Key]) -> Rows:
        """Return the values of the rows that have one of these keys, which are few."""

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row at a place in a range, counted from 0; None past the end."""


class RowCounts(Protocol):
    """One table on one side, whose rows are counted."""

    def count(self, keys: KeyRange, chosen: Chosen | None = None, *, most: int) -> int:
        """Count the rows of a range, or the chosen ones, up to `most`."""

    def require(self, condition: Condition) -> None:
        """Refuse a condition that this side cannot evaluate; the condition is parsed, not run."""


@dataclass(frozen=True, slots=True)
class ColumnsRead:
    """What is read of a table on one side, to be hashed by who compares."""

    table: TableSchema
    """As this side defines it."""
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """Columns that tell its rows apart; not always its primary key."""
    plain_key: bool
    """Keys are values of these columns; else they are texts that each side makes alike.

    Plain ones are whole numbers, decimals, texts and binaries, as in `core.keys`; dates are texts.
    """
    shard: OutputColumn | None = None
    """The column whose value the rows have that are read; None: all rows are."""

    @property
    def is_by_primary_key(self) -> bool:
        """Tell whether the primary key's index has the rows that are read in the key's order."""
        shard = () if self.shard is None else (self.shard.name,)
        return (*shard, *self.key) == self.table.primary_key


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Some rows of one side, and their keys."""

    rows: pa.RecordBatch
    """The columns that were asked for, in the value model; dates may be texts."""
    keys: tuple[pa.Array, ...]


class ColumnsSide(Protocol):
    """One table on one side, which gives its rows as columns; a result is read to its end."""

    def rows(self, keys: KeyRange) -> Iterator[KeyedRows]:
        """Yield the rows in a range of keys."""

    def rows_of(self, keys: Collection[Key]) -> Iterator[KeyedRows]:
        """Yield the rows that have one of these keys, and maybe others."""

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row at a place in a range, counted from 0; None past the end."""


class VerifySide(Protocol):
    """A session on one side of a comparison."""

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests that this side has, the best first; `BY_COLUMNS` is one of them.

        Two sides that share another one also order keys alike.
        """

    @property
    def has_ranges(self) -> bool:
        """Tell whether rows are found by a range of their key without reading all of them."""

    def definition(self, table: TableId) -> TableSchema | None:
        """Return a table's definition; None if it does not exist or the account cannot see it."""

    def counts(
        self,
        table: TableSchema,
        key: tuple[str, ...],
        *,
        flag: str = "",
        shard: OutputColumn | None = None,
    ) -> RowCounts:
        """Return a table of this side, to count its rows by ranges of a key.

        Rows that are marked as deleted, by the column `flag`, are not counted, nor are those of
        other shards than `shard`.
        """

    def table(self, pair: TablePair) -> TableSide:
        """Return this side of a table, to be compared by a digest of its own."""

    def columns_of(self, own: ColumnsRead, other: ColumnsRead) -> ColumnsSide:
        """Return this side of a table, to be compared by columns with the other side's."""

    def close(self) -> None:
        """Close the connection."""
