"""Arrow arrays of the value model become the text that MySQL reads back to the same value.

No quotes, no escapes: that is the business of `sql_text` and `load_text`. Two traps are avoided
here. Arrow prints small decimals with an exponent, and MySQL takes `1E-7` for a float; so those
are printed digit by digit. A FLOAT is printed as the DOUBLE it is equal to, because the nearest
double of a float's own shortest text need not round back to the same float.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, as_numpy, texts_of
from airflow_cdc_provider.columns.plain_text import decimal_text, timestamp_text
from airflow_cdc_provider.core.table_schema import ColumnType

_DURATION_TEXT = len("-hhh:mm:ss.ffffff")


def value_text(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a column's values as texts that MySQL reads back the same; binary stays binary."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return array
    if pa.types.is_decimal(kind):
        return decimal_text(array)
    if pa.types.is_float32(kind):
        return array.cast(pa.float64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        return timestamp_text(array, column_type.fraction)
    if pa.types.is_duration(kind):
        return _duration_text(array, column_type.fraction)
    text = array.cast(pa.string())
    if column_type.name == "year":  # as text, 0 would be 2000
        return pc.utf8_lpad(text, 4, "0")
    return text


def _duration_text(array: pa.Array, fraction: int) -> pa.Array:
    """Return TIME values as texts `[-]hh[h]:mm:ss[.ffffff]`, as the server prints them.

    In `(k1, k2) IN (..)` MySQL compares a TIME with a text as texts.
    """
    if len(array) == 0:
        return texts_of([])
    micros = as_numpy(array.cast(pa.int64()).fill_null(0))
    left = np.abs(micros)
    text = np.full((len(micros), _DURATION_TEXT), ord("-"), np.uint8)
    text[:, 4] = text[:, 7] = ord(":")
    text[:, 10] = ord(".")
    for places, base in (
        ((16, 15, 14, 13, 12, 11), 10),
        ((9, 8), 60),
        ((6, 5), 60),
        ((3, 2, 1), 1000),
    ):
        left, part = np.divmod(left, 1_000_000 if len(places) == 6 else base)
        for place in places:
            part, digit = np.divmod(part, 10)
            text[:, place] = digit + ord("0")
    two_digits = text[:, 1] == ord("0")
    text[two_digits, 1] = ord("-")
    start = np.arange(len(micros)) * _DURATION_TEXT
    offsets = np.empty(2 * len(micros), np.int32)
    offsets[0::2] = start + (micros >= 0) + two_digits
    offsets[1::2] = start + _DURATION_TEXT - (6 - fraction if fraction else 7)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    with_gaps = pa.Array.from_buffers(pa.string(), 2 * len(micros) - 1, buffers)
    null = as_numpy(array.is_null()) if array.null_count else None
    even = np.arange(0, 2 * len(micros), 2, dtype=np.int32)
    return with_gaps.take(as_arrow(even, null, pa.int32()))
