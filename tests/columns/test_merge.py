"""Merging a run of changes leaves what applying them one by one would have left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.merge import MergedChanges, merge
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.wire.key_values import key_at
from tests.systems.mysql.wire.strategies import TABLE, KeyedTable, keyed_tables, rows_by_key, runs


def applied(table: KeyedTable, rows: dict[Key, int], merged: MergedChanges) -> dict[Key, int]:
    """Do to a dict what a sink does: deletes first, then upserts."""
    found = dict(rows)
    for row in range(merged.deletes.num_rows):
        found.pop(key_at(merged.deletes, row, table.key_columns), None)
    return found | rows_by_key(table, merged.upserts)


@given(st.data())
def test_merged_changes_leave_what_single_changes_leave(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    rows = data.draw(st.dictionaries(table.keys, st.integers(0, 9), max_size=5))
    after = dict(rows)
    run = data.draw(runs(table, after))
    cut = data.draw(st.integers(0, len(run)))
    parts = [table.changes(part) for part in (run[:cut], run[cut:])]
    merged = merge(parts, table.schema.primary_key)
    assert applied(table, rows, merged) == after


@given(st.data())
def test_no_key_is_both_deleted_and_written(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    run = data.draw(runs(table, {}))
    merged = merge([table.changes(run)], table.schema.primary_key)
    deleted = {key_at(merged.deletes, i, table.key_columns) for i in range(merged.deletes.num_rows)}
    assert deleted.isdisjoint(rows_by_key(table, merged.upserts))


def _text_keyed() -> TableSchema:
    columns = (
        Column("id", mysql_type("varchar", length=9, charset="utf8mb4"), nullable=False),
        Column("value", mysql_type("int")),
    )
    return TableSchema(TABLE, columns, primary_key=("id",))


def _text_changes(run: Sequence[tuple[Op, str | None, str | None]]) -> TableChanges:
    table = KeyedTable(_text_keyed(), st.nothing())
    keyed = [
        (op, None if old is None else (old,), None if new is None else (new,), i)
        for i, (op, old, new) in enumerate(run)
    ]
    return table.changes(keyed)


def test_a_new_spelling_of_a_key_deletes_the_old_spelling_and_writes_the_new_one() -> None:
    run = [(Op.INSERT, None, "a"), (Op.UPDATE, "a", "A"), (Op.UPDATE, "A", "A ")]
    merged = merge([_text_changes(run)], ["id"])
    assert merged.deletes.column("id").to_pylist() == ["a", "A"]
    assert merged.upserts.column("id").to_pylist() == ["A "]


def test_upserts_stand_in_the_order_of_their_last_change() -> None:
    run = [
        (Op.INSERT, None, "x"),
        (Op.INSERT, None, "y"),
        (Op.INSERT, None, "z"),
        (Op.UPDATE, "x", "x"),
    ]
    merged = merge([_text_changes(run)], ["id"])
    assert merged.upserts.column("id").to_pylist() == ["y", "z", "x"]


def test_rows_of_every_column_survive_the_merge() -> None:
    count = 1000
    rng = np.random.default_rng(7)
    rows = pa.RecordBatch.from_pydict(
        {"id": rng.integers(0, 100, count), "note": [f"n{i}" for i in range(count)]}
    )
    changes = TableChanges(
        TABLE,
        pa.array(np.zeros(count, np.int32)),
        pa.array(np.arange(count)),
        pa.array(np.full(count, int(Op.UPDATE), np.int8)),
        rows,
        rows,
    )
    merged = merge([changes], ["id"])
    last = dict(zip(rows.column("id").to_pylist(), rows.column("note").to_pylist(), strict=True))
    assert (
        dict(zip(*(column.to_pylist() for column in merged.upserts.columns), strict=True)) == last
    )
