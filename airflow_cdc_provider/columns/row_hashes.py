"""Hashes of many rows at once, from the canonical forms of their values; and their sums.

**A value** is hashed with the mark of its form. Bytes are cut into words of eight, filled up with
zeros; each word is mixed with its place, the mixed words are added up in two ways, and the length
is mixed in. So `ab` and `ab` with a zero byte differ, and so do two words that change places. NULL
has a hash of its own, which is not that of the empty text.

**A row** is the sum of its values' hashes, each mixed with its column's place, so that ('ab', 'c')
and ('a', 'bc') differ, and mixed once more. Without that last step two rows that exchange a value
would add up to the same.

**A part of a table** is the sum of its rows' hashes modulo 2**64, which no order changes and in
which a row that is there twice counts twice.

**Collisions.** Mixing is the finalizer of SplitMix64: a bijection of 64 bits in which each bit of
the input turns over about half of the output. Where one value of a row of up to eight bytes
changes, its hash changes for certain, and its row's. Any other change goes unseen in one sum with a
chance of about 2**-64. Two sums are kept, mixed with constants of their own: 2**-128 for both, far
less than the chance that memory turned a bit over. That holds for errors; the hash has no secret
and is none against an adversary who chooses values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews, string_bytes, string_offsets
from airflow_cdc_provider.columns.canonical import Forms, WordArray, canonical_forms
from airflow_cdc_provider.columns.numpy_types import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

_WORD = 8
_PIECE_WORDS = 1 << 14
"""Longer values are hashed in pieces, so that they take little memory."""
_BLOCK_WORDS = 1 << 16

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP, _OTHER_STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_NULL = np.uint64(0x5851F42D4C957F2D)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_HALF = np.uint64(32)
_ALL_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class RowHashes:
    """Two hashes of 64 bits for each row."""

    one: WordArray
    other: WordArray

    def __len__(self) -> int:
        return len(self.one)

    @property
    def total(self) -> int:
        """Return the two sums of all rows' hashes, as one number of 128 bits."""
        return (_sum(self.one) << 64) | _sum(self.other)

    def texts(self) -> list[str]:
        """Return each row's hash as text."""
        pairs = zip(self.one.tolist(), self.other.tolist(), strict=True)
        return [f"{one:016x}{other:016x}" for one, other in pairs]


NO_ROWS = RowHashes(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def added_totals(one: int, other: int) -> int:
    """Add up the totals of two parts of a table."""
    high = ((one >> 64) + (other >> 64)) & _ALL_BITS
    return (high << 64) | ((one + other) & _ALL_BITS)


def row_hashes(
    columns: Sequence[pa.Array], dates: Collection[int] = (), documents: Collection[int] = ()
) -> RowHashes:
    """Return the hashes of rows.

    `dates` are the places of columns whose texts are dates, `documents` of those that hold JSON.
    """
    count = len(columns[0])
    one, other = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for place, values in enumerate(columns, 1):
        forms = canonical_forms(
            values, is_date=place - 1 in dates, is_document=place - 1 in documents
        )
        here, there = _value_hashes(forms, len(values))
        here += _times(place, _STEP)
        there += _times(place, _OTHER_STEP)
        one += _mixed(here)
        other += _mixed(there)
    one += np.uint64(len(columns))
    other ^= _NULL
    return RowHashes(_mixed(one), _mixed(other))


def _value_hashes(forms: Iterable[Forms], count: int) -> tuple[WordArray, WordArray]:
    """Return two hashes of each value of a column, from the canonical forms."""
    found: tuple[WordArray, WordArray] | None = None
    for part in forms:
        hashes = _hashes_of(part)
        if part.rows is None:
            return hashes
        if found is None:
            found = _nulls(count)
        found[0][part.rows], found[1][part.rows] = hashes
    return _nulls(count) if found is None else found


def _nulls(count: int) -> tuple[WordArray, WordArray]:
    """Return the hashes of NULLs."""
    return np.full(count, _NULL), np.full(count, ~_NULL)


def _hashes_of(part: Forms) -> tuple[WordArray, WordArray]:
    """Return two hashes of values of one form."""
    mark = _times(part.form, _OTHER_STEP)
    if isinstance(part.values, np.ndarray):
        one = _mixed(part.values + mark)
        return one, one * _STEP
    lengths = np.diff(string_offsets(part.values))
    one, other = _byte_sums(part.values, lengths)
    ends = lengths.astype(np.uint64) * _STEP + mark
    return _mixed(one + ends), _mixed(other ^ ends)


def _byte_sums(values: pa.Array, lengths: IntArray) -> tuple[WordArray, WordArray]:
    """Return two sums of each value's words, which are mixed with their places."""
    padded = np.concatenate([string_bytes(values), np.zeros(_WORD, np.uint8)])
    view = ByteViews(padded.data)
    starts = np.cumsum(lengths) - lengths
    one, other = np.zeros(len(lengths), np.uint64), np.zeros(len(lengths), np.uint64)
    pieces = _Pieces.of(starts, lengths)
    for block in pieces.blocks():
        here, there = block.sums(view)
        np.add.at(one, block.rows, here)
        np.add.at(other, block.rows, there)
    return one, other


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Runs of bytes that are not empty: where each begins, and of which value it is a part."""

    rows: IntArray
    starts: IntArray
    lengths: IntArray
    places: IntArray
    """The place of each one's first word in its value."""

    @classmethod
    def of(cls, starts: IntArray, lengths: IntArray) -> _Pieces:
        """Cut values into pieces; most are one."""
        most = _PIECE_WORDS * _WORD
        rows = np.flatnonzero(lengths)
        counts = -(-lengths[rows] // most)
        if not len(rows) or int(counts.max()) == 1:
            return cls(rows, starts[rows], lengths[rows], np.zeros(len(rows), np.int64))
        number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(rows, counts)
        begins = number * most
        sizes = np.minimum(lengths[rows] - begins, most)
        return cls(rows, starts[rows] + begins, sizes, number * _PIECE_WORDS)

    def blocks(self) -> list[_Pieces]:
        """Cut into blocks of some words each."""
        ends = np.cumsum(-(-self.lengths // _WORD))
        if not len(ends) or int(ends[-1]) <= _BLOCK_WORDS:
            return [self] if len(ends) else []
        cuts = np.arange(_BLOCK_WORDS, int(ends[-1]), _BLOCK_WORDS)
        edges = sorted({0, len(ends), *np.searchsorted(ends, cuts).tolist()})
        return [
            _Pieces(self.rows[a:b], self.starts[a:b], self.lengths[a:b], self.places[a:b])
            for a, b in pairwise(edges)
        ]

    def sums(self, view: ByteViews) -> tuple[WordArray, WordArray]:
        """Return two sums of each piece's words, mixed with their places."""
        counts = -(-self.lengths // _WORD)
        firsts = np.cumsum(counts) - counts
        inner = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
        words = view.typed(np.repeat(self.starts, counts) + inner * _WORD, "<u8")
        unused = (counts * _WORD - self.lengths).astype(np.uint64) * np.uint64(_WORD)
        words[firsts + counts - 1] &= np.uint64(_ALL_BITS) >> unused
        places = (np.repeat(self.places, counts) + inner).astype(np.uint64) + _ONE
        words += places * _STEP
        mixed = _mixed(words)
        one = np.add.reduceat(mixed, firsts)
        mixed ^= mixed >> _HALF
        mixed *= places * _TWO + _ONE
        return one, np.add.reduceat(mixed, firsts)


def _mixed(words: WordArray) -> WordArray:
    """Return words with their bits mixed, in place: the finalizer of SplitMix64."""
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def _times(number: int, step: np.uint64) -> np.uint64:
    """Return a small number times a step, modulo 2**64; NumPy warns where it does that itself."""
    return np.uint64(number * int(step) & _ALL_BITS)


def _sum(words: WordArray) -> int:
    """Return the sum of words modulo 2**64."""
    return int(words.sum(dtype=np.uint64))
