"""Rows become files in the order of their key, and their decimals whole numbers."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.lake.columns import ORDER
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles

COLUMNS = pa.schema([("n", pa.int64()), ("price", pa.decimal128(15, 2)), (ORDER, pa.int64())])
SEED = random.randrange(2**32)


@pytest.mark.parametrize("key", [[ORDER], ["n"], ["n", ORDER]])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_rows_of_each_file_are_in_order(
    tmp_path: Path, key: list[str], *, is_sorted: bool
) -> None:
    print(f"seed {SEED}")
    numbers = random.Random(SEED).choices(range(-5, 1_000), k=300)
    rows = [(n, Decimal(n) / 100, n // 2) for n in (sorted(numbers) if is_sorted else numbers)]
    whole = pa.table([pa.array(each) for each in zip(*rows, strict=True)], names=COLUMNS.names)
    (tmp_path / "t").mkdir()
    with SortedFiles(FileStore(tmp_path), "t", COLUMNS, key, "made") as out:
        for first in range(0, 300, 70):
            out.add(whole.slice(first, 70))
    (made,) = out.made
    found = pq.read_table(tmp_path / made.name)
    assert found.schema == COLUMNS
    keys = list(zip(*(found.column(name).to_pylist() for name in key), strict=True))
    assert keys == sorted(keys)
    assert sorted(map(tuple, map(dict.values, found.to_pylist()))) == sorted(rows)
    price = pq.ParquetFile(tmp_path / made.name).schema.column(1)
    assert price.physical_type == "INT64"  # as the format of Iceberg asks for
