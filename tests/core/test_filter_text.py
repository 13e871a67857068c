"""Which rows are copied, as a person writes it."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from airflow_cdc_provider.core.filter_text import parse_filter
from airflow_cdc_provider.core.row_filters import (
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    IsNull,
    Like,
    Not,
    RowFilter,
    filter_from_json,
    filter_to_json,
)

EU = Comparison("region", Comparator.EQUAL, "EU")
SMALL = Comparison("size", Comparator.LESS, 10)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("region = 'EU'", EU),
        ("  (region='EU')  ", EU),
        ("`re``gion of` <> 'it''s'", Comparison("re`gion of", Comparator.UNEQUAL, "it's")),
        ("a != -5", Comparison("a", Comparator.UNEQUAL, -5)),
        ("price >= 12.50", Comparison("price", Comparator.AT_LEAST, Decimal("12.50"))),
        ("raw = X'00fF'", Comparison("raw", Comparator.EQUAL, b"\x00\xff")),
        ("region = 'EU' OR size < 10 AND NOT region = 'EU'", AnyOf((EU, AllOf((SMALL, Not(EU)))))),
        (
            "(region = 'EU' or size < 10) and size is not null",
            AllOf((AnyOf((EU, SMALL)), Not(IsNull("size")))),
        ),
        ("region IN ('EU')", EU),
        (
            "size NOT IN (1, 2)",
            Not(
                AnyOf(
                    (
                        Comparison("size", Comparator.EQUAL, 1),
                        Comparison("size", Comparator.EQUAL, 2),
                    )
                )
            ),
        ),
        (
            "size BETWEEN 1 AND 2 AND region = 'EU'",
            AllOf(
                (
                    AllOf(
                        (
                            Comparison("size", Comparator.AT_LEAST, 1),
                            Comparison("size", Comparator.AT_MOST, 2),
                        )
                    ),
                    EU,
                )
            ),
        ),
        ("name NOT LIKE 'a\\%%'", Not(Like("name", "a\\%%"))),
        ("größe IS NULL", IsNull("größe")),
        ("NOT NOT size < 10", Not(Not(SMALL))),
    ],
)
def test_a_condition_is_read_as_sql_reads_it(text: str, condition: RowFilter) -> None:
    assert parse_filter(text) == condition
    assert filter_from_json(filter_to_json(condition)) == condition


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "wanted the name of a column, found the end"),
        ("region", "wanted a comparison, IS, IN, BETWEEN or LIKE behind 'region', found the end"),
        ("region = ", "wanted a value behind 'region =', found the end"),
        ("region = size", "wanted a value: a number, a text in single quotes, .* found 'size'"),
        ("region = NULL", "found 'NULL'"),
        ('region = "EU"', "is not understood"),
        ("lower(region) = 'eu'", "found '\\('"),
        ("region = 'EU' size < 1", "wanted AND, OR or the end behind .*, found 'size'"),
        ("(region = 'EU'", "wanted \\) behind .* found the end"),
        ("region IN ()", "found '\\)'"),
        ("region IS 5", "wanted NULL behind 'region IS', found '5'"),
        ("name LIKE 5", "name LIKE needs a text in single quotes"),
        ("size < 1e5", "is not understood"),
        ("size < 5x", "is not understood"),
        ("raw = x'abc'", "no even number of hexadecimal digits"),
        ("a = 1; DROP TABLE x", "is not understood"),
        ("a = 1 -- more", "is not understood"),
        ("a = 'open", "is not understood"),
        ("(" * 60 + "a = 1" + ")" * 60, "within each other"),
        ("NOT " * 60 + "a = 1", "within each other"),
        ("AND = 1", "wanted the name of a column, found 'AND'"),
    ],
)
def test_what_is_no_condition_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_filter(text)


def test_any_text_is_read_or_refused_and_nothing_else() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed: {seed}")
    chance = random.Random(seed)
    words = [
        "a",
        "AND",
        "or",
        "NOT",
        "(",
        ")",
        "=",
        "<",
        "'x'",
        "5",
        "1.5",
        ",",
        "in",
        "is",
        "null",
        "like",
        "between",
        "x'00'",
        "`b`",
        "'",
        "-",
        "\n",
        "ä",
    ]
    for _ in range(5_000):
        text = " ".join(chance.choices(words, k=chance.randint(0, 9)))
        try:
            found = parse_filter(text)
        except ValueError:
            continue
        assert filter_from_json(filter_to_json(found)) == found
