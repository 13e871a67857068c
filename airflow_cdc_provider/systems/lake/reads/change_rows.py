"""Rows of changes from the files of a lake's table, in Arrow batches.

Each row of the table is one: its own columns, and what the lake says of the change, by the names
that readers of change logs know. Nothing is made a Python object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cdc_provider.columns.arrow_arrays import (
    as_numpy,
    mask_of,
    numbers_of,
    texts_of,
)
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RefusedError,
    UnknownEventError,
)
from airflow_cdc_provider.systems.changelog.reads.change_rows import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    COMMIT_ORDER,
    COMMIT_POSITION,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    TRUNCATE,
    batches_of_groups,
    put_together,
)
from airflow_cdc_provider.systems.file_log.known_types import known_type
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import COMMITTED_AT, OP, ORDER, POSITION
from airflow_cdc_provider.systems.lake.reads.first_rows import bounds_of_group
from airflow_cdc_provider.systems.lake.reads.opened_files import opened_file
from airflow_cdc_provider.systems.lake.table_columns import is_wider

_INSERT, _AFTER, _DELETE, _TRUNCATE = (
    CHANGE_TYPES.index(name) for name in ("insert", "update_postimage", "delete", TRUNCATE)
)
_TYPE_OF = {"r": _INSERT, "c": _INSERT, "u": _AFTER, "d": _DELETE, "t": _TRUNCATE}
_STORED_AS = {
    COMMIT_VERSION: ORDER,
    COMMIT_TIMESTAMP: COMMITTED_AT,
    COMMIT_POSITION: POSITION,
}


@dataclass(frozen=True, slots=True)
class LakeFilePart:
    """Some row groups of a table's file."""

    name: str
    """Below the store."""
    groups: tuple[int, ...] | None = None
    """None for the whole file."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values that all of its rows have in columns which the file need not have."""


@dataclass(frozen=True, slots=True)
class LakeTask:
    """The files that one task reads, and which of their rows."""

    store: ObjectStore = field(compare=False, repr=False)
    parts: tuple[LakeFilePart, ...]
    behind: int
    """Rows up to this `_order` are left out."""
    upto: int
    """Rows behind this `_order` are left out."""
    wanted: pa.Schema
    with_truncates: bool

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, small batches put together."""
        return put_together(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the parts, one behind the other."""
        for part in self.parts:
            with opened_file(self.store, part.name) as file:
                yield from self._rows_of(file, part)

    def _rows_of(self, file: pq.ParquetFile, part: LakeFilePart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        where = f"{self.store}/{part.name}"
        there = {*file.schema_arrow.names}
        if missing := [n for n in (OP, ORDER) if n not in there and n not in part.constants]:
            raise _foreign(f"the file has no column {missing[0]}", where)
        stored = [_STORED_AS.get(name, name) for name in self.wanted.names]
        names = dict.fromkeys(name for name in (OP, ORDER, *stored) if name in there)
        groups = part.groups or range(file.num_row_groups)
        chosen = [each for each in groups if self._may_have(file, each)]
        for batch in batches_of_groups(file, chosen, [*names]):
            kept = _plain(batch).filter(mask_of(self._is_inside(batch, where)))
            if kept.num_rows:
                yield self._changes(kept, part, where)

    def _may_have(self, file: pq.ParquetFile, group: int) -> bool:
        """Tell whether a group may have rows of the range."""
        bounds = bounds_of_group(file, group, ORDER)
        return bounds is None or (bounds[1] > self.behind and bounds[0] <= self.upto)

    def _is_inside(self, batch: pa.RecordBatch, where: str) -> BoolArray:
        """Tell which rows are of the range."""
        if batch.column(ORDER).null_count:
            raise _foreign("a row has no _order", where)
        orders = as_numpy(batch.column(ORDER))
        inside: BoolArray = (orders > self.behind) & (orders <= self.upto)
        return inside

    def _changes(self, rows: pa.RecordBatch, part: LakeFilePart, where: str) -> pa.RecordBatch:
        """Return rows of the table as rows of changes."""
        types = _change_types(_op_of(rows, part), where)
        if not self.with_truncates and (types == _TRUNCATE).any():
            order = rows.column(ORDER).filter(mask_of(types == _TRUNCATE))[0].as_py()
            raise _truncated(order, where)
        made = {
            CHANGE_TYPE: texts_of(CHANGE_TYPES).take(numbers_of(types)),
            COMMIT_ORDER: numbers_of(np.zeros(rows.num_rows, np.int64)),
        }
        columns = [
            made[each.name] if each.name in made else _stored(rows, each, part, where)
            for each in self.wanted
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of which some can be chosen: of texts and bytes in views none can be."""
    kinds = [_stored_type(kind) for kind in rows.schema.types]
    if kinds == rows.schema.types:
        return rows
    columns = [column.cast(kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _op_of(rows: pa.RecordBatch, part: LakeFilePart) -> pa.Array:
    """Return the operation of each row; of a partition it may be what all share."""
    if OP in rows.schema.names:
        return rows.column(OP)
    return pa.repeat(pa.scalar(part.constants[OP], pa.string()), rows.num_rows)


def _stored(rows: pa.RecordBatch, wanted: pa.Field, part: LakeFilePart, where: str) -> pa.Array:
    """Return a column that is stored; one that the file does not have is NULL, or a constant."""
    name = _STORED_AS.get(wanted.name, wanted.name)
    if name in rows.schema.names:
        return _fitted(rows.column(name), wanted, where)
    return pa.repeat(pa.scalar(part.constants.get(name), wanted.type), rows.num_rows)


def _change_types(op: pa.Array, where: str) -> IntArray:
    """Return the number of each row's type of change."""
    found = pc.index_in(op.cast(pa.string()), value_set=texts_of(list(_TYPE_OF)))
    if found.null_count:
        unknown = op.filter(pc.is_null(found))[0].as_py()
        raise UnknownEventError(
            f"the operation {unknown!r} is not known",
            where=where,
            risk="what it does to rows is unknown; none of them was read",
            remedy="use the release that wrote the table",
        )
    numbers = np.array(list(_TYPE_OF.values()), np.int64)
    types: IntArray = numbers[as_numpy(found)]
    return types


def _fitted(values: pa.Array, wanted: pa.Field, where: str) -> pa.Array:
    """Return a file's column in the type that the table has for it now."""
    if values.type == wanted.type:
        return values
    plain = known_type(values.type)
    if plain == wanted.type or is_wider(wanted.type, plain):
        return values.cast(wanted.type)
    raise RefusedError(
        f"column {wanted.name} is {plain} in a file, and {wanted.type} in the table",
        where=where,
        risk="values would be guessed; the file was not read",
        remedy="have the table's files rewritten in its types, or leave the column out by the "
        "option columns; or read it by Spark's own reader of the format",
    )


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of values, whether they are stored by a dictionary or as texts apart."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _foreign(what: str, where: str) -> IntegrityError:
    """Return the error for rows that are none of ours."""
    return IntegrityError(
        f"{what}: others wrote it",
        where=where,
        risk="which change it is, and when, is not known; none of the file was read",
        remedy="delete rows that others added to the table, or read it by Spark's own reader of "
        "the format",
    )


def _truncated(version: int, where: str) -> RefusedError:
    """Return the error for a TRUNCATE, or a new beginning, that the reader may not know of."""
    return RefusedError(
        f"the table was emptied by TRUNCATE in version {version}, or begins again there",
        where=where,
        risk="who does not know of it keeps rows that are gone; its file was not read",
        remedy=f"have it as a row, by the option truncates=rows: its {CHANGE_TYPE} is "
        f"{TRUNCATE!r}, its columns are NULL, and every row before it is gone; or start behind it",
    )


def cut_by_groups(
    store: ObjectStore, whole: LakeFilePart, size: int, part_bytes: int
) -> Sequence[LakeFilePart]:
    """Return the parts of a large file, each of whole row groups of about one size."""
    with opened_file(store, whole.name) as file:
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    wanted = max(1, sum(sizes) * part_bytes // size)
    parts: list[LakeFilePart] = []
    held: list[int] = []
    rows = 0
    for number, count in enumerate(sizes):
        held.append(number)
        rows += count
        if rows >= wanted or number == len(sizes) - 1:
            parts.append(replace(whole, groups=tuple(held)))
            held, rows = [], 0
    return parts
