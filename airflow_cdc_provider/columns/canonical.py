"""One canonical form for each value, whatever system and column type it comes from.

Two values are the same if their forms are. A form is a word of 64 bits or a run of bytes, each
marked with what it is:

- a whole number below 10**18 is a word, also that of a DECIMAL; any other whole number or DECIMAL
  is its digits without zeros behind the point, so the column's scale does not matter;
- FLOAT and DOUBLE are the bits of the double; -0 is 0, and NaN is one value;
- a text is its UTF-8 bytes, and so are ENUM and SET, in the text that the value model has;
- JSON is its text as well where both sides print it alike; else it is a *document*: its names in
  order, its numbers by value, without the blanks between; a text that is no JSON is that text;
- a binary is its bytes;
- a date is its days, a date with time and a time are their microseconds, in UTC.

Dates may come as text, because some servers have dates that are no day of the calendar: 0000-00-00,
2024-02-31. A text that is a day has the form of that day; any other is its text without zeros at
the end of a second's fraction.

NULL has no form. An Arrow type that is not listed here is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, Inexact
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, numbers_of, texts_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.plain_text import decimal_text
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, ValueRefusedError

WordArray = npt.NDArray[np.uint64]

_WORD_DIGITS = 18
_LARGEST_WORD = 10**_WORD_DIGITS
_DAY_TEXT = len("YYYY-MM-DD")
_EXACT = Context(prec=100_000, traps=[Inexact])


class Form(IntEnum):
    """What a canonical form is of."""

    NUMBER = 1
    DIGITS = 2
    DOUBLE = 3
    TEXT = 4
    BINARY = 5
    DAY = 6
    MOMENT = 7
    TIME = 8
    NO_DAY = 9
    DOCUMENT = 10


@dataclass(frozen=True, slots=True)
class Forms:
    """The canonical forms of some of a column's values, all of one kind."""

    form: Form
    values: WordArray | pa.Array
    """Words, or an array of texts or binaries without NULL."""
    rows: IntArray | None
    """The rows that they belong to; None for all."""


def canonical_forms(
    values: pa.Array, *, is_date: bool = False, is_document: bool = False
) -> Iterator[Forms]:
    """Yield the canonical forms of a column's values; rows in none of them are NULL.

    With `is_date` a column of texts holds dates, with `is_document` JSON.
    """
    if is_document and _is_text(values.type):
        yield from _documents(values)
        return
    rows = None
    if values.null_count:
        rows = np.flatnonzero(as_numpy(values.is_valid()))
        values = values.drop_null()
    for part in _forms(values, is_date=is_date):
        if rows is None:
            yield part
        else:
            inside = rows if part.rows is None else rows[part.rows]
            yield Forms(part.form, part.values, inside)


def _forms(values: pa.Array, *, is_date: bool) -> Iterator[Forms]:
    """Yield the canonical forms of values without NULL."""
    kind = values.type
    if pa.types.is_boolean(kind):
        yield Forms(Form.NUMBER, as_numpy(values).astype(np.uint64), None)
    elif pa.types.is_integer(kind):
        yield from _integers(values)
    elif pa.types.is_decimal(kind):
        yield from _decimals(values)
    elif pa.types.is_floating(kind):
        yield Forms(Form.DOUBLE, _doubles(values), None)
    elif pa.types.is_temporal(kind):
        yield _temporals(values)
    elif _is_text(kind):
        yield from _dates(values) if is_date else (Forms(Form.TEXT, values, None),)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield Forms(Form.BINARY, values, None)
    else:
        raise _formless(kind)


def _is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _temporals(values: pa.Array) -> Forms:
    """Return dates and times as words; a part of a microsecond is refused by Arrow."""
    kind = values.type
    if pa.types.is_date(kind):
        return Forms(Form.DAY, _words(values.cast(pa.date32()), pa.int32()), None)
    if pa.types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", kind.tz))
        return Forms(Form.MOMENT, _words(micros, pa.int64()), None)
    if pa.types.is_duration(kind):
        return Forms(Form.TIME, _words(values.cast(pa.duration("us")), pa.int64()), None)
    if pa.types.is_time(kind):
        return Forms(Form.TIME, _words(values.cast(pa.time64("us")), pa.int64()), None)
    raise _formless(kind)


def _formless(kind: pa.DataType) -> ValueRefusedError:
    """Return the error for a type whose values have no canonical form."""
    return ValueRefusedError(
        f"values of type {kind} cannot be compared between systems",
        where="verify",
        risk=NOTHING_CHANGED,
        remedy="leave the column out, or compare the table by other means",
    )


def _words(values: pa.Array, kind: pa.DataType) -> WordArray:
    """Return fixed-width values as words, by their integers."""
    return as_numpy(values.view(kind)).astype(np.int64).view(np.uint64)


def _integers(values: pa.Array) -> Iterator[Forms]:
    """Yield whole numbers as words, those that are too large as digits."""
    numbers = as_numpy(values)
    if numbers.itemsize < np.dtype(np.int64).itemsize:
        yield Forms(Form.NUMBER, numbers.astype(np.int64).view(np.uint64), None)
        return
    large = numbers >= _LARGEST_WORD
    if numbers.dtype == np.int64:
        large |= numbers <= -_LARGEST_WORD
    yield from _parted(
        large,
        Form.DIGITS,
        lambda: values.filter(mask_of(large)).cast(pa.string()),
        Form.NUMBER,
        lambda: numbers[~large].view(np.uint64),
    )


def _decimals(values: pa.Array) -> Iterator[Forms]:
    """Yield decimals by their value: as words where they are whole, else as digits."""
    text = decimal_text(values)
    if values.type.scale > 0:
        text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    digits = as_numpy(pc.binary_length(pc.utf8_ltrim(text, "-")))
    has_point = pc.match_substring(text, ".")
    other = as_numpy(has_point) | (digits > _WORD_DIGITS)
    yield from _parted(
        other,
        Form.DIGITS,
        lambda: text.filter(mask_of(other)),
        Form.NUMBER,
        lambda: _words(text.filter(mask_of(~other)).cast(pa.int64()), pa.int64()),
    )


def _doubles(values: pa.Array) -> WordArray:
    """Return the bits of doubles, -0 as 0 and one NaN."""
    numbers = as_numpy(values).astype(np.float64) + 0.0
    not_numbers = np.isnan(numbers)
    if not_numbers.any():
        numbers[not_numbers] = np.nan
    return numbers.view(np.uint64)


def _dates(values: pa.Array) -> Iterator[Forms]:
    """Yield dates that came as text, with or without a time of day."""
    if not len(values):
        return
    first = as_numpy(pc.binary_length(values.slice(0, 1)))[0]
    form, kind, integers = Form.MOMENT, pa.timestamp("us"), pa.int64()
    if first == _DAY_TEXT:
        form, kind, integers = Form.DAY, pa.date32(), pa.int32()
    try:
        parsed = values.cast(kind)
    except pa.ArrowInvalid:
        parsed = None
    if parsed is not None:
        yield Forms(form, _words(parsed, integers), None)
        return
    no_day = _no_day(values)
    yield from _parted(
        no_day,
        Form.NO_DAY,
        lambda: _without_zeros(values.filter(mask_of(no_day))),
        form,
        lambda: _words(values.filter(mask_of(~no_day)).cast(kind), integers),
    )


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Return texts without the zeros that end a second's fraction."""
    return pc.utf8_rtrim(pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1"), ".")


def _documents(values: pa.Array) -> Iterator[Forms]:
    """Yield JSON by its meaning; of each text once, for it takes Python."""
    encoded = values.dictionary_encode()
    read = [_document(text) for text in encoded.dictionary.to_pylist()]
    forms = texts_of(read).take(encoded.indices)
    is_read = texts_of(read).is_valid().take(encoded.indices)
    for form, found, chosen in (
        (Form.DOCUMENT, forms, is_read),
        (Form.TEXT, values, pc.invert(is_read)),
    ):
        rows = np.flatnonzero(as_numpy(chosen.fill_null(False)))  # noqa: FBT003 - Arrow's own
        if len(rows):
            yield Forms(form, found.take(numbers_of(rows)), rows)


def _document(text: str) -> str | None:
    """Return one text for all JSON texts that mean the same; None if it is no JSON."""
    try:
        read = json.loads(
            text,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_no_number,
            object_pairs_hook=_sorted,
        )
        return repr(read)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _number(digits: str) -> Decimal:
    """Return a number of JSON without zeros at its end; minus zero is zero."""
    number = Decimal(digits)
    return number.normalize(_EXACT) if number else Decimal(0)


def _no_number(word: str) -> Decimal:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(word)


def _sorted(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members in the order of their names; of two with one name the last."""
    return dict(sorted(dict(members).items()))


def _no_day(texts: pa.Array) -> BoolArray:
    """Return which texts begin with a date that is no day of the calendar."""
    encoded = pc.utf8_slice_codeunits(texts, 0, _DAY_TEXT).dictionary_encode()
    unknown = np.array([not _is_day(each) for each in encoded.dictionary.to_pylist()], np.bool_)
    found: BoolArray = unknown[as_numpy(encoded.indices)]
    return found


def _is_day(text: str) -> bool:
    """Tell whether a text is a day of the calendar; Python has no year 0, which is as 2000."""
    try:
        date.fromisoformat(f"2000{text[4:]}" if text.startswith("0000") else text)
    except ValueError:
        return False
    return True


def _parted(
    chosen: BoolArray, form: Form, values: Any, other_form: Form, others: Any
) -> Iterator[Forms]:
    """Yield the chosen rows under one form and the others under another."""
    if not chosen.any():
        yield Forms(other_form, others(), None)
        return
    yield Forms(form, values(), np.flatnonzero(chosen))
    if not chosen.all():
        yield Forms(other_form, others(), np.flatnonzero(~chosen))
