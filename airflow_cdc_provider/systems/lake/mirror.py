"""The current rows as a table: of each key the last change takes the place of the row of before.

Files of a table never change. So a commit puts new files in the place of those that have a row that
was changed or deleted (copy on write); the others stay. Rows with keys that are new go to a file of
their own, and small files go into it with them: as long as the next larger one has not more rows
than it has by then. So a row is written again a few times while its file grows, and inserts never
leave many small files.

Which file has a row is found by the files' bounds of the key's first whole number, if it has one,
and by the keys in the files that are left. Nothing is held but the changes' hashes, and one piece
of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import PartitionField
from airflow_cdc_provider.systems.lake.columns import OP, ORDER
from airflow_cdc_provider.systems.lake.gathered import in_columns
from airflow_cdc_provider.systems.lake.last_changes import last_changes, places_among
from airflow_cdc_provider.systems.lake.marks import Marking, SoftDeletes
from airflow_cdc_provider.systems.lake.partitions import Partition, numbered
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles
from airflow_cdc_provider.systems.lake.tables.table import Bounds, DataFile, TableFile

_SMALL_BYTES = 16 * 1024 * 1024
_PART_BYTES = 32 * 1024 * 1024
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a commit exchanges so that a table holds the current rows."""

    gone: Sequence[TableFile]
    made: Sequence[DataFile]
    order: int | None
    """The greatest order of a row that the table is known to have then; None: it is not known."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of a table one commit may write again."""

    table: TableId
    megabytes: int

    def require(self, touched: Sequence[TableFile]) -> None:
        """Refuse to write more."""
        size = sum(each.bytes for each in touched) // _MEGABYTE
        if size > self.megabytes:
            raise RefusedError(
                f"the changes of {self.table} are in {len(touched)} files of {size:,} MB in all, "
                f"and one commit writes no more than {self.megabytes:,} MB again",
                where="sink.rewrite_mb",
                risk="none: the changes are in the log, and the table has what it had",
                remedy="make rewrite_mb larger; or commit less often (commit_seconds), so that "
                "more changes share a commit; or write mode: append and `reset` the pipeline",
            )


def bounded_column(key: Sequence[str], columns: pa.Schema) -> str:
    """Return the column of a key by whose bounds files are found: its first whole number."""
    whole = (name for name in key if pa.types.is_integer(columns.field(name).type))
    return next(whole, key[0])


def rewritten(
    base: Sequence[TableFile],
    changes: Iterable[pa.RecordBatch],
    out: SortedFiles,
    limit: Limit,
    order: int | None,
    soft: SoftDeletes | None = None,
) -> Rewrite:
    """Write the files that take the place of those in which rows were changed.

    `changes` are all that the base does not have, in any order; `order` is the greatest one in the
    base. `soft`: rows stay where the source has none any more. If it fails, no file that was made
    is left.
    """
    with TemporaryDirectory(prefix="cdc-lake-") as folder:
        last = _Last.of(changes, out, Path(folder) / "last.arrow", soft)
    with out:
        writes_all = soft is not None and soft.is_anew
        return _Rewriting(base, last, out, writes_all=writes_all).all(limit, order)


@dataclass(frozen=True, slots=True)
class Emptied:
    """Which rows of before are gone whatever their keys are."""

    all: bool = False
    column: str = ""
    shards: tuple[str, ...] = ()
    """Values of the column, of the rows of tables that were emptied beside others."""

    @classmethod
    def by(cls, voids: Sequence[pa.Table], column: str) -> Emptied:
        """Return what rows of the log say that empty a table; `column`: the first of its key."""
        said = [shard for each in voids for shard in each.column(column).to_pylist()]
        shards = dict.fromkeys(shard for shard in said if shard is not None)
        return cls(None in said, column, tuple(shards))

    def places(self, rows: pa.RecordBatch) -> IntArray:
        """Return the places of rows that are gone."""
        if not self.shards:
            return _NONE
        return np.flatnonzero(places_among(rows.column(self.column), self.shards) >= 0)


class _Last:
    """The last change of each key that was changed, deletes too."""

    def __init__(
        self,
        rows: pa.Table,
        key: Sequence[str],
        *,
        emptied: Emptied,
        marking: Marking | None = None,
    ) -> None:
        """`emptied`: rows of before that are gone; `marking`: they stay, and this marks them."""
        self.rows, self.emptied, self.marking = rows, emptied, marking
        self._key = list(key)
        self.is_living: BoolArray = as_numpy(_one(pc.not_equal(rows.column(OP), "d")))
        self._batches = rows.to_batches()
        self._ends = np.cumsum([each.num_rows for each in self._batches], dtype=np.int64)
        self._keys = [_one(rows.column(name)) for name in key]
        hashes = row_hashes(self._keys).one
        self._places = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._places]
        self._bounded = bounded_column(key, rows.schema)
        column = rows.column(self._bounded)
        is_known = pa.types.is_integer(column.type)
        self._numbers = np.sort(as_numpy(_one(column))) if is_known else None

    @classmethod
    def of(
        cls,
        changes: Iterable[pa.RecordBatch],
        out: SortedFiles,
        path: Path,
        soft: SoftDeletes | None,
    ) -> _Last:
        """Read changes; what is left of them is in a file, which may be deleted then."""
        voids = _Voids(changes, are_taken_out=soft is not None)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, out.columns) as writer:
            for batch in last_changes(iter(voids), out.key, with_deleted=True):
                # all changes have been read by now
                marking = None if soft is None else soft.marking(voids.met, out.columns)
                rows = pa.Table.from_batches([batch])
                writer.write_table(rows if marking is None else marking.of_changes(rows))
        with pa.memory_map(str(path)) as mapped:
            rows = pa.ipc.open_file(mapped).read_all()
        if soft is None:
            return cls(rows, out.key, emptied=Emptied.by(voids.met, out.key[0]))
        return cls(rows, out.key, emptied=Emptied(), marking=soft.marking(voids.met, out.columns))

    def may_be_within(self, bounds: Bounds | None) -> bool:
        """Tell whether a key may be within the bounds of a file."""
        if not len(self._hashes):
            return False
        if bounds is None or bounds.column != self._bounded:
            return True
        if self._numbers is None or bounds.low is None or bounds.high is None:
            return True
        place = int(np.searchsorted(self._numbers, bounds.low))
        return place < len(self._numbers) and int(self._numbers[place]) <= bounds.high

    def found_in(self, batch: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """Return the places of rows whose keys were changed, and the places of their changes."""
        if not len(self._hashes):
            return _NONE, _NONE
        keys = [
            batch.column(name).cast(own.type)
            for name, own in zip(self._key, self._keys, strict=True)
        ]
        hashes = row_hashes(keys).one
        begin = np.searchsorted(self._hashes, hashes)
        is_likely = self._hashes[np.minimum(begin, len(self._hashes) - 1)] == hashes
        likely = np.flatnonzero(is_likely)
        if not len(likely):
            return likely, likely
        end = np.searchsorted(self._hashes, hashes[likely], side="right")
        sought = self._places[_between(begin[likely], end)]
        here_keys = [each.take(numbers_of(likely)) for each in keys]
        there_keys = [each.take(numbers_of(sought)) for each in self._keys]
        codes = key_codes([here_keys, there_keys])  # other keys may have the same hash
        here, there = codes.groups
        place_of = np.full(codes.count, -1, np.int64)
        place_of[there] = sought
        found = place_of[here]
        return likely[found >= 0], found[found >= 0]

    def by_key(self, places: IntArray) -> IntArray:
        """Return places in the order of their keys."""
        keys = pa.table([each.take(numbers_of(places)) for each in self._keys], names=self._key)
        ordered = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in self._key])
        found: IntArray = places[as_numpy(ordered)]
        return found

    def partitions(self, fields: Sequence[PartitionField]) -> tuple[IntArray, dict[Partition, int]]:
        """Return the number of each change's partition, and the numbers of the partitions."""
        names = list(dict.fromkeys(each.column for each in fields))
        there = [name for name in names if name in self.rows.column_names] or self._key[:1]
        return numbered(
            (pa.Table.from_batches([each.select(there)]) for each in self._batches), fields
        )

    def taken(self, places: IntArray) -> Iterator[pa.Table]:
        """Yield changed rows by their places, in parts; each part is in an order of its own.

        Arrow takes from a column of several pieces by putting all of them together, which it cannot
        do with texts of more than 2 GB.
        """
        step = max(1, _PART_BYTES * self.rows.num_rows // max(1, self.rows.nbytes))
        for start in range(0, len(places), step):
            part = places[start : start + step]
            batches = np.searchsorted(self._ends, part, side="right")
            for number in np.unique(batches).tolist():
                batch = self._batches[number]
                inside = part[batches == number] - (self._ends[number] - batch.num_rows)
                yield pa.Table.from_batches([batch.take(numbers_of(inside))])


class _Voids:
    """Changes as they are; it is noted which of them say that all before them is gone."""

    def __init__(self, changes: Iterable[pa.RecordBatch], *, are_taken_out: bool) -> None:
        """`are_taken_out`: what comes before them is to stay."""
        self._changes, self._are_taken_out = changes, are_taken_out
        self.met: list[pa.Table] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._changes:
            is_void = pc.equal(batch.column(OP), "t")
            if not pc.any(is_void).as_py():
                yield batch
                continue
            self.met.append(pa.Table.from_batches([batch.filter(is_void)]))
            yield batch.filter(pc.invert(is_void)) if self._are_taken_out else batch


@dataclass(frozen=True, slots=True, eq=False)
class _Looked:
    """A file in which changed rows were looked for."""

    file: TableFile
    changes: IntArray
    """The places of the living changes that are written with it."""
    is_changed: bool


class _Rewriting:
    """One pass over the files of a table."""

    def __init__(
        self, base: Sequence[TableFile], last: _Last, out: SortedFiles, *, writes_all: bool = False
    ) -> None:
        """`writes_all`: no file of before stays."""
        self._base, self._last, self._out = base, last, out
        self._marking, self._writes_all = last.marking, writes_all
        self._is_placed = ~last.is_living
        """Changes that are written with a file, or not at all."""
        self._part_of, self._parts = last.partitions(out.layout.partitions)

    def all(self, limit: Limit, order: int | None) -> Rewrite:
        """Write what has to be written."""
        if self._last.emptied.all:
            self._write([])
            return self._done(self._base, None)
        found: list[_Looked] = []
        for each in self._base:
            looked, has_order = self._look(each, order)
            found.append(looked)
            if has_order:
                order = None
        mixed = {each for each in found if each.file.partition is None}
        limit.require([each.file for each in found if each.is_changed and each not in mixed])
        together = mixed.union(self._folded(found))
        gone = [each for each in found if each.is_changed or each in together]
        for one in gone:
            if one not in together:
                self._rewrite(one)
                self._out.end()
        self._write(together)
        return self._done([each.file for each in gone], order)

    def _look(self, file: TableFile, order: int | None) -> tuple[_Looked, bool]:
        """Look for changed rows in a file; tell whether one of them has an order."""
        is_sought = self._looks_at_all or self._last.may_be_within(file.bounds)
        if not is_sought:
            return _Looked(file, _NONE, is_changed=file.partition is None), False
        places, has_order = [_NONE], False
        is_touched = self._writes_all or file.partition is None
        for batch in file.batches([*self._out.key, ORDER, *self._flag]):
            rows, changes = self._last.found_in(batch)
            gone = np.union1d(rows, self._last.emptied.places(batch))
            is_touched = is_touched or bool(len(gone)) or self._marks_some(batch)
            places.append(changes)
            orders = batch.column(ORDER).take(numbers_of(gone))
            has_order = has_order or bool(pc.any(pc.equal(orders, order)).as_py())
        if not is_touched:
            return _Looked(file, _NONE, is_changed=False), False
        found = np.unique(np.concatenate(places))
        found = found[~self._is_placed[found]]
        # rows that move to another partition go with what is inserted there
        found = found[self._part_of[found] == self._number_of(file)]
        self._is_placed[found] = True
        return _Looked(file, found, is_changed=True), has_order

    def _number_of(self, file: TableFile) -> int:
        """Return the number of a file's partition; -1 if no change is of it."""
        return -1 if file.partition is None else self._parts.get(file.partition, -1)

    @property
    def _looks_at_all(self) -> bool:
        """Tell whether files without a changed key may change, too."""
        is_any = self._marking is not None or bool(self._last.emptied.shards)
        return self._writes_all or is_any

    @property
    def _flag(self) -> list[str]:
        """Return the column that says whether a row is to be marked, if any is."""
        return [] if self._marking is None else [self._marking.flag]

    def _marks_some(self, batch: pa.RecordBatch) -> bool:
        """Tell whether rows of a file are to be marked: a table without the flag has none yet."""
        return self._marking is not None and self._marking.marks_some(batch)

    def _folded(self, found: Sequence[_Looked]) -> list[_Looked]:
        """Return the small files that are to share a new one with what is inserted."""
        counts = np.bincount(self._part_of[~self._is_placed], minlength=len(self._parts))
        rows = {each: int(counts[number]) for each, number in self._parts.items()}
        folded = []
        for each in sorted(found, key=lambda each: each.file.rows):
            own = each.file.partition
            if own is None or own not in rows:
                continue
            if each.file.rows > rows[own] or each.file.bytes >= _SMALL_BYTES:
                del rows[own]
                continue
            folded.append(each)
            rows[own] += each.file.rows
        return folded

    def _write(self, small: Iterable[_Looked]) -> None:
        """Write files together anew, and with them all that is inserted."""
        for each in sorted(small, key=_first):
            self._rewrite(each)
        self._add(self._last.by_key(np.flatnonzero(~self._is_placed)))
        self._out.end()

    def _add(self, places: IntArray) -> None:
        """Write changes."""
        for rows in self._last.taken(places):
            self._out.add(rows)

    def _rewrite(self, looked: _Looked) -> None:
        """Write the rows of a file that were not changed, and the changes that go with it."""
        for batch in looked.file.batches(self._out.columns.names):
            gone, _ = self._last.found_in(batch)
            stays = np.ones(batch.num_rows, np.bool_)
            stays[gone] = False
            stays[self._last.emptied.places(batch)] = False
            rows = pa.Table.from_batches([batch.filter(mask_of(stays))])
            if self._marking is not None and rows.num_rows:
                rows = self._marking.of_before(in_columns(rows, self._out.columns))
            self._out.add(rows)
        self._add(looked.changes)

    def _done(self, gone: Sequence[TableFile], order: int | None) -> Rewrite:
        """Return what is to be committed; `order` is of a row of before that is still there."""
        orders = self._last.rows.column(ORDER).filter(mask_of(self._last.is_living))
        if len(orders):
            order = pc.max(orders).as_py()
        elif self._marking is not None:
            order = None  # the row that had it may have another one now
        return Rewrite(gone, self._out.made, order)


_NONE: IntArray = np.zeros(0, np.int64)


def _first(looked: _Looked) -> tuple[bool, int]:
    """Return where a file stands in the order of the key, as far as that is known."""
    bounds = looked.file.bounds
    low = None if bounds is None else bounds.low
    return low is None, low or 0


def _between(begin: IntArray, end: IntArray) -> IntArray:
    """Return all numbers from each beginning to below its end, without doubles."""
    begin, first = np.unique(begin, return_index=True)
    counts = end[first] - begin
    skipped = np.cumsum(counts) - counts
    return np.repeat(begin - skipped, counts) + np.arange(counts.sum())


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.combine_chunks()
