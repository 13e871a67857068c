"""A value becomes one of another type only where that has the very same value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.systems.lake.fitting import fitting

INT, LONG, DOUBLE = pa.int32(), pa.int64(), pa.float64()


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


@pytest.mark.parametrize(
    ("was", "now", "values", "wanted"),
    [
        (decimal(10, 2), decimal(14, 4), [Decimal("413.74"), None], [Decimal("413.7400"), None]),
        (
            decimal(14, 4),
            decimal(10, 2),
            [Decimal("1.5000"), Decimal("1.2345")],
            [Decimal("1.50"), None],
        ),
        (INT, decimal(20, 0), [5, -(2**31)], [Decimal(5), Decimal(-(2**31))]),
        (INT, decimal(5, 2), [999, 1000], [Decimal(999), None]),
        (decimal(38, 0), decimal(10, 0), [Decimal(2) ** 70, Decimal(-7)], [None, Decimal(-7)]),
        # it may have been a TIME
        (LONG, decimal(20, 0), [5], [None]),
        # or is one now
        (decimal(10, 0), LONG, [Decimal(7)], [None]),
        (LONG, INT, [5], [None]),
        # zeros may have been before it
        (INT, pa.string(), [5], [None]),
        (decimal(9, 2), pa.string(), [Decimal("-1.50")], [None]),
        (pa.date32(), pa.string(), [date(2024, 2, 29)], ["2024-02-29"]),
        (pa.date32(), pa.timestamp("us"), [date(2024, 2, 29)], [datetime(2024, 2, 29)]),  # noqa: DTZ001 - of no zone
        (pa.string(), LONG, ["5"], [None]),
        (pa.string(), pa.binary(), ["5"], [None]),
        (DOUBLE, decimal(5, 2), [0.5], [None]),
        (LONG, DOUBLE, [5], [None]),
        (decimal(38, 35), decimal(38, 34), [Decimal("0.5")], [None]),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), [datetime(2024, 1, 1, tzinfo=UTC)], [None]),
    ],
)
def test_values_that_the_other_type_has_are_kept(
    was: pa.DataType, now: pa.DataType, values: list[Any], wanted: list[Any]
) -> None:
    found = fitting(pa.chunked_array([pa.array(values, was)]), now)
    assert found.type == now
    assert found.to_pylist() == wanted


KINDS = [decimal(38, 0), decimal(38, 30), decimal(9, 2), decimal(1, 1), decimal(20, 4)]


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.integers(-(10**9), 10**9))
def test_a_decimal_stays_what_it_is_or_becomes_null(
    was: pa.DataType, now: pa.DataType, number: int
) -> None:
    value = Decimal(number % 10 ** min(was.precision, 9)).scaleb(-was.scale)
    (found,) = fitting(pa.array([value], was), now).to_pylist()
    fits = value.normalize().as_tuple().exponent >= -now.scale
    fits &= abs(value) < 10 ** (now.precision - now.scale)
    assert found == (value if fits else None)
