"""One side of a table that is compared by columns: its rows are read, turned and hashed here.

Rows come as the side has them. They are *turned* into the sink's rows first: at the source by the
table's shape, at the sink by leaving out the rows that are only marked as deleted. Then both sides
have the same columns, and a row's hash is that of `columns.row_hashes`.

A part of a table is read anew each time, batch by batch, and nothing of it is kept but sums.

A table without a key is a multiset: the hash of a row is its key, and how often it is there, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.keys import keys_of
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.columns.row_hashes import NO_ROWS, RowHashes, added_totals, row_hashes
from airflow_cdc_provider.columns.shown_values import shown_values
from airflow_cdc_provider.columns.verify_port import (
    Buckets,
    ColumnsSide,
    Hashes,
    KeyedRows,
    Part,
    Rows,
    Sum,
)
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange, shown_key

if TYPE_CHECKING:
    import pyarrow as pa

_BUCKETS = 1024
_MOST_SOUGHT = 500
"""More keys are found by one pass over the table where no index finds them."""
_EVERYTHING = KeyRange()


@dataclass(frozen=True, slots=True)
class TurnedRows:
    """Some rows as the sink has them."""

    keys: tuple[pa.Array, ...]
    """The sink's key; empty if it has none."""
    columns: tuple[pa.Array, ...]
    own: pa.RecordBatch
    """The same rows as their side has them."""


@dataclass(frozen=True, slots=True)
class HashedTable:
    """One table on one side, for a comparison by columns."""

    table: TableId
    side: ColumnsSide
    turn: Callable[[KeyedRows], TurnedRows]
    own_key: Callable[[Key], Key | None] | None
    """Returns the side's key for one of the sink's; None if the side cannot have such a row.

    Without it no key tells another, and each look for keys reads all rows.
    """
    names: tuple[str, ...]
    """The compared columns in lower case."""
    dates: frozenset[int]
    """The places of columns whose texts are dates."""
    documents: frozenset[int]
    """The places of columns whose JSON the two sides print in forms of their own."""
    seeks: bool
    """The side finds rows by the key's index; else each look for keys reads all rows."""
    has_key: bool = True

    def sum_of(self, keys: KeyRange) -> Sum:
        """Return the checksum of the rows in a range."""
        rows = number = size = read = 0
        for each in self.side.rows(keys):
            turned = self.turn(each)
            hashes = self._hashed(turned.columns)
            rows += len(hashes)
            number = added_totals(number, hashes.total)
            size += sum(column.nbytes for column in turned.columns)
            read += each.rows.num_rows
        return Sum(rows, number, size, read)

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Return the checksums of the whole table by buckets of its key, in one pass."""
        rows, sizes = np.zeros(_BUCKETS, np.int64), np.zeros(_BUCKETS, np.int64)
        sums = np.zeros((2, _BUCKETS), np.uint64)
        for each in self.side.rows(_EVERYTHING):
            turned = self.turn(each)
            hashes = self._hashed(turned.columns)
            bucket = _buckets(turned.keys, hashes)
            counts = np.bincount(bucket, minlength=_BUCKETS)
            rows += counts
            if len(hashes):
                size = sum(column.nbytes for column in turned.columns)
                sizes += counts * size // len(hashes)
            np.add.at(sums[0], bucket, hashes.one)
            np.add.at(sums[1], bucket, hashes.other)
        return {
            at: Sum(int(rows[at]), (int(sums[0, at]) << 64) | int(sums[1, at]), int(sizes[at]))
            for at in np.flatnonzero(rows).tolist()
        }

    def hashes(self, part: Part) -> Hashes:
        """Return the hash of each row in a part, by key."""
        if isinstance(part, KeyRange):
            return self._hashes(self.side.rows(part))
        return self._hashes(self.side.rows(_EVERYTHING), buckets=part)

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the hashes of the rows that have one of these keys."""
        found = self._hashes(self._rows_of(keys), keys=frozenset(keys))
        return {key: found[key] for key in keys if key in found}

    def values_of(self, keys: Collection[Key]) -> Rows:
        """Return the values of the rows that have one of these keys, which are few.

        Rows without a key differ in how often they are there, not in values.
        """
        rows: Rows = {}
        for each in self._rows_of(keys):
            turned = self.turn(each)
            if not turned.keys:
                return {}
            shown = [
                shown_values(column, is_date=at in self.dates, is_document=at in self.documents)
                for at, column in enumerate(turned.columns)
            ]
            for key, *values in zip(keys_of(turned.keys), *shown, strict=True):
                rows[key] = dict(zip(self.names, values, strict=True))
        return {key: rows[key] for key in keys if key in rows}

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row at a place in a range, counted from 0; None past the end."""
        return self.side.key_at(keys, number)

    def other_keys(self, keys: Collection[Key], columns: Collection[str]) -> Mapping[Key, Key]:
        """Return what the rows that are here have in some columns of the side, by key."""
        found: dict[Key, Key] = {}
        for each in self._rows_of(keys):
            turned = self.turn(each)
            own = keys_of([turned.own.column(name) for name in columns])
            found.update(zip(keys_of(turned.keys), own, strict=True))
        return {key: found[key] for key in keys if key in found}

    def _hashed(self, columns: Sequence[pa.Array]) -> RowHashes:
        """Return the hashes of rows."""
        return row_hashes(columns, self.dates, self.documents)

    def _rows_of(self, keys: Collection[Key]) -> Iterator[KeyedRows]:
        """Yield the rows that have one of these keys, and maybe others."""
        own_key = self.own_key
        if not self.has_key or own_key is None or (not self.seeks and len(keys) > _MOST_SOUGHT):
            return self.side.rows(_EVERYTHING)
        return self.side.rows_of([own for own in map(own_key, keys) if own is not None])

    def _hashes(
        self,
        read: Iterator[KeyedRows],
        *,
        buckets: Buckets | None = None,
        keys: frozenset[Key] | None = None,
    ) -> Hashes:
        """Return the hashes of rows by key, of some buckets or keys or all; refuse a key twice."""
        if not self.has_key:
            return self._counts(read, buckets, keys)
        found: Hashes = {}
        for each in read:
            turned = self.turn(each)
            columns, named = turned.columns, turned.keys
            if buckets is not None:
                inside = mask_of(np.isin(_buckets(named), np.array(buckets.numbers)))
                columns = tuple(column.filter(inside) for column in columns)
                named = tuple(column.filter(inside) for column in named)
            hashes = self._hashed(columns).texts()
            for key, text in zip(keys_of(named), hashes, strict=True):
                if keys is not None and key not in keys:
                    continue
                if key in found:
                    raise self._two_rows(key)
                found[key] = text
        return found

    def _counts(
        self, read: Iterator[KeyedRows], buckets: Buckets | None, keys: frozenset[Key] | None
    ) -> Hashes:
        """Return how often each row is there, by its hash, of some buckets or keys or all."""
        found: Counter[Key] = Counter()
        for each in read:
            hashes = self._hashed(self.turn(each).columns)
            inside = np.ones(len(hashes), np.bool_)
            if buckets is not None:
                inside = np.isin(_buckets((), hashes), np.array(buckets.numbers))
            chosen = RowHashes(hashes.one[inside], hashes.other[inside])
            found.update((text,) for text in chosen.texts())
        return {key: str(count) for key, count in found.items() if keys is None or key in keys}

    def _two_rows(self, key: Key) -> IntegrityError:
        """Return the error for two rows that would be one at the sink."""
        return IntegrityError(
            f"two rows of {self.table} have the key {shown_key(key)} of the sink's table",
            where="verify",
            risk=f"the sink can have only one of them. {NOTHING_CHANGED}",
            remedy="choose a key for the sink's table that is unique at the source",
        )


def _buckets(keys: tuple[pa.Array, ...], rows: RowHashes = NO_ROWS) -> IntArray:
    """Return the bucket of each key; of rows without one, by their hashes."""
    hashes = row_hashes(keys) if keys else rows
    return (hashes.one % np.uint64(_BUCKETS)).astype(np.int64)
