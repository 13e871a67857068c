"""How keys are shown to people."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_cdc_provider.core.keys import Key, KeyRange, shown_key


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ((7,), "7"),
        ((-1, Decimal("2.50"), b"\x00\xff"), "-1/2.50/00ff"),
        (("2026-11-24 10:00:00", "größe"), "2026-11-24 10:00:00/größe"),
        (("",), '""'),
        (("a ", " a"), '"a "/" a"'),
        (("a\nb\t",), r'"a\nb\t"'),
        (("a/b", "c"), '"a/b"/c'),
        (("it's", 'a "b"'), '"it\'s"/"a \\"b\\""'),
        (("\ud800",), r'"\ud800"'),
        (("\u202eabc",), r'"\u202eabc"'),
    ],
)
def test_a_key_is_shown_so_that_each_of_its_characters_is_seen(key: Key, shown: str) -> None:
    assert shown_key(key) == shown


def test_a_range_shows_its_ends_so() -> None:
    assert str(KeyRange(("a ",), None)) == '["a ", +inf)'
