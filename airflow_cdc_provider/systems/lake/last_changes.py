"""Of each key the last change, if it is no delete: what the query of the current rows returns.

Any number of changes is read once. What is more than memory should hold goes to files for a while,
split by hashes of the key, so that each part can be judged alone.

A change may say that all before it is void (`t`). Where the key begins with what tells the rows of
several tables of the source apart, it says of which of them: it has that value, and no other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of, texts_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.systems.lake.columns import DOUBLED, OP, ORDER, ROW, SNAPSHOT_ORDER

_HELD_BYTES = 128 * 1024 * 1024
"""Of Arrow's columns, held at once."""
_PART_BITS = 6
_PARTS = 1 << _PART_BITS
_DEEPEST = 5
"""Parts of parts; the changes of one key alone cannot be split."""
_BATCH_ROWS = 65_536


Choose = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the changes of chosen keys."""
OnTwice = Callable[[pa.Table], None]
"""Is called with changes that are there more than once: with each copy behind the first."""


def last_changes(
    changes: Iterable[pa.RecordBatch],
    key: Sequence[str],
    choose: Choose | None = None,
    *,
    held_bytes: int = _HELD_BYTES,
    with_deleted: bool = False,
    on_twice: OnTwice | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a table's current rows, all or chosen ones, with their columns.

    `changes` are all changes of the table, in any order. Files are written to the folder of
    temporary files if there are more than `held_bytes`. `with_deleted`: last changes that are
    deletes, too. `on_twice` is called before the current rows of the same keys.
    """
    with tempfile.TemporaryDirectory(prefix="cdc-lake-") as folder:
        reading = _Reading(
            tuple(key), Path(folder), held_bytes, with_deleted=with_deleted, on_twice=on_twice
        )
        found = reading.without_voids(changes)
        yield from reading.rows(found if choose is None else map(choose, found))


class RowsLackingError(Exception):
    """Changes take away more rows than there were."""

    def __init__(self, rows: int) -> None:
        """`rows`: how many, at least."""
        super().__init__(rows)
        self.rows = rows


def rows_left(
    changes: Iterable[pa.RecordBatch], key: Sequence[str], *, held_bytes: int = _HELD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table without a key: each as often as it came more than it went.

    `key` are columns that are the same in equal rows, and in no others. `RowsLackingError` if a row
    went more often than it came.
    """
    with tempfile.TemporaryDirectory(prefix="cdc-lake-") as folder:
        reading = _Counting(tuple(key), Path(folder), held_bytes, with_deleted=False, on_twice=None)
        yield from reading.rows(reading.without_voids(changes))


class Voids:
    """Up to where changes are void: all, or those with one value in the column of shards."""

    def __init__(self, shard: str) -> None:
        """`shard`: a column of texts where a void has a value in it; may be empty."""
        self._shard = shard
        self._all = SNAPSHOT_ORDER - 1
        self._of_shard: dict[str, int] = {}

    def note(self, voids: pa.RecordBatch) -> None:
        """Note changes that say that what is before them is void."""
        orders = voids.column(ORDER).to_pylist()
        shards = voids.column(self._shard).to_pylist() if self._shard else [None] * len(orders)
        for shard, order in zip(shards, orders, strict=True):
            if shard is None:
                self._all = max(self._all, order)
            else:
                self._of_shard[shard] = max(self._of_shard.get(shard, order), order)

    def are_behind(self, changes: pa.Table) -> BoolArray:
        """Tell which changes are not void."""
        orders = as_numpy(changes.column(ORDER).combine_chunks())
        found: BoolArray = orders > self._all
        if self._of_shard:
            places = places_among(changes.column(self._shard), list(self._of_shard))
            last = np.array([*self._of_shard.values(), SNAPSHOT_ORDER - 1])
            found &= orders > last[places]
        return found


def places_among(values: pa.ChunkedArray | pa.Array, sought: Sequence[str]) -> IntArray:
    """Return the place of each text among those that are sought; -1: it is none of them."""
    found = pc.index_in(values.cast(pa.string()), value_set=texts_of(sought)).fill_null(-1)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    places: IntArray = as_numpy(found.cast(pa.int64()))
    return places


class _Reading:
    """One pass over a table's changes."""

    def __init__(
        self,
        key: tuple[str, ...],
        folder: Path,
        held_bytes: int,
        *,
        with_deleted: bool,
        on_twice: OnTwice | None,
    ) -> None:
        self._key, self._folder, self._held_bytes = key, folder, held_bytes
        self._with_deleted, self._on_twice = with_deleted, on_twice
        self._voids = Voids(self._shard)
        """Which rows are void; known once all changes were read."""

    @property
    def _shard(self) -> str:
        """Return the column whose values are those of tables that are emptied alone."""
        return self._key[0]

    def without_voids(self, changes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield changes but those that say that all before them are void, which are noted.

        Rows that somebody added without an order are none: the query leaves them out, too.
        """
        for batch in changes:
            if batch.column(ORDER).null_count:
                batch = batch.filter(batch.column(ORDER).is_valid())  # noqa: PLW2901 - the rest
            voids = pc.equal(batch.column(OP), "t")
            if pc.any(voids).as_py():
                self._voids.note(batch.filter(voids))
                batch = batch.filter(pc.invert(voids))  # noqa: PLW2901 - the rest of it
            if batch.num_rows:
                yield batch

    def rows(self, changes: Iterable[pa.RecordBatch], depth: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the current rows of some keys, from all their changes."""
        held: list[pa.RecordBatch] = []
        size, left = 0, iter(changes)
        for batch in left:
            held.append(batch)
            size += batch.nbytes
            if size > self._held_bytes and depth < _DEEPEST:
                break
        else:
            if held:
                yield from self._latest(pa.Table.from_batches(held))
            return
        paths = self._split(chain(held, left), depth)
        del held
        for path in paths:
            yield from self.rows(_read(path), depth + 1)
            path.unlink()

    def _split(self, changes: Iterable[pa.RecordBatch], depth: int) -> list[Path]:
        """Write changes to files, all of one key to one of them; return the files."""
        paths: dict[int, Path] = {}
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        try:
            for batch in changes:
                hashes = row_hashes([batch.column(name) for name in self._key]).one
                parts = (hashes >> np.uint64(depth * _PART_BITS)) & np.uint64(_PARTS - 1)
                order = np.argsort(parts, kind="stable")
                ordered = batch.take(numbers_of(order))
                numbers, starts = np.unique(parts[order], return_index=True)
                ends = [*starts[1:].tolist(), batch.num_rows]
                for number, start, end in zip(numbers.tolist(), starts, ends, strict=True):
                    if number not in writers:
                        paths[number] = path = self._folder / f"{depth}-{number}.arrow"
                        writers[number] = pa.ipc.new_stream(path, batch.schema, options=options)
                    writers[number].write_batch(ordered.slice(start, end - start))
        finally:
            for writer in writers.values():
                writer.close()
        return list(paths.values())

    def _behind_voids(self, changes: pa.Table) -> pa.Table:
        """Return the changes that are not void."""
        return changes.filter(mask_of(self._voids.are_behind(changes))).combine_chunks()

    def _latest(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the last change of each key that is not void; deletes if they are asked for."""
        changes = self._behind_voids(changes)
        if not changes.num_rows:
            return
        orders = as_numpy(changes.column(ORDER).combine_chunks())
        columns = [changes.column(name).combine_chunks() for name in self._key]
        codes = key_codes([columns]).groups[0]
        places = np.lexsort((orders, codes))
        of_key = codes[places]
        is_last = np.append(of_key[1:] != of_key[:-1], True)
        if self._on_twice is not None:
            # each change has an order of its own; a snapshot's rows share one, and it has keys once
            is_again = ~is_last[:-1] & (np.diff(orders[places]) == 0)
            if is_again.any():
                self._on_twice(changes.take(numbers_of(places[1:][is_again])))
        changes = _told_apart(changes, codes)
        rows = changes.take(numbers_of(np.sort(places[is_last])))
        if not self._with_deleted:
            rows = rows.filter(pc.not_equal(rows.column(OP), "d"))
        yield from rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


class _Counting(_Reading):
    """One pass over the changes of a table without a key."""

    @property
    def _shard(self) -> str:
        """Return nothing: such a table is alone."""
        return ""

    def _latest(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows that came more often than they went, and are not void."""
        changes = self._behind_voids(changes)
        if not changes.num_rows:
            return
        columns = [changes.column(name).combine_chunks() for name in self._key]
        codes = key_codes([columns]).groups[0]
        gone = as_numpy(pc.equal(changes.column(OP), "d").combine_chunks())
        came, went = (np.bincount(codes[each], minlength=codes.max() + 1) for each in (~gone, gone))
        if (lacking := int(np.maximum(went - came, 0).sum())) > 0:
            raise RowsLackingError(lacking)
        places = np.flatnonzero(~gone)
        places = places[np.argsort(codes[places], kind="stable")]
        firsts = np.cumsum(came) - came
        number = np.arange(len(places)) - firsts[codes[places]]
        stays = np.sort(places[number >= went[codes[places]]])
        rows = changes.take(numbers_of(stays)).combine_chunks()
        yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _told_apart(changes: pa.Table, codes: IntArray) -> pa.Table:
    """Mark the rows of a table of current rows whose keys it has more than once."""
    are_rows = as_numpy(pc.equal(changes.column(OP), ROW).combine_chunks())
    counts = np.bincount(codes[are_rows])
    if not (counts > 1).any():
        return changes
    is_doubled = are_rows & (counts[np.minimum(codes, len(counts) - 1)] > 1)
    told = pc.if_else(mask_of(is_doubled), DOUBLED, changes.column(OP).combine_chunks())
    return changes.set_column(changes.schema.get_field_index(OP), changes.schema.field(OP), told)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader
