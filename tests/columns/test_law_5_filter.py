"""Law 5: a change is applied iff it is not contained in the H of its key's split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.split_filter import filtered, owned, split_numbers
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit
from airflow_cdc_provider.core.stream_split import TableProgress
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.positions.transactions import (
    MySqlTransactionIndex,
    index_of,
)
from airflow_cdc_provider.systems.mysql.wire.key_values import key_at
from tests.systems.mysql.wire.strategies import TABLE, KeyedTable, keyed_tables, runs

UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562")


def _point(number: int, source: int, *, named: bool) -> MySqlPoint:
    gtid = Gtid(GtidSource(UUIDS[source]), number) if named else None
    start, end = BinlogPosition(1, number * 100), BinlogPosition(1, number * 100 + 99)
    return MySqlPoint(UUIDS[0], gtid, start, end, 0)


def _index(number: int) -> MySqlTransactionIndex:
    return index_of([_point(number, 0, named=False)])


@st.composite
def positions(draw: st.DrawFn, *, named: bool) -> MySqlPosition:
    binlog = BinlogPosition(1, draw(st.integers(0, 42)) * 100 + draw(st.sampled_from([0, 99])))
    if not named:
        return MySqlPosition(UUIDS[0], binlog)
    text = ",".join(
        f"{uuid}:{low}-{low + more}"
        for uuid in UUIDS
        for low, more in draw(
            st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=3)
        )
    )
    return MySqlPosition(UUIDS[0], binlog, GtidSet.parse(text))


@st.composite
def progresses(draw: st.DrawFn, table: KeyedTable, *, named: bool) -> TableProgress:
    """Progress with finished splits that cover every key, or with none."""
    prefixes = table.keys.map(lambda key: key[:1])
    bounds = sorted(draw(st.sets(table.keys | prefixes, max_size=5)))
    kinds = table.schema.key_kinds
    edges: list[Key | None] = [None, *bounds, None]
    finished = []
    for number, (start, end) in enumerate(pairwise(edges)):
        split = SnapshotSplit(
            table.schema.table, number, table.schema.primary_key, kinds, KeyRange(start, end)
        )
        high = draw(positions(named=named))
        finished.append(FinishedSplit(split, high, high))
    if draw(st.booleans()):
        finished = finished * draw(st.integers(0, 1))
    return TableProgress(table.schema.table, draw(positions(named=named)), tuple(finished))


@given(st.data(), st.booleans())
def test_law_5_columns_are_filtered_as_single_changes_are(
    data: st.DataObject,
    named: bool,
) -> None:
    table = data.draw(keyed_tables())
    rows = data.draw(st.dictionaries(table.keys, st.integers(0, 9), max_size=6))
    run = data.draw(runs(table, rows))
    progress = data.draw(progresses(table, named=named))
    unnamed_too = data.draw(st.booleans())
    points = [
        _point(
            number,
            data.draw(st.integers(0, 1)),
            named=named and not (unnamed_too and data.draw(st.booleans())),
        )
        for number in range(1, data.draw(st.integers(1, 40)) + 1)
    ]
    of = [data.draw(st.integers(0, len(points) - 1)) for _ in run]
    changes = table.changes(run, of)
    found = owned(changes, index_of(points), progress, table.schema.primary_key)
    expected = [
        tuple(key is not None and progress.owns(key, points[i]) for key in (old, new))
        for (_, old, new, _), i in zip(run, of, strict=True)
    ]
    assert list(zip(found.before.to_pylist(), found.after.to_pylist(), strict=True)) == expected


@given(st.data())
def test_a_key_is_found_in_the_split_whose_range_holds_it(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    progress = data.draw(progresses(table, named=False))
    keys = data.draw(st.lists(table.keys, min_size=1, max_size=20))
    starts = [f.split.keys.start for f in progress.finished if f.split.keys.start is not None]
    keys += [start for start in starts if len(start) == len(table.schema.primary_key)]
    rows = table.rows([(key, 0) for key in keys])
    columns = [rows.column(name) for name in table.schema.primary_key]
    if progress.finished:
        found = [progress.finished[i] for i in split_numbers(columns, progress)]
        assert found == [progress.split_of(key) for key in keys]


def _progress(table: KeyedTable) -> TableProgress:
    """Two splits, cut at 10: the left one settled at transaction 5, the right one at 8."""
    finished = []
    for number, (keys, settled) in enumerate(
        ((KeyRange(None, (10,)), 5), (KeyRange((10,), None), 8))
    ):
        split = SnapshotSplit(table.schema.table, number, ("id",), table.schema.key_kinds, keys)
        high = MySqlPosition(UUIDS[0], BinlogPosition(1, settled * 100 + 99))
        finished.append(FinishedSplit(split, high, high))
    start = MySqlPosition(UUIDS[0], BinlogPosition(1, 0))
    return TableProgress(table.schema.table, start, tuple(finished))


@pytest.mark.parametrize(
    ("transaction", "expected"),
    [
        (5, []),
        (6, [(Op.DELETE, 1)]),
        (9, [(Op.UPDATE, 20)]),
    ],
)
def test_a_key_move_between_splits_is_judged_by_each(
    transaction: int, expected: list[tuple[Op, int]]
) -> None:
    table = _int_table()
    changes = table.changes([(Op.UPDATE, (1,), (20,), 7)], [0])
    kept = filtered(changes, _index(transaction), _progress(table), ["id"])
    found = []
    for row, op in enumerate(kept.op.to_pylist()):
        side = kept.before if op == Op.DELETE else kept.after
        found.append((Op(op), key_at(side, row, table.key_columns)[0]))
    assert found == expected


def test_a_move_into_a_split_settled_earlier_is_an_insert_only() -> None:
    table = _int_table()
    changes = table.changes([(Op.UPDATE, (20,), (1,), 7)], [0])
    kept = filtered(changes, _index(7), _progress(table), ["id"])
    assert kept.op.to_pylist() == [Op.INSERT]
    assert kept.after.column("id").to_pylist() == [1]


def test_changes_that_are_all_kept_are_not_copied() -> None:
    table = _int_table()
    changes = table.changes([(Op.UPDATE, (20,), (1,), 7)], [0])
    kept = filtered(changes, _index(9), _progress(table), ["id"])
    assert kept is changes


def _int_table() -> KeyedTable:
    columns = (Column("id", mysql_type("int"), nullable=False), Column("value", mysql_type("int")))
    return KeyedTable(TableSchema(TABLE, columns, ("id",)), st.nothing())
