"""Law 3: after backfill a split is its table at H."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.backfill import replay
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.row_keys import in_range
from airflow_cdc_provider.core.errors import SchemaMovedError
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema
from tests.systems.mysql.wire.strategies import (
    TABLE,
    KeyedTable,
    key_ranges,
    keyed_tables,
    rows_by_key,
    runs,
)


@given(st.data())
def test_law_3_rows_read_anywhere_between_l_and_h_become_the_table_at_h(
    data: st.DataObject,
) -> None:
    table = data.draw(keyed_tables())
    at_low = data.draw(st.dictionaries(table.keys, st.integers(0, 9), max_size=6))
    keys = data.draw(key_ranges(table))
    seen = dict(at_low)
    before_read = data.draw(runs(table, seen))
    at_high = dict(seen)
    after_read = data.draw(runs(table, at_high))
    read = [(key, value) for key, value in seen.items() if keys.contains(key)]
    batches = [table.rows(read[:2]), table.rows(read[2:])]  # as a split comes in several chunks
    rows = pa.Table.from_batches(batches)
    changes = [table.changes(before_read), table.changes(after_read)]
    found = rows_by_key(table, replay(rows, changes, table.schema, keys))
    assert found == {key: value for key, value in at_high.items() if keys.contains(key)}


@given(st.data())
def test_a_key_lies_in_a_range_for_columns_as_for_one_key(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    keys = data.draw(key_ranges(table))
    drawn = data.draw(st.lists(table.keys, min_size=1))
    rows = table.rows([(key, 0) for key in drawn])
    columns = [rows.column(name) for name in table.schema.primary_key]
    assert in_range(columns, keys).tolist() == [keys.contains(key) for key in drawn]


def _table() -> KeyedTable:
    columns = (Column("id", mysql_type("int"), nullable=False), Column("value", mysql_type("int")))
    return KeyedTable(TableSchema(TABLE, columns, ("id",)), st.nothing())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (15, 16, {16: 7}),
        (15, 30, {}),
        (5, 16, {15: 1, 16: 7}),
        (5, 30, {15: 1}),
    ],
)
def test_a_key_move_is_judged_by_the_old_and_by_the_new_range(
    old: int, new: int, expected: dict[int, int]
) -> None:
    table = _table()
    rows = pa.Table.from_batches([table.rows([((15,), 1)])])
    changes = table.changes([(Op.UPDATE, (old,), (new,), 7)])
    replayed = replay(rows, [changes], table.schema, KeyRange((10,), (20,)))
    assert rows_by_key(table, replayed) == {(key,): value for key, value in expected.items()}


def test_a_key_is_replaced_in_whichever_chunk_it_was_read() -> None:
    table = _table()
    chunks = [[((1,), 1), ((2,), 2)], [((3,), 3), ((4,), 4)], [((5,), 5)]]
    rows = pa.Table.from_batches([table.rows(chunk) for chunk in chunks])
    changes = table.changes([(Op.DELETE, (4,), None, 0), (Op.UPDATE, (5,), (5,), 50)])
    replayed = replay(rows, [changes], table.schema, KeyRange())
    assert rows_by_key(table, replayed) == {(1,): 1, (2,): 2, (3,): 3, (5,): 50}


def test_changes_with_another_definition_are_refused() -> None:
    table = _table()
    wider = (Column("id", mysql_type("bigint"), nullable=False), Column("value", mysql_type("int")))
    other = KeyedTable(TableSchema(TABLE, wider, ("id",)), st.nothing())
    changes = other.changes([(Op.DELETE, (1,), None, 0)])
    rows = arrow_schema(table.schema.columns).empty_table()
    with pytest.raises(SchemaMovedError, match="column id"):
        replay(rows, [changes], table.schema, KeyRange())


def test_generated_columns_of_the_log_are_left_out() -> None:
    table = _table()
    doubled = Column("doubled", mysql_type("int"), generated=True)
    logged = KeyedTable(TableSchema(TABLE, (*table.schema.columns, doubled), ("id",)), st.nothing())
    schema = logged.schema
    changes = table.changes([(Op.INSERT, None, (1,), 5)])
    after = changes.after.append_column("doubled", pa.array([10], pa.int32()))
    before = changes.before.append_column("doubled", pa.array([None], pa.int32()))
    wide = type(changes)(TABLE, changes.transaction, changes.ordinal, changes.op, before, after)
    rows = arrow_schema(schema.copied_columns).empty_table()
    assert replay(rows, [wide], schema, KeyRange()).to_pylist() == [{"id": 1, "value": 5}]
