"""UUIDs and addresses of MariaDB as the texts that it prints, a column at a time.

Each value is written into a row of a block of characters by steps over the whole column, as if it
had its longest text; a second block says which of these characters it has. What is left, read row
by row, is the texts. No step is taken for one value alone.

**IPv6.** The texts are those of MariaDB's SELECT, which C's `inet_ntop` gives too: eight groups of
hexadecimal digits without zeros before them; the first of the longest runs of zero groups, be it
one group alone, is `::`. Behind 96 bits of zero (unless the next 16 are zero, too), or behind
`::ffff:`, the last 32 bits are an IPv4 address.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import validity_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
"""The two digits of each byte."""
_HYPHENS = (8, 13, 18, 23)
_COLON, _DOT, _HYPHEN, _ZERO = b":.-0"
_GROUPS = 8
_PREFIX = np.frombuffer(b"::ffff:", np.uint8)


def uuid_texts(stored: ByteArray, nulls: BoolArray | None) -> pa.Array:
    """Return the texts of UUIDs, from their bytes [rows, 16]."""
    texts = np.full((len(stored), 36), _HYPHEN, np.uint8)
    digits, begin = _digits(stored), 0
    for hyphens, end in enumerate((*_HYPHENS, texts.shape[1])):
        texts[:, begin:end] = digits[:, begin - hyphens : end - hyphens]
        begin = end + 1
    if nulls is None:
        ends = np.arange(len(texts) + 1, dtype=np.int32) * texts.shape[1]
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
        return pa.Array.from_buffers(pa.string(), len(texts), buffers, 0)
    return _strings(texts, np.ones(texts.shape, np.bool_), nulls)


def inet4_texts(stored: ByteArray, nulls: BoolArray | None) -> pa.Array:
    """Return the texts of IPv4 addresses, from their bytes [rows, 4]."""
    return _strings(*_dotted(stored), nulls)


def inet6_texts(stored: ByteArray, nulls: BoolArray | None) -> pa.Array:
    """Return the texts of IPv6 addresses as MariaDB prints them, from their bytes [rows, 16]."""
    groups = stored[:, 0::2].astype(np.int32) << 8 | stored[:, 1::2]
    start, length = _first_longest_run(groups == 0)
    texts, has = _colon_separated(stored, groups, start, length)
    empty = (groups[:, :5] == 0).all(axis=1)
    mapped = empty & (groups[:, 5] == 0xFFFF)
    with_address = mapped | (empty & (groups[:, 5] == 0) & (groups[:, 6] != 0))
    rows = np.flatnonzero(with_address)
    if len(rows):
        prefix = len(_PREFIX)
        dotted, has_dotted = _dotted(stored[rows, 12:])
        texts[rows, :prefix] = _PREFIX
        texts[rows, prefix : prefix + dotted.shape[1]] = dotted
        has[rows] = False
        has[rows, :2] = True
        has[rows, 2:prefix] = mapped[rows, None]
        has[rows, prefix : prefix + dotted.shape[1]] = has_dotted
    return _strings(texts, has, nulls)


def _colon_separated(
    stored: ByteArray, groups: IntArray, start: IntArray, length: IntArray
) -> tuple[ByteArray, BoolArray]:
    """Return addresses as groups of digits, and which characters there are.

    `start` and `length` are the run of groups in each row that is written `::`. A group has five
    places: a colon, and four digits. Behind the last one there is a colon for a run at the end.
    """
    rows = len(groups)
    texts = np.full((rows, 5 * _GROUPS + 1), _COLON, np.uint8)
    has = np.zeros(texts.shape, np.bool_)
    places = np.arange(_GROUPS)
    inside = (places >= start[:, None]) & (places < (start + length)[:, None])
    blocks, has_blocks = (each[:, :-1].reshape(rows, _GROUPS, 5) for each in (texts, has))
    blocks[:, :, 1:] = _digits(stored).reshape(rows, _GROUPS, 4)
    # a run has the colon before its first group, and the one before the group behind it
    has_blocks[:, :, 0] = ~inside | (places == start[:, None])
    has_blocks[:, 0, 0] = inside[:, 0]
    for digit in range(4):
        has_blocks[:, :, 1 + digit] = ~inside & (groups >= 1 << 4 * (3 - digit))
    has_blocks[:, :, 4] = ~inside
    has[:, -1] = inside[:, -1]
    return texts, has


def _first_longest_run(zero: BoolArray) -> tuple[IntArray, IntArray]:
    """Return start and length of the first longest run of zero groups in each row; length 0: none.

    `zero` has the shape [rows, groups].
    """
    rows, groups = zero.shape
    runs = np.zeros((rows, groups + 1), np.int64)  # how long the run is that begins at a group
    for group in reversed(range(groups)):
        runs[:, group] = np.where(zero[:, group], runs[:, group + 1] + 1, 0)
    start = runs.argmax(axis=1)
    return start, runs[np.arange(rows), start]


def _dotted(stored: ByteArray) -> tuple[ByteArray, BoolArray]:
    """Return IPv4 addresses, three digits a byte and dots between, and which characters there are.

    Both have the shape [rows, 15].
    """
    texts = np.full((len(stored), 16), _DOT, np.uint8)
    has = np.ones(texts.shape, np.bool_)
    blocks, has_blocks = (each.reshape(len(stored), 4, 4) for each in (texts, has))
    blocks[:, :, 0] = _ZERO + stored // 100
    blocks[:, :, 1] = _ZERO + stored // 10 % 10
    blocks[:, :, 2] = _ZERO + stored % 10
    has_blocks[:, :, 0] = stored >= 100
    has_blocks[:, :, 1] = stored >= 10
    return texts[:, :15], has[:, :15]


def _digits(stored: ByteArray) -> ByteArray:
    """Return the hexadecimal digits of bytes, two for each: [rows, 2 * bytes]."""
    return _HEX[stored].view(np.uint8)


def _strings(texts: ByteArray, has: BoolArray, nulls: BoolArray | None) -> pa.Array:
    """Return an Arrow array of the characters of each row that `has` marks."""
    if nulls is not None:
        has = has & ~nulls[:, None]
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(has.sum(axis=1), out=ends[1:])
    validity, count = validity_of(nulls)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(texts[has])]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers, count)
