"""Values of a column as those of another type, where it is certain which ones these are.

So it is with rows that stay while their column's type changes: their source is gone, and nobody
can be asked again. A value that the new type does not have becomes NULL, and so does one of which
the lake does not know what it was: a number of 64 bits may be a TIME, one that is to be a text may
have had zeros before it.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_WIDEST = pa.decimal256(76, 30)
"""Holds each number of 32 bits, and each decimal of 38 digits of which at most 30 are behind the
point."""
_MOST_BEHIND_POINT = 30
_OF_DATES = (pa.string(), pa.timestamp("us"))


def fitting(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return values in another type; NULL where that does not have the very same value."""
    known = values.type
    if _is_fine(kind) and (_is_fine(known) or known == pa.int32()):
        return _decimals(values, kind)
    if pa.types.is_date32(known) and kind in _OF_DATES:
        return values.cast(kind)
    return pa.nulls(len(values), kind)


def _is_fine(kind: pa.DataType) -> bool:
    """Tell whether a type is of decimals that can be compared here."""
    return bool(pa.types.is_decimal(kind) and kind.scale <= _MOST_BEHIND_POINT)


def _decimals(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return numbers as decimals."""
    wide = values.cast(_WIDEST)
    most = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), _WIDEST)
    inside = pc.if_else(pc.less_equal(pc.abs(wide), most), wide, pa.scalar(None, _WIDEST))
    found = inside.cast(kind, safe=False)
    is_same = pc.equal(found.cast(_WIDEST), inside)
    return pc.if_else(is_same, found, pa.scalar(None, kind))
