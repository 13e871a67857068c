"""Find dates that are no days of the calendar: 0000-00-00, 2024-00-15, 2024-02-31.

MySQL stores them when its sql_mode lets it; nobody else has a value for them. In text they are
looked for only after Arrow's own parser has refused a column, so calendars cost nothing where
all is well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray

_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_SHORTEST_MONTH = 28
_MONTHS = 12
_DATE_TEXT = 10
_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9)


def is_day(year: IntArray, month: IntArray, day: IntArray) -> BoolArray:
    """Tell which dates are days of the Gregorian calendar, which has a year 0 here."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    month_of_year = (month >= 1) & (month <= 12)
    days = _DAYS[np.where(month_of_year, month, 0)] + (leap & (month == 2))
    is_one: BoolArray = month_of_year & (day >= 1) & (day <= days)
    return is_one


def no_day_in_text(data: ByteArray, start: IntArray, length: IntArray) -> BoolArray:
    """Tell which texts begin with a date `YYYY-MM-DD` that is no day of the calendar.

    A look at month and day leaves few texts to take apart: those with a zero, and those past 28.
    """
    found = np.zeros(len(start), np.bool_)
    whole = length >= _DATE_TEXT
    if not whole.any():
        return found
    at = start if whole.all() else np.where(whole, start, 0)
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    # one comparison a side: what is below 1 wraps around to large numbers
    usual = ((month - 1).view(np.uint16) < _MONTHS) & ((day - 1).view(np.uint16) < _SHORTEST_MONTH)
    doubtful = np.flatnonzero(whole & ~usual)
    if len(doubtful):
        found[doubtful] = _no_day(data, at[doubtful])
    return found


def _two_digits(data: ByteArray, at: IntArray) -> npt.NDArray[np.int16]:
    """Return the two-digit numbers at these offsets."""
    number = data[at].astype(np.int16)
    number *= 10
    number += data[at + 1]
    number -= 11 * ord("0")
    return number


def _no_day(data: ByteArray, at: IntArray) -> BoolArray:
    """Tell which texts at these offsets are dates that are no day."""
    text = data[at[:, None] + np.arange(_DATE_TEXT)]
    digits = text[:, _DIGITS].astype(np.int64) - ord("0")
    formed = ((digits >= 0) & (digits <= 9)).all(axis=1)
    formed &= (text[:, 4] == ord("-")) & (text[:, 7] == ord("-"))
    year = digits[:, :4] @ np.array([1000, 100, 10, 1])
    month = digits[:, 4] * 10 + digits[:, 5]
    day = digits[:, 6] * 10 + digits[:, 7]
    found: BoolArray = formed & ~is_day(year, month, day)
    return found
