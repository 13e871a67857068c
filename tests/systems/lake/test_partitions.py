"""Partitions of rows have the values that Iceberg's own library computes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from airflow_cdc_provider.core.table_layout import PartitionField, Transform
from airflow_cdc_provider.systems.lake.partitions import (
    UnfitLayoutError,
    can_be_of,
    numbered,
    parted,
)

SEED = random.randrange(2**32)
ROWS = 400
KINDS: dict[pa.DataType, IcebergType] = {
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}
LATEST = 250_000_000_000_000_000
"""In the year 9892, as microseconds."""
BOUNDS = {
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**62), 2**62),
    pa.date32(): (-700_000, 2_900_000),
    pa.timestamp("us"): (-LATEST // 5, LATEST),
    pa.timestamp("us", "UTC"): (-LATEST // 5, LATEST),
}
NUMBERS = {Transform.BUCKET: 7, Transform.TRUNCATE: 3}


def values_of(kind: pa.DataType, rng: random.Random) -> list[Any]:
    """Return numbers of a type, with few that are far apart and some that are alike."""
    match KINDS[kind]:
        case StringType():
            return ["".join(rng.choices("aé漢😀 '%/=", k=rng.randrange(12))) for _ in range(ROWS)]
        case BooleanType():
            return rng.choices([True, False], k=ROWS)
        case _:
            low, high = BOUNDS[kind]
            near = [rng.randrange(-9, 9) for _ in range(ROWS)]
            return [rng.choice([each, rng.randrange(low, high)]) for each in near]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("transform", Transform)
def test_values_are_those_of_the_specification(kind: pa.DataType, transform: Transform) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    number = NUMBERS.get(transform, 0)
    name = f"{transform}[{number}]" if number else str(transform)
    # its identity may be of any type; those with wide values make no good partitions
    is_one = parse_transform(name).can_transform(KINDS[kind])
    if transform is Transform.IDENTITY and pa.types.is_timestamp(kind):
        is_one = False
    assert can_be_of(kind, transform) == is_one
    values = values_of(kind, rng)
    given = [None if rng.random() < 0.1 else value for value in values]
    own = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    plain = own if pa.types.is_temporal(kind) else kind
    column = pa.array(given, plain).cast(kind)
    rows = pa.table({"v": pa.chunked_array([column[:150], column[150:]]), "n": range(ROWS)})
    field = PartitionField("v", transform, number)
    if not is_one:
        with pytest.raises(UnfitLayoutError, match="and v is"):
            list(parted(rows, [field]))
        return
    expected = parse_transform(name).transform(KINDS[kind])
    codes, known = numbered([rows.slice(0, 170), rows.slice(170)], [field])
    seen = []
    for (value,), part in parted(rows, [field]):
        numbers = part.column("n").to_pylist()
        assert numbers == sorted(numbers)
        seen += numbers
        assert {expected(given[each]) for each in numbers} == {value}
        assert codes.tolist().count(known[value,]) == part.num_rows
    assert sorted(seen) == list(range(ROWS))
    assert known.keys() == {(expected(each),) for each in given}


def test_rows_are_parted_by_all_fields_and_by_columns_that_are_not_there() -> None:
    rows = pa.table({"a": [1, 2, 1, None], "b": ["x", "x", "y", ""], "n": [0, 1, 2, 3]})
    fields = [PartitionField("a"), PartitionField("gone"), PartitionField("b")]
    found = {values: part.column("n").to_pylist() for values, part in parted(rows, fields)}
    assert found == {
        (1, None, "x"): [0],
        (2, None, "x"): [1],
        (1, None, "y"): [2],
        (None, None, ""): [3],
    }
    assert list(parted(rows, [])) == [((), rows)]
    assert numbered([rows], [])[1] == {(): 0}
    assert list(parted(rows.slice(0, 0), fields)) == [((), rows.slice(0, 0))]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("region", PartitionField("region")),
        (" day( created at ) ", PartitionField("created at", Transform.DAY)),
        ("bucket(16, id)", PartitionField("id", Transform.BUCKET, 16)),
        ("truncate(3,name)", PartitionField("name", Transform.TRUNCATE, 3)),
    ],
)
def test_a_field_is_read_as_it_is_written(text: str, field: PartitionField) -> None:
    assert PartitionField.parse(text) == field
    assert PartitionField.parse(str(field)) == field


@pytest.mark.parametrize(
    "text", ["", "days(a)", "bucket(a)", "bucket(0, a)", "day()", "bucket(2,)"]
)
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no column|is not between"):
        PartitionField.parse(text)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_a_number_that_has_no_smaller_one_is_refused(kind: pa.DataType) -> None:
    least = -(2 ** (kind.bit_width - 1))
    field = PartitionField("v", Transform.TRUNCATE, 100)
    with pytest.raises(UnfitLayoutError, match="cannot be rounded down"):
        list(parted(pa.table({"v": pa.array([5, least], kind)}), [field]))
    low = least + 100
    ((value, *_),) = (found for found, _ in parted(pa.table({"v": pa.array([low], kind)}), [field]))
    assert value == low - low % 100
