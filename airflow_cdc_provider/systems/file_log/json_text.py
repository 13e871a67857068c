"""Columns become lines of JSON, without a Python object a row.

Each column becomes a column of JSON texts; these and the constant text between them are joined
row by row in one step of Arrow's. The joined values stand one after the other in memory, with the
line ends among them, so they are what is written to the file.

Texts are escaped all at once: of the column's bytes those that JSON wants escaped are replaced,
and the offsets grow by what was added before each. Bytes become base64 all at once, too: values
are padded to whole groups of three, encoded as one, and the padding is marked afterwards.
"""

from __future__ import annotations

import binascii
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    as_numpy,
    binary_scalar,
    mask_of,
    validity_of,
)
from airflow_cdc_provider.columns.byte_views import string_bytes, string_offsets
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.systems.file_log.tree import Constant, Many, Members, Value

_TEXT = pa.large_string()
_SHORT = 1024
"""Values of fewer bytes on average are encoded together, longer ones each by itself."""
_NEW_LINE = "\n"


def _escapes() -> dict[int, bytes]:
    """Return the escape of each byte that JSON strings must escape."""
    short = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
    controls = {byte: short.get(byte, b"\\u%04x" % byte) for byte in range(0x20)}
    return {ord("\\"): b"\\\\", ord('"'): b'\\"', **controls}  # the backslash goes first


_ESCAPES = _escapes()
_GROWTH = np.zeros(256, np.int64)
_SPECIAL = np.zeros(256, np.bool_)
_SPECIAL[list(_ESCAPES)] = True
_GROWTH[list(_ESCAPES)] = [len(escaped) - 1 for escaped in _ESCAPES.values()]


def json_lines(value: Value, count: int) -> pa.Buffer:
    """Return the rows of a value as JSON, one line each."""
    pieces: list[str | pa.Array] = []
    _add(pieces, value)
    pieces.append(_NEW_LINE)
    if not count:
        return pa.py_buffer(b"")
    lines = _joined(pieces, count)
    return pa.py_buffer(np.ascontiguousarray(string_bytes(lines)))


def json_texts(value: Value, count: int) -> pa.Array:
    """Return each row of a value as a JSON text."""
    pieces: list[str | pa.Array] = []
    _add(pieces, value)
    return _joined(pieces, count)


def _add(pieces: list[str | pa.Array], value: Value) -> None:
    """Append the text pieces, columns and constants, that a value's JSON consists of."""
    if isinstance(value, Constant):
        pieces.append(_dumps(value.value))
    elif isinstance(value, Many):
        pieces.append(_list_text(value))
    elif not isinstance(value, Members):
        pieces.append(_column_text(value))
    elif value.absent is None or not value.absent.any():
        before = "{"
        for name, each in value.values:
            pieces.append(f"{before}{_dumps(name)}:")
            _add(pieces, each)
            before = ","
        pieces.append("}" if value.values else "{}")
    elif value.absent.all():
        pieces.append("null")
    else:
        whole = json_texts(Members(value.values), len(value.absent))
        pieces.append(pc.if_else(mask_of(value.absent), binary_scalar(b"null", _TEXT), whole))


def _joined(pieces: list[str | pa.Array], count: int) -> pa.Array:
    """Join columns and the constant text between them, row by row; null is `null`."""
    parts: list[pa.Array | pa.Scalar] = []
    constant = ""
    for piece in [*pieces, None]:
        if isinstance(piece, str):
            constant += piece
            continue
        if constant:
            parts.append(binary_scalar(constant.encode(), _TEXT))
            constant = ""
        if piece is not None:
            parts.append(piece)
    if not any(isinstance(part, pa.Array) for part in parts):
        parts.append(_empty_texts(count))
    return pc.binary_join_element_wise(
        *parts, binary_scalar(b"", _TEXT), null_handling="replace", null_replacement="null"
    )


def _dumps(value: object) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)


def _empty_texts(count: int) -> pa.Array:
    """Return an array of empty texts."""
    offsets = pa.py_buffer(np.zeros(count + 1, np.int64))
    return pa.Array.from_buffers(_TEXT, count, [None, offsets, pa.py_buffer(b"")])


def _column_text(array: pa.Array) -> pa.Array:
    """Return a column's values as JSON texts."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _column_text(array.dictionary).take(array.indices)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return quoted(array)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64_quoted(array)
    text = array.cast(_TEXT)
    return _with_point(text) if pa.types.is_floating(kind) else text


def _with_point(text: pa.Array) -> pa.Array:
    """Return whole floats with a decimal point: -0 would be read as the integer 0."""
    ends = binary_scalar(b".0", _TEXT), binary_scalar(b"", _TEXT)
    end = pc.if_else(pc.match_substring_regex(text, "[.e]"), ends[1], ends[0])
    return pc.binary_join_element_wise(text, end, ends[1])


def _list_text(many: Many) -> pa.Array:
    """Return lists as JSON texts."""
    texts = json_texts(many.values, many.count).fill_null("null")
    offsets = as_arrow(many.offsets, None, pa.int64())
    mask = None if many.absent is None else mask_of(many.absent)
    lists = pa.LargeListArray.from_arrays(offsets, texts, mask=mask)
    return _surrounded(pc.binary_join(lists, binary_scalar(b",", _TEXT)), b"[", b"]")


def quoted(array: pa.Array) -> pa.Array:
    """Return texts as JSON strings; NULL stays NULL."""
    offsets = string_offsets(array)
    data = string_bytes(array)
    offsets = offsets - offsets[0]
    special = np.flatnonzero(_SPECIAL.take(data))
    if not len(special):
        return _surrounded(_texts(offsets, data, array), b'"', b'"')
    escaped = data.tobytes()
    present = np.unique(data[special]).tolist()
    for byte, text in _ESCAPES.items():
        if byte in present:
            escaped = escaped.replace(bytes([byte]), text)
    grown = np.concatenate([[0], np.cumsum(_GROWTH[data[special]])])
    offsets = offsets + grown[np.searchsorted(special, offsets)]
    return _surrounded(_texts(offsets, np.frombuffer(escaped, np.uint8), array), b'"', b'"')


def base64_quoted(array: pa.Array) -> pa.Array:
    """Return bytes as JSON strings of base64; NULL stays NULL."""
    offsets = string_offsets(array)
    data = string_bytes(array)
    lengths = np.diff(offsets)
    if not len(data) or len(data) // len(array) < _SHORT:
        text, ends = _encoded_together(data, lengths)
    else:
        text, ends = _encoded_singly(data, offsets - offsets[0])
    return _surrounded(_texts(np.concatenate([[0], ends]), text, array), b'"', b'"')


def _encoded_together(data: ByteArray, lengths: IntArray) -> tuple[ByteArray, IntArray]:
    """Encode short values as base64 all at once; return the text and each value's end."""
    padded = -(-lengths // 3) * 3
    ends = np.cumsum(padded)
    shift = (ends - padded) - (np.cumsum(lengths) - lengths)
    room = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    room[np.arange(len(data)) + np.repeat(shift, lengths)] = data
    text = np.frombuffer(bytearray(binascii.b2a_base64(room.data, newline=False)), np.uint8)
    ends = ends // 3 * 4
    missing = padded - lengths
    text[ends[missing > 0] - 1] = ord("=")
    text[ends[missing > 1] - 2] = ord("=")
    return text, ends


def _encoded_singly(data: ByteArray, offsets: IntArray) -> tuple[ByteArray, IntArray]:
    """Encode long values as base64 one by one; return the text and each value's end."""
    view = np.ascontiguousarray(data).data
    bounds = offsets.tolist()
    texts = [
        binascii.b2a_base64(view[first:last], newline=False) for first, last in pairwise(bounds)
    ]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends


def _texts(offsets: IntArray, data: ByteArray, like: pa.Array) -> pa.Array:
    """Return a text array by its offsets, NULL where another array is NULL."""
    validity, count = validity_of(as_numpy(like.is_null()) if like.null_count else None)
    buffers = [validity, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(_TEXT, len(like), buffers, count)


def _surrounded(texts: pa.Array, before: bytes, behind: bytes) -> pa.Array:
    """Return texts with constant text before and after each."""
    return pc.binary_join_element_wise(
        binary_scalar(before, _TEXT), texts, binary_scalar(behind, _TEXT), binary_scalar(b"", _TEXT)
    )
