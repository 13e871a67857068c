"""Which rows of a batch's work the sink's node has changed, too."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.engine.sink.guard import _met, without_rows
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows, RowIdentity
from airflow_cdc_provider.engine.sink.selection import TableWork

TEXT = ColumnType("varchar", TypeKind.TEXT, KeyKind.TEXT)
NUMBER = ColumnType("int", TypeKind.INTEGER, KeyKind.INTEGER)


class AnyCase:
    """Takes texts for equal whatever their case, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def of(self, kind: ColumnType, texts: Sequence[str]) -> list[bytes]:
        self.asked += texts
        return [text.lower().encode() for text in texts]


def identity(kind: pa.DataType) -> RowIdentity:
    """Return the identity of rows whose key is one column; texts are equal in any case."""
    column = Column("k", TEXT if pa.types.is_string(kind) else NUMBER, nullable=False)
    return RowIdentity(TableSchema(TableId("d", "t"), (column,), ("k",)), AnyCase())


def work_of(deletes: list[Any], upserts: list[Any], kind: pa.DataType) -> TableWork:
    """Return work on a table whose key is one column of a kind."""
    plan = SimpleNamespace(
        target=SimpleNamespace(primary_key=("k",)),
        sink_table="d.t",
        schema=SimpleNamespace(table="d.t"),
    )
    return TableWork(
        cast("Any", plan),
        MergedChanges(
            pa.record_batch({"k": pa.array(deletes, kind)}),
            pa.record_batch({"k": pa.array(upserts, kind), "v": pa.array(upserts, kind)}),
        ),
    )


def keys(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, kind)})


def met(deletes: list[Any], upserts: list[Any], theirs: list[Any], kind: pa.DataType) -> list[Any]:
    found = _met(work_of(deletes, upserts, kind), [keys(theirs, kind)], identity(kind))
    return sorted(row["k"] for row in found.keys.to_pylist())


def test_deleted_and_written_keys_meet_those_of_the_sinks_node() -> None:
    assert met([1, 2], [3, 4], [2, 3, 9], pa.int32()) == [2, 3]
    assert met([1, 2], [], [9], pa.int32()) == []


def test_texts_meet_if_the_server_takes_them_for_equal() -> None:
    assert met(["a"], ["b", "D"], ["B", "c", "d"], pa.string()) == ["D", "b"]


def test_a_row_that_gets_another_spelling_is_one_row_as_it_is_written() -> None:
    assert met(["a", "x"], ["A"], ["a", "X"], pa.string()) == ["A", "x"]


def test_all_spellings_of_a_row_that_clashes_are_left_out() -> None:
    work = work_of(["a", "x"], ["A", "y"], pa.string())
    rows = KeyedRows(keys(["A"], pa.string()), identity(pa.string()))
    left = without_rows(work, rows)
    assert left.merged.deletes.column("k").to_pylist() == ["x"]
    assert left.merged.upserts.column("k").to_pylist() == ["y"]


def test_a_row_has_one_name_however_its_key_is_written() -> None:
    kind = ColumnType("double", TypeKind.FLOAT, KeyKind.OTHER)
    columns = (Column("k", TEXT, nullable=False), Column("d", kind, nullable=False))
    found = RowIdentity(TableSchema(TableId("d", "t"), columns, ("k", "d")), AnyCase())
    one, other, third = found.names(
        [{"k": "a", "d": 0.0}, {"d": -0.0, "k": "A", "gone": 1}, {"k": "a", "d": 1.0}]
    )
    assert one == other != third


def test_of_a_key_over_the_beginning_of_columns_only_that_counts() -> None:
    bytes_ = ColumnType("varbinary", TypeKind.BINARY, KeyKind.BINARY)
    columns = (Column("k", TEXT, nullable=False), Column("b", bytes_, nullable=False))
    schema = TableSchema(TableId("d", "t"), columns, ("k", "b"), (2, 1))
    rows = pa.record_batch(
        {"k": ["\u00c4bc", "\u00e4BX"], "b": pa.array([b"xy", b"xz"], pa.binary())}
    )
    texts, beginnings = RowIdentity(schema, AnyCase()).of(rows)
    assert texts.to_pylist() == ["\u00e4b".encode()] * 2
    assert beginnings.to_pylist() == [b"x"] * 2


def test_what_the_server_said_of_a_text_is_not_asked_again() -> None:
    weights = AnyCase()
    schema = TableSchema(TableId("d", "t"), (Column("k", TEXT, nullable=False),), ("k",))
    found = RowIdentity(schema, weights)
    for _ in range(2):
        (seen,) = found.of(keys(["a", "B", "a"], pa.string()))
        assert seen.to_pylist() == [b"a", b"b", b"a"]
    assert weights.asked == ["a", "B"]


def test_what_clashes_is_left_out_and_the_rest_stays() -> None:
    work = work_of([1, 2], [3, 4], pa.int32())
    left = without_rows(work, KeyedRows(keys([2, 3], pa.int32()), identity(pa.int32())))
    assert left.merged.deletes.column("k").to_pylist() == [1]
    assert left.merged.upserts.column("k").to_pylist() == [4]
    every = KeyedRows(keys([1, 2, 3, 4], pa.int32()), identity(pa.int32()))
    assert len(without_rows(work, every).merged) == 0
