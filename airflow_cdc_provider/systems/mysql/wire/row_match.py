"""Conditions that find exactly the rows that hold given values, in every column and every bit.

`a <=> b` alone says too much: a collation takes texts for equal that have other bytes, -0 is 0, and
JSON's 1 is 1.0. So texts are compared as the bytes that the column stores, after the conversion
that an INSERT of the same text goes through, and a float's sign is compared, too. The plain
comparison stands beside that of bytes where an index over short texts could be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import binaries_of, binary_scalar
from airflow_cdc_provider.columns.byte_views import string_offsets
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.systems.mysql.wire.sql_text import RowsText, column_text
from airflow_cdc_provider.systems.mysql.wire.text_values import comes_as_bytes

_BY_INDEX = frozenset({"char", "varchar"})
_AS_BYTES = frozenset({TypeKind.GEOMETRY, TypeKind.POINT, TypeKind.VECTOR})
_LONG_BYTES = 4096
_VALUE = "\0"
"""Where a condition has the value; no name holds this character."""
_OR = b" OR"
"""Stands behind each row's condition."""


def matches_sql(rows: pa.RecordBatch, columns: Sequence[Column], *, is_mariadb: bool) -> RowsText:
    """Return each row's condition and ` OR`; true of the rows that have its value in each column.

    `any_of` makes the condition of a run of rows.
    """
    binary = pa.large_binary()
    parts: list[pa.Array | pa.Scalar] = []
    opening = " ("
    for column in columns:
        array = rows.column(column.name)
        if _is_long(array, column):
            text, condition = _digests(array), _digest_condition(column)
        else:
            text = column_text(array, column)
            condition = _condition(column, array.type, is_mariadb=is_mariadb)
        condition = opening + condition
        *before, last = condition.encode().split(_VALUE.encode())
        for constant in before:
            parts += [binary_scalar(constant, binary), text]
        parts.append(binary_scalar(last, binary))
        opening = " AND "
    parts.append(binary_scalar(b")" + _OR, binary))
    joined = pc.binary_join_element_wise(
        *parts, binary_scalar(b"", binary), null_handling="replace", null_replacement="NULL"
    )
    return RowsText(memoryview(joined.buffers()[2]), string_offsets(joined))


def any_of(text: RowsText, first: int, end: int) -> bytes:
    """Return the condition that is true of the rows that any of these match."""
    return bytes(text.run(first, end)[: -len(_OR)])


def _is_long(array: pa.Array, column: Column) -> bool:
    """Tell whether a column holds long values, of which SHA-256 says as well which they are.

    A statement with the values themselves could be longer than what the server takes.
    """
    is_text = pa.types.is_string(array.type) and column.type.kind is TypeKind.TEXT
    is_convertible = is_text and not comes_as_bytes(column.type)
    is_binary = pa.types.is_binary(array.type) and column.type.kind is TypeKind.BINARY
    if not (is_convertible or is_binary):
        return False
    return bool((pc.max(pc.binary_length(array)).as_py() or 0) > _LONG_BYTES)


def _digests(array: pa.Array) -> pa.Array:
    """Return the SHA-256 of each value as SQL text; NULL stays NULL."""
    values = array.cast(pa.binary()).to_pylist()
    hashed = (None if v is None else b"'%b'" % sha256(v).hexdigest().encode() for v in values)
    return binaries_of(list(hashed), pa.large_binary())


def _digest_condition(column: Column) -> str:
    """Return the condition that the SHA-256 of a column's value is `_VALUE`."""
    name = quote_identifier(column.name)
    if column.type.kind is TypeKind.TEXT:
        name = f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"
    return f"SHA2({name}, 256) <=> {_VALUE}"


def _condition(column: Column, kind: pa.DataType, *, is_mariadb: bool) -> str:
    """Return the condition that a column has a value, which is to be put in for each `_VALUE`."""
    name = quote_identifier(column.name)
    plain = f"{name} <=> {_VALUE}"
    if column.type.kind is TypeKind.FLOAT and not is_mariadb:  # which stores 0 for -0
        is_negative = f"(LEFT({_VALUE}, 1) <=> '-')"
        return f"{plain} AND (LEFT(CONCAT({name}), 1) <=> '-') = {is_negative}"
    if column.type.kind in _AS_BYTES:
        return f"HEX({name}) <=> HEX({_VALUE})"
    if not pa.types.is_string(kind) or column.type.kind is TypeKind.TEMPORAL:
        return plain
    if column.type.name == "json" and not is_mariadb:
        value = f"CAST(CAST({_VALUE} AS JSON) AS CHAR)"
        return f"CAST(CAST({name} AS CHAR) AS BINARY) <=> CAST({value} AS BINARY)"
    charset = column.type.charset or "utf8mb4"
    bits = f"CAST({name} AS BINARY) <=> CAST(CONVERT({_VALUE} USING {charset}) AS BINARY)"
    if column.type.name == "enum":
        return f"IF({name} = 0, {_VALUE} <=> '{column.type.no_member}', {bits})"
    return f"{plain} AND {bits}" if column.type.name in _BY_INDEX else bits
