"""Which conditions on rows can be judged, and which are refused by the column's name."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.filtering import require_judgeable, true_in
from airflow_cdc_provider.core.filter_text import parse_filter
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind

COLUMNS = {
    "small": (TypeKind.INTEGER, pa.uint8()),
    "great": (TypeKind.INTEGER, pa.uint64()),
    "price": (TypeKind.DECIMAL, pa.decimal128(6, 2)),
    "name": (TypeKind.TEXT, pa.string()),
    "kind": (TypeKind.ENUM, pa.string()),
    "raw": (TypeKind.BINARY, pa.binary()),
    "day": (TypeKind.TEMPORAL, pa.date32()),
    "at": (TypeKind.TEMPORAL, pa.timestamp("us")),
    "since": (TypeKind.TEMPORAL, pa.timestamp("us", "UTC")),
    "took": (TypeKind.TEMPORAL, pa.duration("us")),
    "shown": (TypeKind.TEMPORAL, pa.string()),
    "ratio": (TypeKind.FLOAT, pa.float64()),
    "doc": (TypeKind.JSON, pa.string()),
}
NARROW = TableSchema(
    TableId("shop", "narrow"),
    (
        Column("sort", ColumnType("e", TypeKind.ENUM, KeyKind.OTHER, members=("a", "b c", "0"))),
        Column("set", ColumnType("s", TypeKind.SET, KeyKind.OTHER, members=("x", "y"))),
        Column("bits", ColumnType("b", TypeKind.BITS, KeyKind.OTHER, length=10)),
        Column("short", ColumnType("t", TypeKind.TEXT, KeyKind.OTHER, length=3)),
        Column("bytes", ColumnType("v", TypeKind.BINARY, KeyKind.OTHER, length=3)),
    ),
    (),
)
NARROW_ARROW = pa.schema(
    {
        "sort": pa.string(),
        "set": pa.string(),
        "bits": pa.uint64(),
        "short": pa.string(),
        "bytes": pa.binary(),
    }
)
SCHEMA = TableSchema(
    TableId("shop", "orders"),
    tuple(
        Column(name, ColumnType(name, kind, KeyKind.OTHER)) for name, (kind, _) in COLUMNS.items()
    ),
    (),
)
ARROW = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])


@pytest.mark.parametrize(
    ("text", "values", "true"),
    [
        ("small >= 7", [6, 7, None, 255], [7, 255]),
        ("great > 18446744073709551614", [1, 2**64 - 1], [2**64 - 1]),
        ("great > 5", [5, 6, 2**63 + 1], [6, 2**63 + 1]),
        ("price < 12.5", ["12.49", "12.50", "-1.00"], ["12.49", "-1.00"]),
        ("price = 12", ["12.00", "12.01"], ["12.00"]),
        ("name = 'a'", ["a", "A", "a ", "á", None], ["a"]),
        ("name <> 'a'", ["a", "A", None], ["A"]),
        ("name LIKE 'a_%'", ["a", "ab", "Ab", None], ["ab"]),
        ("kind IN ('x', 'y')", ["x", "z", "y"], ["x", "y"]),
        ("raw < x'80'", [b"\x7f\xff", b"\x80", b""], [b"\x7f\xff", b""]),
        ("day BETWEEN '2026-01-01' AND '2026-01-31'", [20453, 20454, 20484, 20485], [20454, 20484]),
        ("at >= '2026-01-01 00:00:00.5'", [1767225600499999, 1767225600500000], [1767225600500000]),
        (
            "since < '2026-01-01 01:00:00+01:00'",
            [1767225599999999, 1767225600000000],
            [1767225599999999],
        ),
        ("doc IS NULL", ["1", None], [None]),
        ("took IS NOT NULL", [5, None], [5]),
    ],
)
def test_rows_are_judged_in_the_value_model(
    text: str, values: list[object], true: list[object]
) -> None:
    name = next(each for each in COLUMNS if text.startswith(each))
    kind = ARROW.field(name).type

    def array(of: list[object]) -> pa.Array:
        if pa.types.is_decimal(kind):
            return pa.array([None if v is None else Decimal(str(v)) for v in of], kind)
        return pa.array(of, kind)

    condition = parse_filter(text)
    require_judgeable(condition, SCHEMA, ARROW)
    rows = pa.RecordBatch.from_arrays([array(values)], names=[name])
    assert rows.filter(true_in(condition, rows)).column(0).equals(array(true))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sort = 'A'", "A is no value of sort, whose members are 'a', 'b c', '0'"),
        ("sort <> 'b'", "b is no value of sort"),
        ("NOT sort IN ('a', 'x')", "x is no value of sort"),
        ("set = 'y,x'", "y,x is no value of set, whose members are 'x', 'y', in this order"),
        ("set = 'x,x'", "x,x is no value of set"),
        ("set = 'x, y'", "x, y is no value of set"),
        ("bits = 1024", "1024 is no value of bits, which has 10 bits"),
        ("short = 'four'", "four is no value of short, which has at most 3 characters"),
        ("bytes = x'00010203'", "is no value of bytes, which has at most 3 bytes"),
    ],
)
def test_a_value_that_its_column_cannot_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        require_judgeable(parse_filter(text), NARROW, NARROW_ARROW)


@pytest.mark.parametrize(
    "text",
    [
        "sort IN ('a', 'b c', '')",
        "sort = '0'",
        "`set` IN ('', 'x', 'y', 'x,y')",
        "bits = 1023",
        "short <> 'äöü'",
        "bytes = x'000102'",
    ],
)
def test_a_value_that_its_column_can_have_is_taken(text: str) -> None:
    require_judgeable(parse_filter(text), NARROW, NARROW_ARROW)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("small = 256", "256 is no value of small: write it as a whole number that it can have"),
        ("small > -1", "-1 is no value of small"),
        ("small = '5'", "small is compared with a whole number that it can have, not with '5'"),
        ("small = 5.5", "small is compared with a whole number"),
        ("price = 12.345", "12.345 is no value of price: .* at most 2 digits"),
        ("price = 99999", "99999 is no value of price"),
        ("name < 'a'", "name is a text, whose order is the server's own"),
        ("name = 5", "name is compared with a text such as 'EU', not with 5"),
        ("raw = 'a'", "raw is compared with bytes such as x'00ff'"),
        ("raw LIKE 'a'", "raw is no text"),
        ("kind LIKE 'a'", "kind is no text"),
        ("day = '2026-02-30'", "2026-02-30 is no value of day: write it as a date such as"),
        ("at = 'today'", "write it as a moment such as '2026-01-31 08:30:00'"),
        ("since = '2026-01-01 00:00:00'", "a moment such as '2026-01-31 08:30:00Z'"),
        ("took = '00:00:01'", "took cannot be compared: it is not a date or a moment here"),
        ("shown = '2026-01-01'", "shown cannot be compared: it is not a date"),
        ("ratio = 1.5", "ratio cannot be compared: its digits"),
        ("doc = '1'", "doc cannot be compared: the same document has many texts"),
        ("small = 1 AND NOT (small = 2 OR name = 5)", "name is compared with"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_its_column(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        require_judgeable(parse_filter(text), SCHEMA, ARROW)
