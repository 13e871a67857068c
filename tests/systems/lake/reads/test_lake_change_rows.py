"""What becomes of the rows of one file of a lake's table, whoever wrote it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.systems.changelog.reads.change_rows import COMMIT_COLUMNS
from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS
from airflow_cdc_provider.systems.lake.reads.change_rows import (
    LakeFilePart,
    LakeTask,
    cut_by_groups,
)

AT = dt.datetime(2026, 2, 1, tzinfo=dt.UTC)
OPS = ["r", "c", "u", "d"]


def written(root: Path, own: dict[str, pa.Array], group_rows: int = 100, **told: Any) -> None:
    """Write a file of four rows with the orders -1 to 2."""
    columns = {
        "_op": pa.array(OPS),
        "_order": pa.array([-1, 0, 1, 2], pa.int64()),
        "_position": pa.array([f"bin.000001:{n}" for n in range(4)]),
        "_committed_at": pa.array([AT] * 4, CHANGE_COLUMNS["_committed_at"]),
        **told,
    }
    table = pa.table({**own, **{name: each for name, each in columns.items() if each is not None}})
    pq.write_table(table, root / "file.parquet", row_group_size=group_rows)


def task(root: Path, own: dict[str, pa.DataType], **given: Any) -> LakeTask:
    wanted = pa.schema([*own.items(), *COMMIT_COLUMNS.items()])
    parts = (given.pop("part", LakeFilePart("file.parquet")),)
    options = {"behind": -2, "upto": 9, "with_truncates": False, **given}
    return LakeTask(FileStore(root), parts, wanted=wanted, **options)


def rows(found: LakeTask) -> list[dict[str, Any]]:
    return [row for batch in found.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("was", "now", "value"),
    [
        (pa.int32(), pa.int64(), 7),
        (pa.float32(), pa.float64(), 0.5),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), Decimal("1.25")),
        (pa.large_string(), pa.string(), "a"),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "a"),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), AT),
    ],
)
def test_a_narrower_type_of_an_older_file_is_the_table_s(
    was: pa.DataType, now: pa.DataType, value: Any, tmp_path: Path
) -> None:
    written(tmp_path, {"v": pa.array([value] * 4, was)})
    assert [row["v"] for row in rows(task(tmp_path, {"v": now}))] == [value] * 4


@pytest.mark.parametrize(
    ("was", "now"), [(pa.int64(), pa.int32()), (pa.string(), pa.int64()), (pa.int32(), pa.string())]
)
def test_another_type_is_refused(was: pa.DataType, now: pa.DataType, tmp_path: Path) -> None:
    written(tmp_path, {"v": pa.nulls(4, was)})
    with pytest.raises(CdcError, match=f"column v is {was} in a file, and {now} in the table"):
        rows(task(tmp_path, {"v": now}))


def test_a_column_that_the_file_lacks_is_null_or_that_of_its_partition(tmp_path: Path) -> None:
    written(tmp_path, {"id": pa.array([1, 2, 3, 4])})
    part = LakeFilePart("file.parquet", constants={"day": dt.date(2026, 2, 1), "id": 9})
    found = task(tmp_path, {"id": pa.int64(), "v": pa.string(), "day": pa.date32()}, part=part)
    assert [(row["id"], row["v"], row["day"]) for row in rows(found)] == [
        (number, None, dt.date(2026, 2, 1)) for number in (1, 2, 3, 4)
    ]


def test_what_a_row_says_of_its_change(tmp_path: Path) -> None:
    written(tmp_path, {"id": pa.array([1, 2, 3, 4])})
    first, *_, last = rows(task(tmp_path, {"id": pa.int64()}))
    assert first == {
        "id": 1,
        "_change_type": "insert",
        "_commit_version": -1,
        "_commit_timestamp": AT,
        "_commit_position": "bin.000001:0",
        "_commit_order": 0,
    }
    assert (last["_change_type"], last["_commit_version"]) == ("delete", 2)


@pytest.mark.parametrize("group_rows", [1, 100])
def test_only_rows_of_the_range_are_read(group_rows: int, tmp_path: Path) -> None:
    written(tmp_path, {"id": pa.array([1, 2, 3, 4])}, group_rows)
    found = task(tmp_path, {"id": pa.int64()}, behind=-1, upto=1)
    assert [row["id"] for row in rows(found)] == [2, 3]
    assert rows(task(tmp_path, {"id": pa.int64()}, behind=2, upto=9)) == []


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"_order": pa.array([0, None, 1, 2], pa.int64())}, "a row has no _order"),
        ({"_order": None}, "the file has no column _order"),
        ({"_op": None}, "the file has no column _op"),
        ({"_op": pa.array(["c", None, "c", "c"])}, "the operation None is not known"),
        ({"_op": pa.array(["c", "c", "c", "x"])}, "the operation 'x' is not known"),
        ({"_op": pa.array(["c", "c", "t", "c"])}, "by TRUNCATE in version 1, or begins again"),
    ],
)
def test_rows_that_are_no_changes_of_ours_are_refused(
    told: dict[str, Any], error: str, tmp_path: Path
) -> None:
    written(tmp_path, {"id": pa.array([1, 2, 3, 4])}, **told)
    with pytest.raises(CdcError, match=error) as caught:
        rows(task(tmp_path, {"id": pa.int64()}))
    assert caught.value.remedy


def test_a_file_that_is_gone_or_broken_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match=r"file\.parquet is gone, though the table had it"):
        rows(task(tmp_path, {"id": pa.int64()}))
    (tmp_path / "file.parquet").write_bytes(b"no Parquet")
    with pytest.raises(CdcError, match=r"file\.parquet is no whole Parquet file"):
        rows(task(tmp_path, {"id": pa.int64()}))


def test_long_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    texts = [letter * (9 << 20) for letter in "abcd"]
    written(tmp_path, {"text": pa.array(texts)})
    batches = [*task(tmp_path, {"text": pa.string()}).batches()]
    assert [row for batch in batches for row in batch.column("text").to_pylist()] == texts
    assert max(batch.nbytes for batch in batches) < 20 << 20


def test_texts_that_others_stored_as_views_are_read(tmp_path: Path) -> None:
    texts = pa.array(["a", None, "ü" * 50, ""], pa.string_view())
    written(tmp_path, {"text": texts, "raw": texts.cast(pa.binary_view())})
    found = task(tmp_path, {"text": pa.string(), "raw": pa.binary()}, behind=-1, upto=1)
    assert [(row["text"], row["raw"]) for row in rows(found)] == [
        (None, None),
        ("ü" * 50, ("ü" * 50).encode()),
    ]


@pytest.mark.parametrize(("part_bytes", "groups"), [(1, 4), (50, 2), (100, 1)])
def test_a_large_file_is_cut_between_its_groups(
    part_bytes: int, groups: int, tmp_path: Path
) -> None:
    written(tmp_path, {"id": pa.array([1, 2, 3, 4])}, group_rows=1)
    whole = LakeFilePart("file.parquet", constants={"day": 1})
    parts = cut_by_groups(FileStore(tmp_path), whole, 100, part_bytes)
    assert len(parts) == groups
    found = [
        row["id"] for part in parts for row in rows(task(tmp_path, {"id": pa.int64()}, part=part))
    ]
    assert found == [1, 2, 3, 4]
    assert {part.constants["day"] for part in parts} == {1}
