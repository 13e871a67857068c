"""Rows of changes from the files of a change log: the table's own columns, typed, in Arrow batches.

An event becomes a row, an update two: the row before it and the row after it. Nothing is made a
Python object: a batch of the file is split by its operations, and columns are taken from `before`
and `after` by row numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    as_numpy,
    mask_of,
    numbers_of,
    one_batch,
    texts_of,
)
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import (
    CorruptLogError,
    RefusedError,
    SnapshotRequiredError,
    UnknownEventError,
)
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace, RowPlaces
from airflow_cdc_provider.systems.file_log.known_types import known_type
from airflow_cdc_provider.systems.files.object_store import ObjectStore

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
COMMIT_POSITION = "_commit_position"
COMMIT_ORDER = "_commit_order"
COMMIT_COLUMNS = {
    CHANGE_TYPE: pa.string(),
    COMMIT_VERSION: pa.int64(),
    COMMIT_TIMESTAMP: pa.timestamp("us", "UTC"),
    COMMIT_POSITION: pa.string(),
    COMMIT_ORDER: pa.int64(),
}
"""The columns that a row of changes has behind the table's own."""
TRUNCATE = "truncate"
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete", TRUNCATE)
_INSERT, _BEFORE, _AFTER, _DELETE, _TRUNCATE = range(len(CHANGE_TYPES))
_TYPE_OF = {"c": _INSERT, "r": _INSERT, "u": _AFTER, "d": _DELETE, "t": _TRUNCATE}
BATCH_ROWS = 8_192
_JOINED_BYTES = 8 * 1024 * 1024
_BATCH_BYTES = 16 * 1024 * 1024
"""Of rows that are read at once; one row may have more."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some row groups of one file, and which of its rows to read."""

    store: ObjectStore = field(compare=False, repr=False)
    name: str
    """Of the file in the store."""
    file_rows: int
    """The rows that the manifest says the whole file has."""
    groups: tuple[int, int] | None
    """The first row group, and the one behind the last; None for the whole file."""
    first_row: int
    """The number of the part's first row among the commit's."""
    version: int
    committed_us: int
    position: str
    """Where the source's log stood behind the commit."""
    begin: LogPlace | None = None
    """Where the log stood before the commit; given with `start` or `end`."""
    start: LogPlace | None = None
    """Rows before this place are left out."""
    end: LogPlace | None = None
    """Rows from this place on are left out."""

    @property
    def path(self) -> str:
        """Return where the file is, for errors."""
        return f"{self.store}/{self.name}"


def table_columns(store: ObjectStore, name: str) -> pa.Schema:
    """Return the table's own columns in a file of its log, in types that Spark knows."""
    with open_file(store, name) as file:
        row = file.schema_arrow.field("after").type
        return pa.schema([(member.name, known_type(member.type)) for member in row])


def read_rows(
    part: FilePart, wanted: pa.Schema, *, with_truncates: bool, has_all: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield a part's rows with the wanted columns; a TRUNCATE is refused unless it is wanted, too.

    The file must have the wanted columns in the wanted types: else the table was changed since.
    `has_all`: and no others, for nobody has said which of them to leave out.
    """
    own = [field for field in wanted if field.name not in COMMIT_COLUMNS]
    with open_file(part.store, part.name) as file:
        _require_fit(file, part, own, has_all=has_all)
        names = [f"{image}.{field.name}" for field in own for image in ("before", "after")]
        places = ["source.file", "source.pos"] if part.begin is not None else []
        first_row = part.first_row
        groups = range(*(part.groups or (0, file.num_row_groups)))
        for batch in batches_of_groups(file, groups, ["op", *places, *names]):
            events = _Events(batch, first_row, part)
            first_row += batch.num_rows
            if events.has_truncate and not with_truncates:
                raise _truncated(part)
            if events:
                yield events.rows(wanted)


def read_parts(
    parts: Sequence[FilePart], wanted: pa.Schema, *, with_truncates: bool, has_all: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of parts one behind the other; small batches are put together."""
    return put_together(
        chain.from_iterable(
            read_rows(part, wanted, with_truncates=with_truncates, has_all=has_all)
            for part in parts
        )
    )


def batches_of_groups(
    file: pq.ParquetFile, groups: Iterable[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups, at most so many at once as have some megabytes."""
    for group in groups:
        told = file.metadata.row_group(group)
        row_bytes = max(1, told.total_byte_size // max(1, told.num_rows))
        rows = min(BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes))
        yield from file.iter_batches(rows, row_groups=[group], columns=[*columns])


def put_together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows; small batches are put together."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if held and (rows > BATCH_ROWS or size > _JOINED_BYTES):
            yield one_batch(pa.Table.from_batches(held))
            held, rows, size = [], batch.num_rows, batch.nbytes
        held.append(batch)
    if held:
        yield one_batch(pa.Table.from_batches(held))


def open_file(store: ObjectStore, name: str) -> pq.ParquetFile:
    """Open a file of the log; an error in words if it is gone."""
    try:
        return opened_parquet(store, name, whose="pipeline")
    except FileNotFoundError as error:
        raise SnapshotRequiredError(
            f"{name.rpartition('/')[2]} is gone, though it counted when this read was planned",
            where=f"{store}/{name}",
            risk="its rows are missing; nothing else was read in their place",
            remedy="the log was begun anew by `reset`, or files were deleted by hand, or this "
            "machine does not have the folder: read the log again from its start",
        ) from error


def opened_parquet(store: ObjectStore, name: str, *, whose: str) -> pq.ParquetFile:
    """Open a file; `FileNotFoundError`, and `CorruptLogError` if it is no whole Parquet file.

    `whose` it is says what to reset then.
    """
    try:
        source = store.columns_of(name)
        # what is near in a store is one request
        return pq.ParquetFile(source, pre_buffer=not isinstance(source, Path))
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"{name.rpartition('/')[2]} is no whole Parquet file: {error}",
            where=f"{store}/{name}",
            risk="its rows cannot be read; nothing was guessed",
            remedy=f"restore the file from a copy, or `reset` the {whose}",
        ) from error


class _Events:
    """A batch of a file's events, and the rows of changes that they become."""

    def __init__(self, batch: pa.RecordBatch, first_row: int, part: FilePart) -> None:
        self._part = part
        self._numbers: IntArray = np.arange(first_row, first_row + batch.num_rows)
        if part.begin is not None:
            batch, self._numbers = _between(batch, self._numbers, part, part.begin)
        self._batch = batch
        self._types = _change_types(batch.column("op"), part)
        self.has_truncate = bool((self._types == _TRUNCATE).any())

    def __len__(self) -> int:
        return len(self._types)

    def rows(self, wanted: pa.Schema) -> pa.RecordBatch:
        """Return the rows of changes with the wanted columns."""
        is_update = self._types == _AFTER
        event = np.repeat(np.arange(len(self._types)), 1 + is_update.astype(np.int64))
        types = self._types[event]
        first = np.flatnonzero(is_update) + np.arange(np.count_nonzero(is_update))
        types[first] = _BEFORE
        of_before = (types == _BEFORE) | (types == _DELETE)
        special = self._commit_columns(event, types)
        columns = [
            special[field.name] if field.name in special else self._column(field, event, of_before)
            for field in wanted
        ]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _commit_columns(self, event: IntArray, types: IntArray) -> dict[str, pa.Array]:
        """Return the columns that tell of the change and its commit."""
        part, count = self._part, len(event)
        times = np.full(count, part.committed_us, np.int64)
        return {
            CHANGE_TYPE: texts_of(CHANGE_TYPES).take(numbers_of(types)),
            COMMIT_VERSION: numbers_of(np.full(count, part.version, np.int64)),
            COMMIT_TIMESTAMP: as_arrow(times, None, COMMIT_COLUMNS[COMMIT_TIMESTAMP]),
            COMMIT_POSITION: pa.repeat(texts_of([part.position])[0], count),
            COMMIT_ORDER: numbers_of(self._numbers[event]),
        }

    def _column(self, field: pa.Field, event: IntArray, of_before: BoolArray) -> pa.Array:
        """Return one of the table's columns, from the image before or after each change."""
        count = self._batch.num_rows
        if not of_before.any():
            found = self._image("after", field.name)
        elif of_before.all():
            found = self._image("before", field.name)
        else:
            both = [self._image("before", field.name), self._image("after", field.name)]
            place = numbers_of(event + np.where(of_before, 0, count))
            found = pa.concat_arrays(both).take(place)
        return found if found.type == field.type else found.cast(field.type)

    def _image(self, image: str, name: str) -> pa.Array:
        """Return a column of all events' rows before or after the change."""
        return self._batch.column(image).field(name)


def _change_types(op: pa.Array, part: FilePart) -> IntArray:
    """Return the number of each event's type of change."""
    letters = texts_of(list(_TYPE_OF))
    found = pc.index_in(op, value_set=letters)
    if found.null_count:
        unknown = op.filter(pc.is_null(found))[0].as_py()
        raise UnknownEventError(
            f"the operation {unknown!r} is not known",
            where=part.path,
            risk="what it does to rows is unknown; none of them was read",
            remedy="use the release that wrote the log",
        )
    numbers = np.array(list(_TYPE_OF.values()), np.int64)
    types: IntArray = numbers[as_numpy(found)]
    return types


def _between(
    batch: pa.RecordBatch, numbers: IntArray, part: FilePart, begin: LogPlace
) -> tuple[pa.RecordBatch, IntArray]:
    """Return the events between the part's places; none counts before its commit began.

    Rows of an XA transaction were logged before its XA PREPARE, which may be commits ago.
    """
    source = batch.column("source")
    places = RowPlaces(source.field("file"), source.field("pos"))
    kept = np.ones(batch.num_rows, np.bool_)
    if part.start is not None and not part.start.is_before_or_at(begin):
        kept &= places.at_least(part.start)
    if part.end is not None:
        kept &= ~places.at_least(part.end)
    return batch.filter(mask_of(kept)), numbers[kept]


def _require_fit(
    file: pq.ParquetFile, part: FilePart, own: Sequence[pa.Field], *, has_all: bool
) -> None:
    """Refuse a file with other rows than the manifest says, or with other columns than wanted."""
    if file.metadata.num_rows != part.file_rows:
        raise CorruptLogError(
            f"the file has {file.metadata.num_rows} rows, the manifest says {part.file_rows}",
            where=part.path,
            risk="rows were lost or added; none of them was read",
            remedy="restore the file from a copy, or `reset` the pipeline",
        )
    row = file.schema_arrow.field("after").type
    there = {member.name: known_type(member.type) for member in row}
    for column in own:
        found = there.get(column.name)
        if found is None or not found.equals(column.type):
            what = f"is {found or 'not there'} in version {part.version}, and {column.type} here"
            raise _other_columns(f"column {column.name} {what}", part)
    left_out = sorted(there.keys() - {column.name for column in own})
    if has_all and left_out:
        what = f"is in version {part.version}, and not among those that are read"
        raise _other_columns(f"column {left_out[0]} {what}", part)


def _other_columns(what: str, part: FilePart) -> RefusedError:
    """Return the error for files with other columns, because the table was changed."""
    return RefusedError(
        f"{what}: the table was changed at the source",
        where=part.path,
        risk="values would be missing, or guessed; its file was not read",
        remedy="name by the option columns those that are read on both sides of the change, or "
        "read each side by itself, up to a version and from the next one on; a stream needs a new "
        "query with a new checkpoint for other columns",
    )


def _truncated(part: FilePart) -> RefusedError:
    """Return the error for a TRUNCATE, or a new beginning, that the reader may not know of."""
    return RefusedError(
        f"the table was emptied by TRUNCATE in version {part.version}, or begins again there",
        where=part.path,
        risk="who does not know of it keeps rows that are gone; its file was not read",
        remedy=f"have it as a row, by the option truncates=rows: its {CHANGE_TYPE} is "
        f"{TRUNCATE!r}, its columns are NULL, and every row before it is gone; or start behind it",
    )
