"""Values as people read them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.shown_values import shown_values

SHOWN = [
    (None, pa.int8(), None),
    (-5, pa.int8(), "-5"),
    (Decimal("1.50"), pa.decimal128(9, 2), "1.50"),
    (0.1, pa.float64(), "0.1"),
    ("", pa.string(), ""),
    ("x" * 201, pa.string(), "x" * 200 + "..."),
    (b"\x00\xff", pa.binary(), "0x00FF"),
    (b"a" * 500, pa.binary(), "0x" + "61" * 99 + "..."),
    (timedelta(0), pa.duration("us"), "00:00:00"),
    (timedelta(hours=838, seconds=59), pa.duration("us"), "838:00:59"),
    (-timedelta(hours=1, microseconds=20), pa.duration("us"), "-01:00:00.000020"),
]


@pytest.mark.parametrize(("value", "kind", "text"), SHOWN, ids=str)
def test_a_value_is_shown_as_text(value: Any, kind: pa.DataType, text: str | None) -> None:
    (shown,) = shown_values(pa.array([value], kind))
    assert shown.text == text
    assert (shown.identity == "") == (value is None)


def test_a_date_of_the_year_0_is_shown() -> None:
    for text, kind in (
        ("0000-06-01", pa.date32()),
        ("0000-06-01 00:00:01.500000", pa.timestamp("us")),
    ):
        (shown,) = shown_values(pa.array([text]).cast(kind))
        assert shown.text == text


def test_identities_are_the_same_where_the_values_are() -> None:
    here = shown_values(pa.array(["2024-01-02", "0000-00-00"]), is_date=True)
    there = shown_values(pa.array(["2024-01-02 ", "0000-00-00"]))
    assert [each.identity for each in here] != [each.identity for each in there]
    again = shown_values(pa.array([19724], pa.date32()))
    assert again[0].identity == here[0].identity
