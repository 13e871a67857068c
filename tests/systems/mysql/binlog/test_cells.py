"""Cells read with vector steps have the values that reading them one by one gives."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.table_schema import Column, ColumnType
from airflow_cdc_provider.systems.mysql.binlog.rows.absent_rows import absent_rows, are_absent
from airflow_cdc_provider.systems.mysql.binlog.rows.cell_values import decode_cells
from airflow_cdc_provider.systems.mysql.binlog.rows.few_rows import NotFewError, _reader
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire, decimal_bytes
from airflow_cdc_provider.systems.mysql.dialect.charsets import to_utf8
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import (
    ZeroDates,
    arrow_schema,
    arrow_type,
)
from tests.systems.mysql.wire.type_cases import cases_for

HEADER = bytes(19)
"""What lies before the first cell of any event."""


def decoded(
    cells: list[bytes | None], wire: Wire, column: ColumnType, policy: ZeroDates = ZeroDates.NULL
) -> list[object]:
    buffer = HEADER + b"".join(cell or b"" for cell in cells)
    lengths = [len(cell or b"") for cell in cells]
    places = len(HEADER) + np.cumsum([0, *lengths[:-1]])
    nulls = np.array([cell is None for cell in cells])
    found = Cells(
        ByteViews(buffer), np.where(nulls, 0, places), None, nulls if nulls.any() else None
    )
    values: list[object] = decode_cells(
        found, wire, column, arrow_type(column, policy), policy
    ).array.to_pylist()
    return values


@pytest.mark.parametrize("width", range(1, 8))
@pytest.mark.parametrize("size", [8, 15, 16, 40])
def test_numbers_of_every_width_are_read_up_to_the_last_byte(size: int, width: int) -> None:
    data = random.Random(size).randbytes(size)
    places = np.arange(8 - width if size >= 16 else 0, size - width + 1)
    texts = [data[place : place + width] for place in places]
    assert ByteViews(data).little(places, width).tolist() == [
        int.from_bytes(text, "little") for text in texts
    ]
    assert ByteViews(data).big(places, width).tolist() == [
        int.from_bytes(text, "big") for text in texts
    ]


def packed_decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """Pack as the server does: groups of nine digits, the sign in the first bit."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    digits = "".join(map(str, value.as_tuple().digits)).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = [whole[:head], *(whole[i : i + 9] for i in range(head, len(whole), 9))]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    data = bytearray(b"".join(int(g or 0).to_bytes(sizes[len(g)], "big") for g in groups))
    if value < 0:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


@pytest.mark.parametrize("precision", range(1, 66))
def test_decimals_of_every_precision_and_scale_are_exact(precision: int) -> None:
    source = random.Random(precision)
    for scale in {0, 1, min(9, precision), precision, precision // 2} - set(range(31, 66)):
        if precision < scale:
            continue
        largest = 10**precision - 1
        numbers = [0, 1, -1, largest, -largest, *(source.randint(-largest, largest) for _ in "abc")]
        values = [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
        wire = Wire("decimal", decimal_bytes(precision, scale), length=precision, scale=scale)
        column = mysql_type("decimal", precision=precision, scale=scale)
        cells: list[bytes | None] = [packed_decimal(each, precision, scale) for each in values]
        assert decoded([*cells, None], wire, column) == [*values, None]


def packed_date(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def packed_datetime(year: int, month: int, day: int) -> bytes:
    days = (year * 13 + month) << 5 | day
    return ((days << 17 | 23 << 12 | 59 << 6 | 58) + 0x8000000000).to_bytes(5, "big")


YEARS = (1, 4, 99, 100, 400, 1000, 1582, 1900, 1969, 1970, 2000, 2023, 2024, 2100, 9996, 9999)


@pytest.mark.parametrize("year", [*YEARS, 10_000, 16_383])
def test_every_day_of_the_calendar_is_known_and_no_other(year: int) -> None:
    days = [(year, month, day) for month in range(16) for day in range(32)]
    expected = [real_day(*each) for each in days]
    cells: list[bytes | None] = [packed_date(*each) for each in days]
    assert decoded([*cells, None], Wire("date", 3), mysql_type("date")) == [*expected, None]
    if year >= 10_000:
        return
    kept = [(each, day) for each, day in zip(days, expected, strict=True) if each[1] < 13]
    clocks = [None if day is None else dt.datetime.combine(day, CLOCK) for _, day in kept]
    cells = [packed_datetime(*each) for each, _ in kept]
    assert decoded([*cells, None], Wire("datetime", 5), mysql_type("datetime")) == [*clocks, None]


CLOCK = dt.time(23, 59, 58)


def real_day(year: int, month: int, day: int) -> dt.date | None:
    try:
        return dt.date(year, month, day)
    except ValueError:
        return None


def test_absent_rows_are_rows_of_nulls_of_every_type() -> None:
    columns = [Column(case.name, case.type) for case in cases_for("mysql")]
    schema = arrow_schema(columns)
    for count in (0, 1, 7, 100_000):
        rows = absent_rows(schema, count)
        rows.validate(full=True)
        assert rows.schema == schema
        assert rows.equals(
            pa.RecordBatch.from_arrays(
                [pa.nulls(count, kind) for kind in schema.types], schema=schema
            )
        )
    assert are_absent([absent_rows(schema, 3), absent_rows(schema, 0)])
    one = pa.RecordBatch.from_pydict({"a": [None, 1]})
    assert not are_absent([one.slice(0, 1), one])
    assert are_absent([one.slice(0, 1)])


def test_dates_of_before_mysql_5_6_that_are_no_day_are_null_whatever_their_digits() -> None:
    wire, column = Wire("old datetime", width=8), mysql_type("datetime")
    numbers = [20240229235958, 20240230000000, 20241301000000, 20241701000000, 99991231000000]
    numbers += [100000101000000, (1 << 64) - 1]
    cells: list[bytes | None] = [number.to_bytes(8, "little") for number in numbers]
    found = decoded([*cells, None], wire, column)
    real = [dt.datetime(2024, 2, 29, 23, 59, 58), dt.datetime(9999, 12, 31)]  # noqa: DTZ001
    assert found == [real[0], None, None, None, real[1], None, None, None]


def test_times_of_before_mysql_5_6_are_signed_digits() -> None:
    numbers = [8385959, -8385959, -1, 0, 10203]
    cells: list[bytes | None] = [number.to_bytes(3, "little", signed=True) for number in numbers]
    longest = dt.timedelta(hours=838, minutes=59, seconds=59)
    assert decoded([*cells, None], Wire("old time", width=3), mysql_type("time")) == [
        longest,
        -longest,
        dt.timedelta(seconds=-1),
        dt.timedelta(0),
        dt.timedelta(hours=1, minutes=2, seconds=3),
        None,
    ]


CHARSETS = sorted(
    {case.type.charset or "" for family in ("mysql", "mariadb") for case in cases_for(family)}
    - {"", "binary"}
)


@pytest.mark.parametrize("charset", CHARSETS)
def test_a_text_that_is_read_alone_is_that_of_columns_or_is_left_to_them(charset: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed: {seed}")
    rng = random.Random(seed)
    column = mysql_type("varchar", length=50, charset=charset)
    read = _reader(Wire("varchar", 0, 1), Column("c", column), pa.string())
    assert read is not None
    texts = [bytes([byte]) for byte in range(256)]
    texts += [rng.randbytes(rng.randrange(7)) for _ in range(1000)]
    alike = 0
    for text in texts:
        try:
            alone = read(b"?" + text + b"?", 1, len(text))
        except (CdcError, UnicodeDecodeError, NotFewError):
            continue
        (whole,) = to_utf8(pa.array([text], pa.binary()), charset).to_pylist()
        assert (text, alone) == (text, whole.encode())
        alike += 1
    assert alike > 100
