"""A table's rows and changes as the sink has them: columns chosen, renamed, masked, rows filtered.

What differs is in the plan's `TableShape`. Where nothing does, rows and changes are handed on as
they are, the source's own bytes with them.

**Filtered changes.** A row is at the sink where the condition is true for it, so a change is judged
by both its images: an update that leaves the filter is a delete, one that enters it an insert.

**Rows marked as deleted.** A delete becomes an update that sets the flag, and so does the half of a
change of key that takes the old key away: the other half is an insert.

**Metadata** says of each row what wrote it last (`row_stamps`). A change of key writes an insert.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy, numbers_of, texts_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.filtering import true_in
from airflow_cdc_provider.columns.hashed_values import hashed
from airflow_cdc_provider.columns.numpy_types import BoolArray
from airflow_cdc_provider.columns.row_stamps import no_stamps, stamped_alike, stamped_changes
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import RowFilter
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.salts import salt_bytes
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn


def shaped_rows(rows: SplitRows, plan: TablePlan, stamp: RowStamp | None = None) -> SplitRows:
    """Filter and shape a split's rows for the sink; return the same object if nothing differs.

    `stamp` is what the metadata says of them; None: they are not to be written.
    """
    if plan.shape.is_identity:
        return rows
    batches = []
    for each in rows.batches():
        copied = copied_rows(each, plan)
        some = each if copied is None else each.filter(copied)
        count = some.num_rows
        stamps = no_stamps(plan, count) if stamp is None else stamped_alike(plan, stamp, count)
        batches.append(sink_columns(some, plan, stamps=stamps))
    return ArrowRows(pa.Table.from_batches(batches, shaped_columns(rows.schema, plan)))


def copied_rows(rows: pa.RecordBatch, plan: TablePlan) -> pa.Array | None:
    """Return which rows of the source are copied; None for all."""
    return None if (where := plan.where) is None else true_in(where, rows)


def shaped_keys(keys: pa.RecordBatch, plan: TablePlan) -> pa.RecordBatch:
    """Return keys of the source, in the order of its key, as keys of the sink's rows.

    `RefusedError` if the sink's key has other columns of the source.
    """
    if plan.shape.is_identity:
        return keys
    outputs = {each.name: each for each in plan.shape.columns_of(plan.schema)}
    wanted = [outputs[name] for name in plan.target.primary_key]
    _require_keys(plan, {each.source for each in wanted if each.source} - {*keys.schema.names})
    arrays = [_values(keys, output) for output in wanted]
    return pa.RecordBatch.from_arrays(arrays, names=[output.name for output in wanted])


def source_keys(keys: pa.Table, plan: TablePlan) -> pa.Table:
    """Return keys of the sink's rows as keys of the source, in the order of its key.

    `RefusedError` if the sink's key does not tell them.
    """
    if plan.shape.is_identity:
        return keys
    names = plan.shape.names_of(plan.schema)
    at_sink = {*plan.target.primary_key}
    own = plan.schema.primary_key
    _require_keys(plan, {name for name in own if names.get(name) not in at_sink})
    return pa.Table.from_arrays([keys.column(names[name]) for name in own], names=list(own))


def copied_changes(changes: TableChanges, plan: TablePlan) -> TableChanges:
    """Return what a table's changes do to the rows that are copied, in the source's columns.

    Both images of a change must be whole.
    """
    return changes if (where := plan.where) is None else _filtered(changes, where)


def shaped_changes(
    changes: TableChanges, plan: TablePlan, log: pa.RecordBatch | None = None
) -> TableChanges:
    """Return changes of copied rows as the sink's rows change; the same object if nothing differs.

    `log` is what the metadata says of each transaction (`stamps_of`); it may be left out where the
    table has none.
    """
    if plan.shape.is_identity:
        return changes
    if plan.shape.deleted_flag:
        return _marked(changes, plan, log)
    before, op = sink_columns(changes.before, plan), as_numpy(changes.op)
    stamps = None
    if plan.shape.metadata.named and log is not None:
        moves = (op == Op.UPDATE) & _moves_key(changes, plan.schema.primary_key)
        kinds = np.where(moves, np.int8(Op.INSERT), op)
        stamps = stamped_changes(plan, kinds, changes.transaction, log)
    return _with_images(changes, before, sink_columns(changes.after, plan, stamps=stamps))


def shaped_columns(columns: pa.Schema, plan: TablePlan) -> pa.Schema:
    """Return the Arrow schema of the sink's rows, from that of the source's."""
    if plan.shape.is_identity:
        return columns
    empty = pa.RecordBatch.from_arrays(
        [pa.nulls(0, kind) for kind in columns.types], schema=columns
    )
    return sink_columns(empty, plan).schema


# --- columns ---------------------------------------------------------------------------------


def sink_columns(
    rows: pa.RecordBatch,
    plan: TablePlan,
    deleted: BoolArray | None = None,
    *,
    stamps: pa.RecordBatch | None = None,
) -> pa.RecordBatch:
    """Return rows of the source with the sink's columns.

    `deleted` says which are marked; None: none is. `stamps` are the metadata columns; None: all are
    NULL.
    """
    outputs = plan.shape.columns_of(plan.schema)
    arrays = [_values(rows, each) for each in outputs]
    names = [each.name for each in outputs]
    if plan.shape.deleted_flag:
        flags = np.zeros(rows.num_rows, np.int8) if deleted is None else deleted.astype(np.int8)
        arrays.append(as_arrow(flags, None, pa.int8()))
        names.append(plan.shape.deleted_flag)
    if plan.shape.metadata.named:
        stamps = no_stamps(plan, rows.num_rows) if stamps is None else stamps
        arrays += stamps.columns
        names += stamps.schema.names
    fields = [pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _require_keys(plan: TablePlan, lacking: Collection[str]) -> None:
    """Raise an error if the keys of one side do not tell those of the other."""
    if lacking:
        raise RefusedError(
            f"the key of {plan.sink_table} does not follow from that of {plan.schema.table}: "
            f"{', '.join(sorted(lacking))} is in one of them only",
            where=f"definition of {plan.sink_table}",
            risk=NOTHING_CHANGED,
            remedy="rows of such a table are read again by ranges of the source's key only: "
            "`resync` ranges, or the whole table",
        )


def _values(rows: pa.RecordBatch, output: OutputColumn) -> pa.Array:
    """Return the values of one column of the sink."""
    if not output.source:
        value = output.constant
        constant = numbers_of([value]) if isinstance(value, int) else texts_of([value])
        return pa.repeat(constant[0], rows.num_rows)
    values = rows.column(output.source)
    return values if output.mask is None else _masked(values, output.mask)


def _masked(values: pa.Array, mask: Mask) -> pa.Array:
    """Return values as a mask leaves them.

    A text has no blanks at its end then, as the server would take them off a CHAR, and a mask that
    ends behind a blank would give other values at the sink than it does here.
    """
    kind = values.type
    if mask.kind is MaskKind.NULL:
        return pa.nulls(len(values), kind)
    if mask.kind is MaskKind.SHA256:
        return hashed(values, salt_bytes(mask))
    kept = _kept(values, mask)
    return pc.utf8_rtrim(kept, " ") if pa.types.is_string(kind) else kept


def _kept(values: pa.Array, mask: Mask) -> pa.Array:
    """Return the characters or bytes that a mask keeps, or puts in the place of values."""
    kind = values.type
    if mask.kind is MaskKind.FIXED:
        return pc.if_else(
            pc.is_valid(values), texts_of([mask.text])[0].cast(kind), pa.nulls(1, kind)[0]
        )
    cut = pc.utf8_slice_codeunits if pa.types.is_string(kind) else pc.binary_slice
    if mask.kind is MaskKind.FIRST:
        return cut(values, 0, mask.length)
    return cut(values, -mask.length, None) if mask.length else cut(values, 0, 0)


# --- filters ---------------------------------------------------------------------------------


def _filtered(changes: TableChanges, condition: RowFilter) -> TableChanges:
    """Return what changes do to the rows for which a condition is true."""
    op = as_numpy(changes.op)
    was = as_numpy(true_in(condition, changes.before)) & (op != Op.INSERT)
    is_now = as_numpy(true_in(condition, changes.after)) & (op != Op.DELETE)
    kinds = np.where(was, np.where(is_now, Op.UPDATE, Op.DELETE), Op.INSERT).astype(np.int8)
    stays = was | is_now
    if not stays.all():
        changes, kinds = changes.take(numbers_of(np.flatnonzero(stays))), kinds[stays]
    return replace(changes, op=as_arrow(kinds, None, pa.int8()))


# --- rows that are marked --------------------------------------------------------------------


def _marked(changes: TableChanges, plan: TablePlan, log: pa.RecordBatch | None) -> TableChanges:
    """Return changes that mark a row where the source deletes it, or moves it to another key."""
    op = as_numpy(changes.op)
    moves = (op == Op.UPDATE) & _moves_key(changes, plan.schema.primary_key)
    places = np.repeat(np.arange(len(op)), 1 + moves)  # a change of key is there twice
    is_second = np.concatenate([[False], places[1:] == places[:-1]]) if len(places) else moves
    takes = (op == Op.DELETE)[places] | (moves[places] & ~is_second)
    kinds = np.where(takes, np.int8(Op.UPDATE), np.where(is_second, np.int8(Op.INSERT), op[places]))
    wide = changes.take(numbers_of(places))
    after = _chosen(takes, wide.before, wide.after)
    put = replace(wide, op=as_arrow(kinds.astype(np.int8), None, pa.int8()))
    stamps = None
    if plan.shape.metadata.named and log is not None:
        written = np.where(takes, np.int8(Op.DELETE), kinds).astype(np.int8)
        stamps = stamped_changes(plan, written, wide.transaction, log)
    marked = sink_columns(after, plan, takes, stamps=stamps)
    return _with_images(put, sink_columns(wide.before, plan), marked)


def _moves_key(changes: TableChanges, key: Sequence[str]) -> BoolArray:
    """Tell for each change whether its images have different keys, byte for byte."""
    moved = np.zeros(len(changes), np.bool_)
    for name in key:
        same = pc.equal(changes.before.column(name), changes.after.column(name))
        moved |= ~as_numpy(same.fill_null(True))  # noqa: FBT003 - Arrow's own signature
    return moved


def _chosen(first: BoolArray, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of `one` where `first` is true, elsewhere those of `other`."""
    count = one.num_rows
    places = np.where(first, np.arange(count), np.arange(count) + count)
    return pa.concat_batches([one, other]).take(numbers_of(places))


def _with_images(
    changes: TableChanges, before: pa.RecordBatch, after: pa.RecordBatch
) -> TableChanges:
    """Return the same changes with other images: NULLs where a change has none."""
    op = as_numpy(changes.op)
    return replace(
        changes,
        before=_absent_where(op == Op.INSERT, before),
        after=_absent_where(op == Op.DELETE, after),
    )


def _absent_where(absent: BoolArray, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with NULLs in the place of some of them."""
    if not absent.any():
        return rows
    return rows.take(as_arrow(np.arange(len(absent)), absent, pa.int64()))
