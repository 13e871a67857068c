"""Which rows of a batch a condition is true for, and whether it can be judged at all.

Values are judged in the value model, so a row is judged the same whether it came by SELECT or from
the log, and whatever its server's collations say: texts are equal letter by letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.core.row_filters import (
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    IsNull,
    Like,
    Literal,
    Not,
    RowFilter,
    leaves_in,
)
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema, TypeKind

_COMPARED = {
    Comparator.EQUAL: pc.equal,
    Comparator.UNEQUAL: pc.not_equal,
    Comparator.LESS: pc.less,
    Comparator.AT_MOST: pc.less_equal,
    Comparator.GREATER: pc.greater,
    Comparator.AT_LEAST: pc.greater_equal,
}
_UNORDERED = {Comparator.EQUAL, Comparator.UNEQUAL}
_UNJUDGED = {
    TypeKind.FLOAT: "its digits are not the same everywhere",
    TypeKind.JSON: "the same document has many texts",
    TypeKind.GEOMETRY: "it has no order",
    TypeKind.POINT: "it has no order",
    TypeKind.VECTOR: "it has no order",
}


def true_in(condition: RowFilter, rows: pa.RecordBatch) -> pa.Array:
    """Return for which rows a condition is true; unknown is not true."""
    return _judged(condition, rows).fill_null(False)  # noqa: FBT003 - Arrow's own signature


def _judged(condition: RowFilter, rows: pa.RecordBatch) -> pa.Array:
    """Return for each row whether a condition is true, false, or NULL for unknown."""
    match condition:
        case Comparison():
            values = rows.column(condition.column)
            return _COMPARED[condition.comparator](values, _literal(condition.value, values.type))
        case Like():
            return pc.match_like(rows.column(condition.column), condition.pattern)
        case IsNull():
            return pc.is_null(rows.column(condition.column))
        case Not():
            return pc.invert(_judged(condition.condition, rows))
        case AllOf():
            return reduce(pc.and_kleene, [_judged(each, rows) for each in condition.conditions])
        case AnyOf():
            return reduce(pc.or_kleene, [_judged(each, rows) for each in condition.conditions])


def _literal(value: Literal, kind: pa.DataType) -> pa.Scalar:
    """Return a value of a column's type to compare it with; an Arrow error if it has none."""
    if isinstance(value, int) and pa.types.is_decimal(kind):
        value = Decimal(value)
    return pa.scalar(value, kind) if isinstance(value, int) else pa.scalar(value).cast(kind)


def require_judgeable(condition: RowFilter, schema: TableSchema, columns: pa.Schema) -> None:
    """Refuse a condition that cannot be judged for each row; `ValueError` names the column.

    `columns` are the table's in the value model. All columns that the condition names must be
    among them.
    """
    for each in leaves_in(condition):
        if isinstance(each, IsNull):
            continue
        column, kind = schema.column(each.column), columns.field(each.column).type
        if why := _UNJUDGED.get(column.type.kind):
            raise ValueError(f"{column.name} cannot be compared: {why}")
        if isinstance(each, Like):
            if column.type.kind is not TypeKind.TEXT or not pa.types.is_string(kind):
                raise ValueError(f"{column.name} is no text, and LIKE is about texts")
            continue
        _require_literal(each, kind, is_temporal=column.type.kind is TypeKind.TEMPORAL)
        _require_possible(each, column.type)


def is_of_moments(condition: RowFilter, column: str) -> bool:
    """Tell whether a column is compared with moments that say their zone, as it does then."""
    compared = (each for each in leaves_in(condition) if isinstance(each, Comparison))
    return any(each.column == column and _has_zone(each.value) for each in compared)


def _has_zone(value: Literal) -> bool:
    """Tell whether a condition's value is a text that says a moment with its zone."""
    try:
        pa.scalar(value).cast(pa.timestamp("us", "UTC"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return isinstance(value, str)


def _require_literal(each: Comparison, kind: pa.DataType, *, is_temporal: bool) -> None:
    """Refuse a comparison with a value that the column cannot have."""
    name, value = each.column, each.value
    if is_temporal and not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise ValueError(f"{name} cannot be compared: it is not a date or a moment here")
    is_text = pa.types.is_string(kind)
    if is_text and each.comparator not in _UNORDERED:
        raise ValueError(f"{name} is a text, whose order is the server's own: only = <> IN LIKE")
    if not isinstance(value, _written(kind)):
        raise ValueError(f"{name} is compared with {_example(kind)}, not with {value!r}")
    try:
        _literal(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        raise ValueError(f"{value!s} is no value of {name}: write it as {_example(kind)}") from None


def _require_possible(each: Comparison, kind: ColumnType) -> None:
    """Refuse a value that no row can have: it is a slip, and `<>` would be true for all rows."""
    value, why, members = each.value, "", ", ".join(map(repr, kind.members))
    if (
        kind.kind is TypeKind.ENUM
        and kind.members
        and value not in {*kind.members, kind.no_member, ""}
    ):
        why = f"whose members are {members}"
    elif kind.kind is TypeKind.SET and not _is_set(str(value), kind.members):
        why = f"whose members are {members}, in this order"
    elif kind.length is None:
        return
    elif kind.kind is TypeKind.BITS and isinstance(value, int) and value >> kind.length:
        why = f"which has {kind.length} bits"
    elif isinstance(value, (str, bytes)) and len(value) > kind.length:
        units = "characters" if isinstance(value, str) else "bytes"
        why = f"which has at most {kind.length} {units}"
    if why:
        raise ValueError(f"{_shown(value)} is no value of {each.column}, {why}")


def _is_set(value: str, members: Sequence[str]) -> bool:
    """Tell whether a text is a SET's value as it is read: its members in their order."""
    chosen = value.split(",") if value else []
    return chosen == [member for member in members if member in chosen]


def _shown(value: Literal) -> str:
    """Return a value as a person writes it."""
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)


def _written(kind: pa.DataType) -> tuple[type, ...]:
    """Return how values of a column are written in a condition."""
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_decimal(kind):
        return int, Decimal
    return (bytes,) if pa.types.is_binary(kind) else (str,)


def _example(kind: pa.DataType) -> str:
    """Return what values of a column look like in a condition."""
    if pa.types.is_integer(kind):
        return "a whole number that it can have"
    if pa.types.is_decimal(kind):
        return f"a number of at most {kind.scale} digits behind the point"
    if pa.types.is_binary(kind):
        return "bytes such as x'00ff'"
    if pa.types.is_date(kind):
        return "a date such as '2026-01-31'"
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return f"a moment such as '2026-01-31 08:30:00{zone}'"
    return "a text such as 'EU'"
