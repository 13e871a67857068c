"""Numbers parsed word by word equal those of Arrow's parser, or are left to it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.systems.mysql.wire.text_numbers import parsed_number
from airflow_cdc_provider.systems.mysql.wire.text_values import gathered
from tests.systems.mysql.wire.located import located

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INTEGERS += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [
    pa.decimal128(precision, scale)
    for precision, scale in [(1, 0), (4, 1), (5, 5), (10, 0), (15, 2), (18, 7), (20, 8), (38, 2)]
]
TYPES = [*INTEGERS, *DECIMALS, pa.decimal256(65, 2)]

digits = st.text("0123456789", min_size=1, max_size=17)


@st.composite
def server_texts(draw: st.DrawFn, kind: pa.DataType) -> bytes:
    """Draw what the server may print for a type, in range or not."""
    text = draw(st.sampled_from(["", "", "-"])) + draw(digits)
    if pa.types.is_decimal(kind) and kind.scale:
        text += "." + draw(st.text("0123456789", min_size=kind.scale, max_size=kind.scale))
    return text.encode()


def columns(kind: pa.DataType) -> st.SearchStrategy[list[bytes | None]]:
    anything = st.binary(max_size=18)
    usual = st.one_of(st.none(), server_texts(kind))
    return st.one_of(
        st.lists(usual, min_size=1, max_size=8),
        st.lists(st.one_of(usual, anything), min_size=1, max_size=8),
    )


typed_columns = st.sampled_from(TYPES).flatmap(lambda kind: st.tuples(st.just(kind), columns(kind)))
surroundings = st.binary(max_size=20)


@given(typed_columns, surroundings, surroundings, surroundings)
@example((pa.int32(), [b"-"]), b"", b"", b"")
@example((pa.int32(), [b""]), b"", b"7", b"")
@example((pa.int32(), [None, b"-0"]), b"", b"-", b"-")
@example((pa.uint8(), [b"-0"]), b"", b"", b"")
@example((pa.decimal128(4, 1), [b".5"]), b"", b"", b"")
@example((pa.decimal128(4, 1), [b"-.5"]), b"", b"", b"")
@example((pa.decimal128(4, 1), [b"1.5", None, b"12345678901.5"]), b"", b"", b"")
@example((pa.decimal128(15, 2), [b"1:50", b"12.34"]), b"", b"", b"")
@example((pa.int64(), [b"1\xff", b"12345678"]), b"", b"", b"")
@example((pa.int64(), [b"1234567/", b"12345678:"]), b"", b"", b"")
def test_a_parsed_number_is_the_one_arrow_reads(
    column: tuple[pa.DataType, list[bytes | None]], before: bytes, between: bytes, after: bytes
) -> None:
    kind, texts = column
    buffer, field = located(texts, before=before, between=between, after=after)
    parsed = parsed_number(buffer, field, kind)
    if parsed is not None:
        parsed.validate(full=True)
        assert parsed.equals(gathered(buffer, field, pa.string()).cast(kind))


@given(st.sampled_from(DECIMALS), st.data())
def test_what_the_server_prints_of_up_to_sixteen_characters_is_parsed(
    kind: pa.DataType, data: st.DataObject
) -> None:
    if kind.scale > 7:
        return
    largest = 10 ** min(kind.precision, 14) - 1
    numbers = data.draw(
        st.lists(st.one_of(st.none(), st.integers(-largest, largest)), min_size=1, max_size=8)
    )
    values = [None if n is None else Decimal(n).scaleb(-kind.scale) for n in numbers]
    texts = [None if value is None else f"{value:f}".encode() for value in values]
    parsed = parsed_number(*located(texts), kind)
    assert parsed is not None
    assert parsed.to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        (pa.int32(), [b"00042", b"-2147483648", b"2147483647"], [42, -(2**31), 2**31 - 1]),
        (pa.int8(), [b"-128", b"127", None, b"-0"], [-128, 127, None, 0]),
        (pa.uint64(), [b"9999999999999999"], [9_999_999_999_999_999]),
        (pa.uint16(), [b"0000", b"2155"], [0, 2155]),
        (pa.decimal128(5, 2), [b"-0.00", b"000.01"], [Decimal("0.00"), Decimal("0.01")]),
        (pa.decimal128(15, 2), [b"-999999999999.99"], [Decimal("-999999999999.99")]),
        (pa.decimal128(9, 7), [b"12.3456789", None], [Decimal("12.3456789"), None]),
        (pa.int64(), [None, None], [None, None]),
    ],
)
def test_texts_of_every_shape_have_their_value(
    kind: pa.DataType, texts: list[bytes | None], values: list[object]
) -> None:
    parsed = parsed_number(*located(texts), kind)
    assert parsed is not None
    assert parsed.to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), b"128"),
        (pa.int8(), b"-129"),
        (pa.uint8(), b"256"),
        (pa.uint32(), b"-1"),
        (pa.int64(), b"9223372036854775807"),
        (pa.decimal128(3, 1), b"100.0"),
        (pa.decimal128(3, 1), b"-100.0"),
        (pa.decimal128(15, 2), b"1.234"),
        (pa.decimal128(15, 2), b"1234"),
        (pa.decimal128(20, 8), b"1.23456789"),
        (pa.decimal256(65, 0), b"9" * 65),
        (pa.float64(), b"1"),
        (pa.string(), b"1"),
    ],
)
def test_what_does_not_fit_is_left_to_the_checked_path(kind: pa.DataType, text: bytes) -> None:
    assert parsed_number(*located([b"1", text]), kind) is None


def test_an_empty_chunk_is_left_to_the_checked_path() -> None:
    assert parsed_number(*located([]), pa.int64()) is None
