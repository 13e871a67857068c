"""Arrays made from buffers are those that Arrow itself makes, and pandas stays away."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    as_numpy,
    binaries_of,
    binary_scalar,
    mask_of,
    numbers_of,
    texts_of,
)

_LOG = Path(__file__).parents[1] / "data" / "binlogs" / "mysql_9_7.bin.gz"
_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def _valid(array: pa.Array) -> pa.Array:
    array.validate(full=True)
    return array


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_arrows_own(values: list[str | None]) -> None:
    assert _valid(texts_of(values)).equals(pa.array(values, pa.string()))


@given(
    st.lists(st.none() | st.binary()),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_bytes_are_arrows_own(values: list[bytes | None], kind: pa.DataType) -> None:
    assert _valid(binaries_of(values, kind)).equals(pa.array(values, kind))


@given(st.binary(), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_a_scalar_is_arrows_own(value: bytes, kind: pa.DataType) -> None:
    assert binary_scalar(value, kind).equals(pa.scalar(value, kind))


@given(st.lists(_INT64), st.lists(st.booleans()))
def test_numbers_and_masks_are_arrows_own(numbers: list[int], truths: list[bool]) -> None:
    assert _valid(numbers_of(numbers)).equals(pa.array(numbers, pa.int64()))
    assert _valid(mask_of(truths)).equals(pa.array(truths, pa.bool_()))


@given(st.lists(st.none() | st.integers(0, 255)))
def test_nulls_are_arrows_own(values: list[int | None]) -> None:
    nulls = np.array([value is None for value in values], np.bool_)
    data = np.array([value or 0 for value in values], np.uint8)
    assert _valid(as_arrow(data, nulls, pa.uint8())).equals(pa.array(values, pa.uint8()))


@given(
    st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float64()]),
    st.lists(st.integers(0, 100)),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_numpy_gets_what_arrow_would_give(
    kind: pa.DataType, values: list[int], first: int, length: int
) -> None:
    for array in (
        pa.array(values, kind),
        pa.array([value % 3 == 0 for value in values], pa.bool_()),
    ):
        for part in (array, array.slice(min(first, len(values)), length)):
            expected: Any = part.to_numpy(zero_copy_only=False)
            found = as_numpy(part)
            assert found.dtype == expected.dtype
            assert found.tolist() == expected.tolist()


def test_numpy_gets_no_nulls() -> None:
    with pytest.raises(ValueError, match="1 NULLs are no int64"):
        as_numpy(pa.array([1, None], pa.int64()))


def test_numpy_gets_no_dates_as_numbers() -> None:
    with pytest.raises(TypeError, match="date32"):
        as_numpy(pa.array([1], pa.date32()))


def test_more_than_an_array_can_hold_is_refused() -> None:
    half = bytes(1 << 30)
    with pytest.raises(OverflowError, match="2147483648 bytes do not fit"):
        binaries_of([half, half])


_WITHOUT_PANDAS = """
import importlib.util, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from airflow_cdc_provider.columns.arrow_arrays import as_arrow, numbers_of, texts_of
from airflow_cdc_provider.systems.mysql.binlog.rows.system_versions import current_changes
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from tests.systems.mysql.binlog.log_file import read_file
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.systems.mysql.wire.load_text import load_rows
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.systems.mysql.wire.parameters import row_parameters
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list, values_sql
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.spark.batch_codec import decode, encode

path = Path(sys.argv[1])
uuid = "00000000-0000-0000-0000-000000000001"
start = MySqlPosition(uuid, BinlogPosition.of("binlog.000001", 4), GtidSet())
decoder = ColumnDecoder(start, server_uuid=uuid, captured=lambda table: True)
batches = [batch for chunk in read_file(path) for batch in decoder.feed(chunk)]
batches += [decoder.flush()]
changes = [part for batch in batches if batch for part in decode(encode(batch)).tables]
assert sum(map(len, changes)) > 100
for part in changes:
    merge([part], part.before.schema.names[:1])
key_column([1, None], pa.int32()), key_column(["a"], pa.string()), key_column([b"a"], pa.binary())
columns = [
    Column("id", mysql_type("bigint")),
    Column("name", mysql_type("varchar", length=9, charset="utf8mb4")),
]
rows = pa.RecordBatch.from_arrays(
    [numbers_of([1, 2]), texts_of(["a'\\\\b", None])], ["id", "name"]
)
values_sql(rows, columns), key_list(rows, columns[:1]), load_rows(rows, columns)
row_parameters(rows, columns)
current, past = 2_147_483_647_999_999, 0
before, after = (
    pa.RecordBatch.from_arrays([as_arrow(np.array(ends), None, pa.timestamp("us"))], ["row_end"])
    for ends in ([current, current], [current, past])
)
_, kinds, _ = current_changes(np.array([2, 2]), before, after, 0)
assert kinds.tolist() == [2, 3]
if importlib.util.find_spec("pandas") is None:
    sys.exit("there is no pandas to stay away from")
sys.exit("pandas was loaded" if "pandas" in sys.modules else 0)
"""


def test_changes_and_statements_are_made_without_loading_pandas(tmp_path: Path) -> None:
    log = tmp_path / "binlog.000001"
    log.write_bytes(gzip.decompress(_LOG.read_bytes()))
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS, str(log)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
