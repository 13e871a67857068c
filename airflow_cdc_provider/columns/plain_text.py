"""Decimals and timestamps as text that everyone reads the same way."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.byte_views import string_bytes

_PLAIN_DECIMAL_SCALE = 6
"""Up to this scale Arrow prints a decimal without an exponent."""
_SUBSECOND_UNITS = {0: "s", 3: "ms", 6: "us"}
_SECONDS_TEXT = len("YYYY-MM-DD hh:mm:ss")


def decimal_text(array: pa.Array) -> pa.Array:
    """Print decimals digit by digit; Arrow itself would print small ones with an exponent."""
    scale = array.type.scale
    text = array.cast(pa.string())
    if scale <= _PLAIN_DECIMAL_SCALE or not (string_bytes(text) == ord("E")).any():
        return text
    wide = pa.types.is_decimal256(array.type)
    unscaled_type = pa.decimal256(76, 0) if wide else pa.decimal128(38, 0)
    unscaled = pa.Array.from_buffers(
        unscaled_type, len(array), array.buffers(), array.null_count, array.offset
    ).cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(sign, whole, ""), pc.utf8_slice_codeunits(digits, -scale), "."
    )


def timestamp_text(array: pa.Array, fraction: int) -> pa.Array:
    """Print timestamps with as many digits of a second's fraction as the column has."""
    wall_clock = array.cast(pa.timestamp("us"))
    unit = _SUBSECOND_UNITS.get(fraction)
    if unit is not None:
        return wall_clock.cast(pa.timestamp(unit)).cast(pa.string())
    text = wall_clock.cast(pa.string())
    return pc.utf8_slice_codeunits(text, 0, _SECONDS_TEXT + 1 + fraction)
