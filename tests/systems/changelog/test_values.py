"""Values of each type as Debezium's documentation has them; `against_debezium` asks Debezium."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.file_log.json_text import json_lines
from airflow_cdc_provider.systems.file_log.tree import Members, arrow_array
from airflow_cdc_provider.systems.file_log.values import debezium_values
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

_WKB = struct.pack("<BIdd", 1, 1, 2.0, -1.5)
CASES: tuple[tuple[ColumnType, pa.DataType, Any, Any], ...] = (
    (mysql_type("tinyint"), pa.int8(), -128, -128),
    (mysql_type("bigint", unsigned=True), pa.uint64(), 2**64 - 1, 2**64 - 1),
    (mysql_type("bit", length=1), pa.uint64(), 1, True),
    (mysql_type("bit", length=10), pa.uint64(), 0x0102, "AgE="),
    (mysql_type("year"), pa.uint16(), 2155, 2155),
    (mysql_type("float"), pa.float32(), 0.1, 0.1),
    (mysql_type("double"), pa.float64(), -1e-7, -1e-7),
    (mysql_type("decimal"), pa.decimal128(20, 15), Decimal("-1E-15"), "-0.000000000000001"),
    (mysql_type("decimal"), pa.decimal256(40, 0), Decimal(10**39), str(10**39)),
    (mysql_type("date"), pa.date32(), dt.date(1969, 12, 31), -1),
    (mysql_type("datetime", fraction=3), pa.timestamp("us"), 1_500_000, 1500),
    (mysql_type("datetime", fraction=4), pa.timestamp("us"), 1_500_000, 1_500_000),
    (mysql_type("timestamp"), pa.timestamp("us", "UTC"), 10**6, "1970-01-01T00:00:01Z"),
    (
        mysql_type("timestamp", fraction=3),
        pa.timestamp("us", "UTC"),
        1_100_000,
        "1970-01-01T00:00:01.100Z",
    ),
    (mysql_type("time"), pa.duration("us"), -3_020_399_000_000, -3_020_399_000_000),
    (mysql_type("varchar"), pa.string(), 'q"\\\n\x01é\U0001f600', 'q"\\\n\x01é\U0001f600'),
    (mysql_type("blob"), pa.binary(), b"\0\xff", "AP8="),
    (mysql_type("enum", members=("a",)), pa.string(), "0", ""),
    (mysql_type("enum", members=("a", "")), pa.string(), "0", "0"),
    (mysql_type("set", members=("a", "b")), pa.string(), "a,b", "a,b"),
    (mysql_type("json"), pa.string(), '{"a": 1}', '{"a": 1}'),
    (
        mysql_type("point"),
        pa.binary(),
        struct.pack("<I", 4326) + _WKB,
        {"x": 2, "y": -1.5, "wkb": "AQEAAAAAAAAAAAAAQAAAAAAAAPi/", "srid": 4326},
    ),
    (
        mysql_type("geometry"),
        pa.binary(),
        struct.pack("<I", 0) + _WKB,
        {"wkb": "AQEAAAAAAAAAAAAAQAAAAAAAAPi/", "srid": None},
    ),
    (mysql_type("vector"), pa.binary(), struct.pack("<ff", 1, -2.5), [1, -2.5]),
    (mysql_type("uuid"), pa.string(), "123e4567", "123e4567"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].name)
def test_a_value_is_written_as_debezium_documents_it(
    case: tuple[ColumnType, pa.DataType, Any, Any],
) -> None:
    column_type, kind, value, wanted = case
    array = pa.array([None, value, None, value], kind)
    assert _json(array, column_type) == [None, wanted, None, wanted]
    assert _json(array.slice(1, 1), column_type) == [wanted]
    assert _json(pa.nulls(2, kind), column_type) == [None, None]
    in_parquet = arrow_array(debezium_values(array, column_type), 4).to_pylist()
    assert [each is None for each in in_parquet] == [True, False, True, False]


@given(st.lists(st.one_of(st.none(), st.text(), st.text('"\\\n\0\x1f/é', max_size=3))))
def test_any_text_is_read_back_from_json(texts: list[str | None]) -> None:
    texts = [None if each is None else each.encode(errors="ignore").decode() for each in texts]
    assert _json(pa.array(texts, pa.string()), mysql_type("text")) == texts


def test_a_whole_float_is_written_with_a_point() -> None:
    value = Members((("v", pa.array([-0.0, 1.0, 1e300, None])),))
    lines = json_lines(value, 4).to_pybytes().decode().split()
    assert lines == ['{"v":-0.0}', '{"v":1.0}', '{"v":1e+300}', '{"v":null}']


def _json(array: pa.Array, column_type: ColumnType) -> list[Any]:
    value = Members((("v", debezium_values(array, column_type)),))
    lines = json_lines(value, len(array)).to_pybytes().decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(line)["v"] for line in lines]
