"""What joins the stream of the rows that were read, once the log since has been looked at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

INT = mysql_type("int")
TEXT = mysql_type("varchar", length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
Image = tuple[Any, int] | None
Change = tuple[Op, Image, Image]


def schema_of(key: Any) -> TableSchema:
    columns = (Column("k", key, nullable=False), Column("n", INT))
    return TableSchema(TableId("shop", "t"), columns, ("k",), (0,))


def arrow_of(schema: TableSchema) -> pa.Schema:
    kind = pa.int32() if schema.column("k").type is INT else pa.string()
    return pa.schema([("k", kind), ("n", pa.int32())])


def split_of(schema: TableSchema, keys: KeyRange) -> SnapshotSplit:
    return SnapshotSplit(schema.table, 0, ("k",), schema.key_kinds, keys)


def batch_of(schema: TableSchema, rows: list[Image]) -> pa.RecordBatch:
    columns = list(zip(*(row or (None, None) for row in rows), strict=True)) or [(), ()]
    arrow = arrow_of(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def changes_of(schema: TableSchema, changes: list[Change]) -> TableChanges:
    return TableChanges(
        schema.table,
        pa.array([0] * len(changes), pa.int32()),
        pa.array(range(len(changes)), pa.int64()),
        pa.array([int(op) for op, _, _ in changes], pa.int8()),
        batch_of(schema, [before for _, before, _ in changes]),
        batch_of(schema, [after for _, _, after in changes]),
    )


def rows_of(schema: TableSchema, *rows: Image) -> ArrowRows:
    return ArrowRows(pa.Table.from_batches([batch_of(schema, list(rows))]))


def pairs(rows: Any) -> list[tuple[Any, int]]:
    return sorted(tuple(row.values()) for batch in rows.batches() for row in batch.to_pylist())


def test_rows_that_the_log_leaves_alone_join_as_they_were_read() -> None:
    schema = schema_of(INT)
    rows = rows_of(schema, (1, 1), (5, 1))
    outside = changes_of(schema, [(Op.UPDATE, (10, 1), (11, 1)), (Op.INSERT, None, (12, 1))])
    for changes in ([], [outside]):
        joined = joined_rows(rows, iter(changes), schema, split_of(schema, KeyRange(None, (10,))))
        assert joined.rows is rows
        assert joined.touched is None


@pytest.mark.parametrize(
    "change",
    [(Op.UPDATE, (1, 1), (20, 1)), (Op.UPDATE, (20, 1), (1, 2)), (Op.DELETE, (1, 1), None)],
)
def test_a_change_on_either_side_of_the_range_is_replayed(change: Change) -> None:
    schema = schema_of(INT)
    rows = rows_of(schema, (5, 1)) if change[1] == (20, 1) else rows_of(schema, (1, 1), (5, 1))
    split = split_of(schema, KeyRange(None, (10,)))
    joined = joined_rows(rows, [changes_of(schema, [change])], schema, split)
    assert pairs(joined.rows) == ([(1, 2), (5, 1)] if change[1] == (20, 1) else [(5, 1)])


def test_what_is_touched_is_as_the_log_left_it_where_keys_cannot_be_compared() -> None:
    schema = schema_of(TEXT)
    rows = rows_of(schema, ("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1))
    changes = [
        changes_of(schema, [(Op.UPDATE, ("a", 1), ("A", 2)), (Op.INSERT, None, ("f", 1))]),
        changes_of(schema, [(Op.DELETE, ("b", 1), None), (Op.UPDATE, ("zz", 1), ("c", 9))]),
        changes_of(schema, [(Op.UPDATE, ("d", 1), ("d", 2)), (Op.UPDATE, ("d", 2), ("d", 3))]),
    ]
    joined = joined_rows(rows, changes, schema, split_of(schema, KeyRange(None, ("x",))))
    assert pairs(joined.rows) == [("A", 2), ("c", 9), ("d", 3), ("e", 1), ("f", 1)]
    assert joined.touched is not None
    assert sorted(joined.touched.column("k").to_pylist()) == [*"Aabcdf", "zz"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), max_size=30))
def test_rows_of_either_kind_of_key_are_the_table(
    steps: list[tuple[int, int, int]],
) -> None:
    """The read may have seen any part of the log, which is replayed from before it."""
    for schema, keys in ((schema_of(INT), range(10)), (schema_of(TEXT), "abcdefghij")):
        now: dict[Any, int] = {keys[n]: 0 for n in range(5)}
        seen = [dict(now)]
        log: list[Change] = []
        for number, (one, other, kind) in enumerate(steps, start=1):
            before, key = now.get(keys[one]), keys[other]
            if before is None:
                log.append((Op.INSERT, None, (keys[one], number)))
                now[keys[one]] = number
            elif kind == 0:
                log.append((Op.DELETE, (keys[one], before), None))
                del now[keys[one]]
            elif key == keys[one] or key not in now:
                log.append((Op.UPDATE, (keys[one], before), (key, number)))
                del now[keys[one]]
                now[key] = number
            seen.append(dict(now))
        read = seen[len(seen) // 2]
        changes = [changes_of(schema, log)] if log else []
        joined = joined_rows(
            rows_of(schema, *read.items()), changes, schema, split_of(schema, KeyRange())
        )
        assert pairs(joined.rows) == sorted(now.items())
