"""Hashes of rows, against one that goes value by value and byte by byte."""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns import row_hashes as hashes_module
from airflow_cdc_provider.columns.canonical import Form
from airflow_cdc_provider.columns.row_hashes import RowHashes, added_totals, row_hashes
from airflow_cdc_provider.core.errors import ValueRefusedError

ALL = (1 << 64) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


# --- the slow way ----------------------------------------------------------------------------


def form_of(value: Any, *, is_date: bool = False) -> tuple[Form, int | bytes]:
    """Return the canonical form of one value."""
    if isinstance(value, (int, Decimal)):
        return form_of_number(format(Decimal(value), "f"))
    if isinstance(value, float):
        plain = math.nan if math.isnan(value) else value + 0.0
        return Form.DOUBLE, int.from_bytes(struct.pack("<d", plain), "little")
    if isinstance(value, str):
        return form_of_date(value) if is_date else (Form.TEXT, value.encode())
    if isinstance(value, bytes):
        return Form.BINARY, value
    if isinstance(value, datetime):
        return Form.MOMENT, (value.replace(tzinfo=UTC) - EPOCH) // MICROSECOND & ALL
    if isinstance(value, date):
        return Form.DAY, (value - EPOCH.date()).days & ALL
    if isinstance(value, time):
        value = datetime.combine(EPOCH, value) - datetime.combine(EPOCH, time())
    return Form.TIME, value // MICROSECOND & ALL


def form_of_number(text: str) -> tuple[Form, int | bytes]:
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if "." in text or len(text.lstrip("-")) > 18:
        return Form.DIGITS, text.encode()
    return Form.NUMBER, int(text) & ALL


def form_of_date(text: str) -> tuple[Form, int | bytes]:
    if text.startswith("0000"):  # as 2000, 2,000 years earlier
        form, content = form_of_date(f"2000{text[4:]}")
        if isinstance(content, bytes):
            return form, text.encode().rstrip(b"0").rstrip(b".") if "." in text else text.encode()
        earlier = 730_485 * (1 if form is Form.DAY else 86_400_000_000)
        return form, content - earlier & ALL
    try:
        return form_of(
            date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
        )
    except ValueError:
        kept = text.rstrip("0").rstrip(".") if "." in text else text
        return Form.NO_DAY, kept.encode()


def mixed(word: int) -> int:
    word ^= word >> 30
    word = word * 0xBF58476D1CE4E5B9 & ALL
    word ^= word >> 27
    word = word * 0x94D049BB133111EB & ALL
    return word ^ word >> 31


STEP, OTHER_STEP = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
NULL = 0x5851F42D4C957F2D


def value_hash(value: Any, *, is_date: bool = False) -> tuple[int, int]:
    if value is None:
        return NULL, NULL ^ ALL
    form, content = form_of(value, is_date=is_date)
    mark = form * OTHER_STEP & ALL
    if isinstance(content, int):
        one = mixed(content + mark & ALL)
        return one, one * STEP & ALL
    one = other = 0
    for place in range(1, -(-len(content) // 8) + 1):
        word = int.from_bytes(content[8 * place - 8 : 8 * place], "little")
        found = mixed(word + place * STEP & ALL)
        one += found
        other += (found ^ found >> 32) * (2 * place + 1)
    end = len(content) * STEP + mark & ALL
    return mixed(one + end & ALL), mixed(other & ALL ^ end)


def row_hash(row: Sequence[Any], dates: Sequence[int] = ()) -> str:
    one = other = 0
    for place, value in enumerate(row, 1):
        here, there = value_hash(value, is_date=place - 1 in dates)
        one += mixed(here + place * STEP & ALL)
        other += mixed(there + place * OTHER_STEP & ALL)
    return f"{mixed(one + len(row) & ALL):016x}{mixed((other & ALL) ^ NULL):016x}"


# --- values of every type --------------------------------------------------------------------


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, WIDE))


WIDE = decimal.Context(prec=80)
EDGES = st.sampled_from([10**18, 10**18 - 1, -(10**18), 1 - 10**18, 0, -1])
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 - a wall clock
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1) | EDGES,
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, (1 << 16) - 1),
    pa.uint32(): st.integers(0, (1 << 32) - 1),
    pa.uint64(): st.integers(0, ALL),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(10, 2): decimals(10, 2) | decimals(8, 0),
    pa.decimal128(38, 0): decimals(38, 0) | EDGES.map(Decimal),
    pa.decimal128(30, 20): decimals(30, 20) | decimals(3, 0),
    pa.decimal256(65, 30): decimals(65, 30) | decimals(20, 0),
    pa.date32(): st.dates(),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.timestamp("ms"): MOMENTS.map(lambda moment: moment.replace(microsecond=1000)),
    pa.duration("us"): st.timedeltas(-timedelta(hours=839), timedelta(hours=839)),
    pa.time64("us"): st.times(),
    pa.string(): st.text(),
    pa.large_string(): st.text(),
    pa.binary(): st.binary(max_size=40),
    pa.large_binary(): st.binary(max_size=40),
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_hashes_are_those_of_the_slow_way(kind: pa.DataType) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.none() | TYPES[kind], st.none() | TYPES[pa.string()]), max_size=9))
    def check(rows: list[tuple[Any, Any]]) -> None:
        columns = [
            pa.array([row[0] for row in rows], kind),
            pa.array([row[1] for row in rows], pa.string()),
        ]
        assert row_hashes(columns).texts() == [row_hash(row) for row in rows]
        sliced = [column.slice(1) for column in columns]
        assert row_hashes(sliced).texts() == [row_hash(row) for row in rows[1:]]

    check()


def odd_dates() -> st.SearchStrategy[str]:
    return st.dates().map(str) | st.sampled_from(
        ["0000-00-00", "2024-02-31", "2024-00-15", "0000-01-01"]
    )


def odd_moments() -> st.SearchStrategy[str]:
    plain = MOMENTS.map(lambda each: each.isoformat(" ", "milliseconds"))
    return plain | st.sampled_from(
        ["0000-00-00 00:00:00.000", "2024-02-31 10:00:00.100", "0000-01-01 00:00:00.120"]
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | odd_dates(), max_size=9) | st.lists(odd_moments(), max_size=9))
@example(["0000-01-01"])
def test_dates_that_came_as_text_are_days_where_they_are_days(texts: list[str | None]) -> None:
    found = row_hashes([pa.array(texts, pa.string())], dates=[0]).texts()
    assert found == [row_hash((text,), [0]) for text in texts]


def one(value: Any, kind: pa.DataType, **options: Any) -> str:
    return row_hashes([pa.array([value], kind)], **options).texts()[0]


SAME = [
    [(5, pa.int8()), (5, pa.uint64()), (Decimal("5.00"), pa.decimal128(9, 2))],
    [(ALL, pa.uint64()), (Decimal(ALL), pa.decimal256(65, 0))],
    [(-(10**18), pa.int64()), (Decimal(-(10**18)), pa.decimal128(38, 4))],
    [(Decimal("-0.50"), pa.decimal128(9, 2)), (Decimal("-0.5"), pa.decimal256(65, 30))],
    [(0.5, pa.float32()), (0.5, pa.float64())],
    [(-0.0, pa.float64()), (0.0, pa.float64()), (-0.0, pa.float32())],
    [("é", pa.string()), ("é", pa.large_string())],
    [(time(1, 2, 3), pa.time64("us")), (timedelta(seconds=3723), pa.duration("ms"))],
]


@pytest.mark.parametrize("same", SAME, ids=str)
def test_a_value_is_the_same_whatever_type_holds_it(same: list[tuple[Any, pa.DataType]]) -> None:
    assert len({one(value, kind) for value, kind in same}) == 1


def test_a_date_is_the_same_as_text_and_as_a_date() -> None:
    assert one("2024-02-29", pa.string(), dates=[0]) == one(date(2024, 2, 29), pa.date32())
    moment = datetime(2024, 2, 29, 1, 2, 3, 400_000, UTC)
    for text in ("2024-02-29 01:02:03.4", "2024-02-29 01:02:03.400000"):
        assert one(text, pa.string(), dates=[0]) == one(moment, pa.timestamp("us", "UTC"))
    first = pa.array(["0000-02-29"]).cast(pa.date32())
    assert row_hashes([first]).texts()[0] == one("0000-02-29", pa.string(), dates=[0])
    zeros = [one(f"0000-00-00 00:00:00{end}", pa.string(), dates=[0]) for end in ("", ".000")]
    assert zeros[0] == zeros[1]


DOCUMENTS = [
    ['{"a": 1, "b": [1.50, -0.0]}', '{"b":[1.5,0],"a":1}', '{"a": 7, "b": [15e-1, 0], "a": 1.0}'],
    ['"\\u00e9"', '"é"'],
    ["100", "1e2", "1E+2", "100.000"],
    ["1e400", "10e399"],
    ["12345678901234567890123456789012345678901.5"],
    ["12345678901234567890123456789012345678901.4"],
    ['"1"'], ["[]"], ["{}"], ["null"], ["true"], ['"true"'], ["[1]"], ["[[1]]"], ['{"a": null}'],
    ["NaN"], ["no"], ["no "],
]  # fmt: skip


def test_documents_are_the_same_where_they_mean_the_same() -> None:
    texts = [text for same in DOCUMENTS for text in same]
    values = pa.array([None, *texts, texts[0]])
    null, *found, again = row_hashes([values], documents=[0]).texts()
    assert again == found[0]
    wide = values.cast(pa.large_string())
    assert row_hashes([wide], documents=[0]).texts() == [null, *found, again]
    assert null == row_hashes([values.slice(0, 1)]).texts()[0]
    by_text = dict(zip(texts, found, strict=True))
    groups = [{by_text[text] for text in same} for same in DOCUMENTS]
    assert [len(group) for group in groups] == [1] * len(DOCUMENTS)
    assert len(set.union(*groups)) == len(DOCUMENTS)


def test_boundaries_lengths_nulls_and_kinds_take_part() -> None:
    rows = [
        ("ab", "c"), ("a", "bc"), ("c", "ab"), ("", "abc"), (None, "abc"), ("abc", None),
        ("abc", ""), (None, None), ("", ""), (None, ""), ("ab\0", "c"), ("ab\0\0", "c"),
        ("abcdefgh", "ijklmnop"), ("ijklmnop", "abcdefgh"), ("abcdefghijklmnop", ""),
        ("ijklmnopabcdefgh", ""),
    ]  # fmt: skip
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
    as_bytes = [column.cast(pa.binary()) for column in columns]
    found = [*row_hashes(columns).texts(), *row_hashes(as_bytes).texts()]
    assert len(set(found)) == 2 * len(rows) - 1  # only the row of two NULLs is the same in both
    assert one(0, pa.int64()) != one(None, pa.int64()) != one("", pa.string())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), min_size=2, max_size=9), st.data()
)
def test_no_order_changes_a_sum_and_any_exchange_of_values_does(
    rows: list[tuple[int, str]], data: st.DataObject
) -> None:
    def total(some: Sequence[tuple[int, str]]) -> int:
        return row_hashes(
            [pa.array([row[0] for row in some]), pa.array([row[1] for row in some], pa.string())]
        ).total

    assert total(data.draw(st.permutations(rows))) == total(rows)
    assert added_totals(total(rows[:1]), total(rows[1:])) == total(rows)
    (a, b), (c, d), *rest = rows
    changed = total([(a, d), (c, b), *rest]) ^ total(rows)
    is_same = a == c or b == d
    assert (changed >> 64 == 0) == (changed & ALL == 0) == is_same
    assert total([*rows, rows[0], rows[0]]) != total(rows)


def test_long_values_are_hashed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "x" * 1000, "y", None, "z" * 333, "x" * 999 + "y", ""]
    values = pa.array(texts, pa.string())
    whole = row_hashes([values]).texts()
    assert whole == [row_hash((text,)) for text in texts]
    monkeypatch.setattr(hashes_module, "_PIECE_WORDS", 3)
    monkeypatch.setattr(hashes_module, "_BLOCK_WORDS", 7)
    assert row_hashes([values]).texts() == whole


def test_every_bit_of_a_row_counts_in_both_hashes() -> None:
    values = np.arange(20_000, dtype=np.int64)
    found: RowHashes = row_hashes([pa.array(values), pa.array(values * 0)])
    assert len(set(found.one.tolist())) == len(set(found.other.tolist())) == len(values)
    for words in (found.one, found.other):
        bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
        assert np.abs(bits - 0.5).max() < 0.03


def test_a_type_that_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match="list"):
        row_hashes([pa.array([[1]], pa.list_(pa.int8()))])
