"""Which layouts the files of a table in a lake can have."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout, Transform
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.systems.lake.columns import COMMITTED_AT, OP, ORDER

DELTA = "delta"
_TIMES = frozenset({Transform.YEAR, Transform.MONTH, Transform.DAY, Transform.HOUR})
_MOMENTS = frozenset({"datetime", "timestamp"})
_DAYS = _MOMENTS | {"date"}
_TEXTS = frozenset({TypeKind.TEXT, TypeKind.ENUM, TypeKind.SET})
_ORDERED = _TEXTS | {
    TypeKind.INTEGER,
    TypeKind.BITS,
    TypeKind.DECIMAL,
    TypeKind.FLOAT,
    TypeKind.BINARY,
    TypeKind.TEMPORAL,
}
_ALSO = {COMMITTED_AT: "timestamp", OP: "varchar", ORDER: "bigint"}
"""Columns that tell of the change, by types that the source would have for them."""


def require_layout(target: TableSchema, layout: TableLayout, form: str) -> None:
    """Raise `ValueError` for a layout that files of a format cannot have."""
    for wrong in _wrong(target, layout, form):
        raise ValueError(wrong)


def _wrong(target: TableSchema, layout: TableLayout, form: str) -> Iterator[str]:
    """Yield what is wrong with a layout."""
    there = {column.name: column.type for column in target.copied_columns}
    for name in layout.columns:
        if name not in there and name not in _ALSO:
            kept = ", and tables of Delta keep their partitions: route it to another name"
            is_kept = form == DELTA and name not in layout.order
            text = f"{target.table} would have no column {name} to lay out its files by"
            yield text + (kept if is_kept else "")
    for field in layout.partitions:
        if form == DELTA and field.transform is not Transform.IDENTITY:
            yield (
                f"{field} of {target.table}: tables of Delta have partitions by columns as they "
                "are, Iceberg's have others, too"
            )
        kind = there.get(field.column)
        if not _can_be(field, kind):
            what = "partitioned by" if field.transform is Transform.IDENTITY else "given to"
            sign = " UNSIGNED" if kind is not None and kind.unsigned else ""
            typed = "" if kind is None else f", a {kind.name.upper()}{sign},"
            yield f"{field.column} of {target.table}{typed} cannot be {what} {field}: {_FITS}"
    for name in layout.order:
        if name in there and there[name].kind not in _ORDERED:
            yield f"rows of {target.table} cannot be sorted by {name}, a {there[name].name}"
    timed = [each.column for each in layout.partitions if each.transform in _TIMES]
    for name in sorted({each for each in timed if timed.count(each) > 1}):
        yield f"{name} of {target.table} is in two partitions by its time: write the finer one"


_FITS = (
    "partitions are by whole numbers but BIGINT UNSIGNED, texts, dates and BIT(1); year, month and "
    "day are of DATE, DATETIME and TIMESTAMP, hour of the last two, bucket of all these, and "
    "truncate of whole numbers and texts"
)


def _can_be(field: PartitionField, kind: ColumnType | None) -> bool:
    """Tell whether a column of a type has a transform; None: one that tells of the change."""
    name = _ALSO.get(field.column, "") if kind is None else kind.name
    is_number = kind is not None and kind.kind is TypeKind.INTEGER
    is_number = is_number and not (name == "bigint" and kind is not None and kind.unsigned)
    is_text = name == "varchar" if kind is None else kind.kind in _TEXTS
    match field.transform:
        case Transform.IDENTITY:
            is_bit = kind is not None and kind.kind is TypeKind.BITS and kind.length == 1
            return is_number or is_text or is_bit or name == "date"
        case Transform.HOUR:
            return name in _MOMENTS
        case Transform.YEAR | Transform.MONTH | Transform.DAY:
            return name in _DAYS
        case Transform.BUCKET:
            return is_number or is_text or name in _DAYS
        case _:
            return is_number or is_text
