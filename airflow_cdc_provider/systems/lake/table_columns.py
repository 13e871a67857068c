"""The columns of a table once it takes files with other ones: more, or wider, or it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId


def columns_with(
    table: TableId, known: pa.Schema, files: Iterable[pa.Schema], *, widens: bool
) -> pa.Schema:
    """Return a table's columns with those of files that it is to take; the order stays.

    A type may only become wider, and only if the format `widens`; else `RefusedError`.
    """
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in known])

    def joined(columns: pa.Schema, more: pa.Schema) -> pa.Schema:
        return _with(table, columns, more, widens=widens)

    return reduce(joined, files, plain)


def _with(table: TableId, columns: pa.Schema, more: pa.Schema, *, widens: bool) -> pa.Schema:
    """Return columns with those of one file."""
    for field in more:
        place = columns.get_field_index(field.name)
        wanted = pa.field(field.name, _plain(field.type))
        if place < 0:
            _require_own_name(table, columns, field.name)
            columns = columns.append(wanted)
            continue
        there = columns.field(place).type
        if there.equals(wanted.type) or is_wider(there, wanted.type):
            continue
        if not (widens and is_wider(wanted.type, there)):
            raise RefusedError(
                f"column {field.name} of {table} is {there} in the lake and is to be {wanted.type}",
                where=f"table {table}",
                risk="values could be lost or misread; nothing of it was committed to the table",
                remedy="`reset` the table, or the pipeline: it is made anew then",
            )
        columns = columns.set(place, wanted)
    return columns


def _require_own_name(table: TableId, columns: pa.Schema, name: str) -> None:
    """Refuse a column that another one differs from by case alone: readers know one of them."""
    others = [each for each in columns.names if each.lower() == name.lower()]
    if others:
        raise RefusedError(
            f"column {name} of {table} is called {others[0]} in the lake",
            where=f"table {table}",
            risk="readers could not tell the two apart; nothing was committed to the table",
            remedy="`reset` the table, or the pipeline: it is made anew then",
        )


def kept_columns(known: pa.Schema, wanted: pa.Schema, *, exactly: bool = False) -> frozenset[str]:
    """Return which columns of a table can become those of the same name that are `wanted`.

    `exactly`: those that are the same already.
    """

    def is_kept(name: str) -> bool:
        was, now = _plain(known.field(name).type), _plain(wanted.field(name).type)
        return was.equals(now) or (not exactly and is_wider(now, was))

    return frozenset(name for name in known.names if name in wanted.names and is_kept(name))


def is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Tell whether a type holds every value of another one, and formats can promote to it."""
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision > narrow.precision)
    return (narrow, wide) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type as files have it, without what a library adds for itself."""
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _plain(member.type)) for member in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
