r"""Rows become what LOAD DATA LOCAL reads: from Arrow, or from the source's own bytes.

**From Arrow** (`load_rows`): fields end with a tab, lines with a newline; backslash, tab and
newline inside a field are preceded by a backslash, NULL is `\N`.

**From the text protocol** (`load_chunk`): a row there is `[4-byte header][length][field]
[length][field]..`. A field shorter than 251 bytes has a length of one byte, and these bytes are
overwritten by separators where they stand: 0x1E ends the line before, 0x1D1D1D and the first
length begin the line, each other length becomes 0x1F. Nothing moves; only longer lengths have
bytes to spare, and with them in a chunk the rest is copied together. A NULL, which is a length
without a field, becomes an empty field, and the clause turns empty fields of its column back into
NULL. A chunk goes through Arrow instead if a column of it has both NULLs and empty texts, or if
any field holds one of the three separators; both is looked up for all rows at once.

The two have different clauses, and both are written without string literals, so that no sql_mode
changes them. MySQL refuses bytes that are not UTF-8 in a file said to be UTF-8, even for a BLOB;
so where there are binary columns the file is said to be binary, and texts are converted from
UTF-8 through variables. BIT goes through one too: it would keep the digits' bytes.

What goes through a variable has its type said. MySQL decides what an expression is when it reads
the statement, by what the variable held before: texts behind a load of bytes would be stored as
bytes. And beside a SET, MariaDB takes 0 in an AUTO_INCREMENT column for "count", in any sql_mode,
unless it is set itself.

LOAD DATA LOCAL turns errors into warnings: whoever runs it compares row counts and warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import binary_scalar, mask_of
from airflow_cdc_provider.columns.byte_views import string_bytes, string_offsets
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.systems.mysql.dialect.value_model import (
    BINARY_TYPES,
    CHARACTER_TYPES,
    DATE_TYPES,
    GEOMETRY_TYPES,
    ZeroDates,
)
from airflow_cdc_provider.systems.mysql.dialect.value_text import value_text
from airflow_cdc_provider.systems.mysql.dialect.zero_dates import no_day_in_text
from airflow_cdc_provider.systems.mysql.wire.packet_chain import HEADER_BYTES
from airflow_cdc_provider.systems.mysql.wire.sql_text import rows_of
from airflow_cdc_provider.systems.mysql.wire.text_protocol import Field, TextChunk
from airflow_cdc_provider.systems.mysql.wire.text_values import comes_as_bytes

_ESCAPED = np.zeros(256, np.bool_)
_ESCAPED[[ord("\\"), ord("\t"), ord("\n")]] = True
_LONGEST_LENGTH = 9
_LINE_END, _LINE_START, _FIELD_END = 0x1E, 0x1D, 0x1F

_ROWS_DIALECT = "FIELDS TERMINATED BY 0x09 ESCAPED BY 0x5C LINES TERMINATED BY 0x0A"
_CHUNK_DIALECT = (
    "FIELDS TERMINATED BY 0x1F ESCAPED BY '' LINES STARTING BY 0x1D1D1D1D TERMINATED BY 0x1E"
)


@dataclass(frozen=True, slots=True)
class LoadText:
    """Rows as the bytes that LOAD DATA LOCAL reads, and the clause that says how.

    Texts with the same `clause` may be sent one after the other in one statement.
    """

    body: memoryview = field(repr=False)
    clause: str
    """What follows `LOAD DATA LOCAL INFILE '..' [REPLACE] INTO TABLE t`."""
    rows: int


def load_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> LoadText:
    """Encode Arrow rows as the bytes of a LOAD DATA LOCAL."""
    clause = _clause(_ROWS_DIALECT, columns)
    if rows.num_rows == 0:
        return LoadText(memoryview(b""), clause, 0)
    binary = pa.large_binary() if rows.nbytes > 1 << 29 else pa.binary()
    fields = [_field_text(rows.column(column.name), column, binary) for column in columns]
    tab, newline, nothing = (binary_scalar(each, binary) for each in (b"\t", b"\n", b""))
    lines = pc.binary_join_element_wise(
        *fields, tab, null_handling="replace", null_replacement=b"\\N"
    )
    ended = pc.binary_join_element_wise(lines, newline, nothing)
    end = int(string_offsets(ended)[-1])
    return LoadText(memoryview(ended.buffers()[2])[:end], clause, rows.num_rows)


def load_chunk(
    chunk: TextChunk, columns: Sequence[Column], zero_dates: ZeroDates = ZeroDates.TEXT
) -> LoadText | None:
    """Rewrite a chunk of the source's bytes for LOAD DATA LOCAL; None if Arrow is needed.

    Arrow is needed for texts of another charset, and zero or partial dates unless they are
    to arrive as they are (`ZeroDates.TEXT`). The chunk stays as it is, so that a publish can be
    tried again.
    """
    if any(comes_as_bytes(column.type) for column in columns):
        return None
    fields = chunk.fields()
    if zero_dates is not ZeroDates.TEXT and has_zero_dates(chunk, fields, columns):
        return None
    null_columns = _null_columns(fields, columns)
    if null_columns is None:
        return None
    # The last line is ended too: at the end of a file, an empty last field would be a missing one.
    body = chunk.buffer + bytes([_LINE_END])
    data = np.frombuffer(body, np.uint8)
    lengths = _lengths_at(chunk, fields)
    header = [chunk.starts + i for i in range(HEADER_BYTES)]
    surplus = _surplus_lengths(fields, lengths)
    for at in (*header, *lengths, surplus):
        data[at] = 0
    if bool(((data[:-1] >= _LINE_START) & (data[:-1] <= _FIELD_END)).any()):
        return None
    data[header[0]] = _LINE_END
    for at in (*header[1:], lengths[0]):
        data[at] = _LINE_START
    for at in lengths[1:]:
        data[at] = _FIELD_END
    lines = memoryview(body)
    if len(surplus):
        kept = np.ones(len(data), np.bool_)
        kept[surplus] = False
        lines = data[kept].data
    return LoadText(lines[1:], _clause(_CHUNK_DIALECT, columns, null_columns), chunk.rows)


def _null_columns(fields: Sequence[Field], columns: Sequence[Column]) -> frozenset[str] | None:
    """Return the columns with NULLs; None if one has empty texts too, which look the same."""
    found = []
    for located, column in zip(fields, columns, strict=True):
        if located.null is None:
            continue
        if bool(((located.length == 0) & ~located.null).any()):
            return None
        found.append(column.name)
    return frozenset(found)


def _lengths_at(chunk: TextChunk, fields: Sequence[Field]) -> list[IntArray]:
    """Return where the length of each field begins, by column."""
    ends = [located.start + located.length for located in fields[:-1]]
    return [chunk.starts + HEADER_BYTES, *ends]


def _surplus_lengths(fields: Sequence[Field], lengths: Sequence[IntArray]) -> IntArray:
    """Return the places of length bytes beyond the first of a field."""
    surplus = [np.empty(0, np.int64)]
    for located, at in zip(fields, lengths, strict=True):
        if located.short:
            continue
        for i in range(1, _LONGEST_LENGTH):
            longer = np.flatnonzero(located.start - at > i)
            if not len(longer):
                break
            surplus.append(at[longer] + i)
    return np.concatenate(surplus)


def has_zero_dates(chunk: TextChunk, fields: Sequence[Field], columns: Sequence[Column]) -> bool:
    """Tell whether a chunk holds any zero or partial date."""
    data = chunk.data()
    return any(
        bool(no_day_in_text(data, located.start, located.length).any())
        for located, column in zip(fields, columns, strict=True)
        if column.type.name in DATE_TYPES
    )


_BYTES = BINARY_TYPES | GEOMETRY_TYPES | {"vector"}
_CHARACTERS = CHARACTER_TYPES | {"enum", "set", "json", "uuid", "inet4", "inet6"}


def _clause(
    dialect: str, columns: Sequence[Column], null_columns: frozenset[str] = frozenset()
) -> str:
    """Return the LOAD DATA clause for columns; in `null_columns` an empty field means NULL."""
    has_bytes = any(is_bytes(column) for column in columns)
    values = [
        _variable_value(
            f"@c{number}", column, has_bytes=has_bytes, is_null=column.name in null_columns
        )
        for number, column in enumerate(columns)
    ]
    sets = any(values)
    targets, assignments = [], []
    for number, (column, value) in enumerate(zip(columns, values, strict=True)):
        name, variable = quote_identifier(column.name), f"@c{number}"
        if value or (sets and _may_count(column)):
            targets.append(variable)
            assignments.append(f"{name} = {value or variable}")
        else:
            targets.append(name)
    charset = "binary" if has_bytes else "utf8mb4"
    clause = f"CHARACTER SET {charset} {dialect} ({', '.join(targets)})"
    return f"{clause} SET {', '.join(assignments)}" if assignments else clause


def _variable_value(variable: str, column: Column, *, has_bytes: bool, is_null: bool) -> str:
    """Return what a column is set to from its variable; empty if it is written without one."""
    value, is_text = variable, column.type.name in _CHARACTERS and not is_bytes(column)
    if column.type.name == "bit":
        value = f"CAST({variable} AS UNSIGNED)"
    elif is_text and (has_bytes or is_null):
        value = f"CONVERT({variable} USING utf8mb4)"
    elif column.type.name == "vector" and is_null:
        value = f"CAST({variable} AS BINARY)"
    if is_null:
        return f"IF(LENGTH({variable}) = 0, NULL, {value})"
    return "" if value == variable else value


def _may_count(column: Column) -> bool:
    """Tell whether the sink's column may be AUTO_INCREMENT, whatever the source's is."""
    return column.auto_increment or (column.type.kind is TypeKind.INTEGER and not column.nullable)


def is_bytes(column: Column) -> bool:
    """Tell whether a column's values are bytes without a charset."""
    return column.type.name in _BYTES or column.type.charset == "binary"


def _field_text(array: pa.Array, column: Column, binary: pa.DataType) -> pa.Array:
    """Return a column's values as escaped fields for LOAD DATA."""
    text = value_text(array, column.type)
    if pa.types.is_string(text.type):
        text = text.cast(pa.binary())
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        text = _escaped(text)
    return text.cast(binary)


def _escaped(text: pa.Array) -> pa.Array:
    """Return texts with a backslash before each special byte."""
    special = _ESCAPED[string_bytes(text)]
    if not special.any():
        return text
    mask = rows_of(np.flatnonzero(special), string_offsets(text))
    chosen = mask_of(mask)
    return pc.replace_with_mask(text, chosen, _escape_rows(text.filter(chosen)))


def _escape_rows(text: pa.Array) -> pa.Array:
    """Return texts, each with special bytes, with a backslash before each of these."""
    data, offsets = string_bytes(text), string_offsets(text)
    offsets = offsets - offsets[0]
    special = _ESCAPED[data]
    added: IntArray = np.concatenate(([0], np.cumsum(special)))
    longer = np.full(len(data) + int(added[-1]), ord("\\"), np.uint8)
    longer[np.arange(len(data)) + added[1:]] = data
    moved = (offsets + added[offsets]).astype(np.int32)
    buffers = [None, pa.py_buffer(moved), pa.py_buffer(longer)]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers)
