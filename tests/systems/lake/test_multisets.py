"""Tables without a key: what is left of their changes, in whatever order these are read."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.systems.lake.columns import OP, ORDER
from airflow_cdc_provider.systems.lake.last_changes import RowsLackingError, rows_left
from airflow_cdc_provider.systems.lake.multisets import (
    NONE_VOID,
    Multisets,
    count_left,
    last_void,
)
from airflow_cdc_provider.systems.lake.queries import counted_rows

SEED = random.SystemRandom().randrange(10_000)
TABLE = TableSchema(
    TableId("shop", "pairs"),
    (
        Column("_number", ColumnType("int", TypeKind.INTEGER, KeyKind.INTEGER)),
        Column("b", ColumnType("text", TypeKind.TEXT, KeyKind.TEXT)),
    ),
    (),
)
NAMES = ("_number", "b")
Row = tuple[int | None, str | None]


def random_changes() -> tuple[list[tuple[str, int | None, Row]], Counter[Row]]:
    """Return changes of few different rows, shuffled, and what is left of them."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    left: Counter[Row] = Counter()
    changes: list[tuple[str, int | None, Row]] = []
    for order in range(-20, 900):
        row = rng.choice([None, 1, 2, 3]), rng.choice([None, "", "a", "A"])
        op = "d" if left[row] and rng.random() < 0.5 else "c"
        if order < 0:
            changes.append(("r", -1, row))
            left[row] += 1
        elif order == 0 or rng.random() < 0.004:
            changes.append(("t", order, (None, None)))
            left.clear()
        else:
            changes.append((op, order, row))
            left[row] += 1 if op == "c" else -1
    changes += [("c", None, (1, "a"))]  # somebody's, who does not count
    rng.shuffle(changes)
    return changes, +left


def as_table(changes: list[tuple[str, int | None, Row]]) -> pa.Table:
    ops, orders, rows = zip(*changes, strict=True)
    numbers, texts = zip(*rows, strict=True)
    return pa.table(
        {
            OP: pa.array(ops),
            ORDER: pa.array(orders, pa.int64()),
            "_number": pa.array(numbers, pa.int32()),
            "b": pa.array(texts, pa.string()),
        }
    )


def test_what_is_left_is_each_row_as_often_as_it_came_more_than_it_went() -> None:
    changes, left = random_changes()
    table = as_table(changes)
    batches = table.to_batches(max_chunksize=97)
    multisets = Multisets(TABLE, NAMES)
    found = pa.Table.from_batches(multisets.rows(batches), table.schema)
    rows = Counter(zip(*(found.column(name).to_pylist() for name in NAMES), strict=True))
    assert rows == left
    assert count_left(batches) == left.total()
    with duckdb.connect() as connection:
        connection.register("t", table)
        assert Counter(connection.sql(counted_rows([*NAMES], "t")).fetchall()) == left
    wanted = as_table([("c", 0, row) for row in left.elements()])
    void = last_void(batches)
    assert multisets.total(batches, void) == multisets.total(wanted.to_batches(), NONE_VOID)
    more = as_table([("c", 0, (1, "a")), *(("c", 0, row) for row in left.elements())])
    assert multisets.total(batches, void) != multisets.total(more.to_batches(), NONE_VOID)


@pytest.mark.parametrize("held_bytes", [1, 2_000, 1 << 30])
def test_little_memory_is_enough(held_bytes: int) -> None:
    changes, left = random_changes()
    table = as_table(changes)
    codes = {row: number for number, row in enumerate({row for *_, row in changes})}
    table = table.append_column("code", pa.array([codes[row] for *_, row in changes], pa.int64()))
    found = rows_left(table.to_batches(max_chunksize=97), ["code"], held_bytes=held_bytes)
    rows = Counter(code for each in found for code in each.column("code").to_pylist())
    assert rows == {codes[row]: count for row, count in left.items()}


def test_a_row_that_went_and_never_came_is_told() -> None:
    changes = as_table([("c", 0, (1, "a")), ("d", 1, (1, "A")), ("d", 2, (1, "A"))])
    with pytest.raises(RowsLackingError) as told:
        list(Multisets(TABLE, NAMES).rows(changes.to_batches()))
    assert told.value.rows == 2


def test_engines_tell_a_zero_below_zero_from_zero() -> None:
    rows = [("c", 0, -0.0), ("c", 1, 0.0), ("c", 2, 0.0), ("c", 3, None), ("d", 4, 0.0)]
    ops, orders, numbers = zip(*rows, strict=True)
    for kind in (pa.float32(), pa.float64()):
        table = pa.table({OP: ops, ORDER: orders, "f": pa.array(numbers, kind)})
        with duckdb.connect() as connection:
            connection.register("t", table)
            found = connection.sql(counted_rows(["f"], "t", ["f"])).fetchall()
        assert Counter(str(each) for (each,) in found) == {"-0.0": 1, "0.0": 1, "None": 1}


def test_nothing_is_left_of_nothing() -> None:
    empty = as_table([("t", 0, (None, None))])
    assert not list(Multisets(TABLE, NAMES).rows(empty.to_batches()))
    assert count_left(empty.to_batches()) == 0
    assert Multisets(TABLE, NAMES).total(empty.to_batches(), last_void(empty.to_batches())) == 0
    assert np.iinfo(np.int64).min < NONE_VOID < 0
