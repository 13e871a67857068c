"""Two systems that share no digest of their own, and whose keys may have orders of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.verify_port import BY_COLUMNS
from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.engine.verify.verify import verify
from tests.behaviours.column_source import ColumnSource

TEXT = ColumnType("text", TypeKind.TEXT, KeyKind.TEXT)
NUMBER = ColumnType("number", TypeKind.INTEGER, KeyKind.INTEGER)
HERE, THERE = TableId("shop", "users"), TableId("copy", "users")
USERS = TableSchema(
    HERE, (Column("name", TEXT, nullable=False), Column("age", NUMBER)), ("name",), (0,)
)


@dataclass(frozen=True)
class _Abilities:
    verifiable: bool = True


@dataclass
class ColumnSink(ColumnSource):
    """The same tables as a sink that can be compared."""

    abilities: _Abilities = field(default_factory=_Abilities)

    def target_of(self, schema: TableSchema, table: TableId, _shape: TableShape) -> TableSchema:
        return replace(schema, table=table)


def compared(source: pa.Table, sink: pa.Table, schema: TableSchema = USERS) -> TableVerdict:
    plan = TablePlan.alike(schema, THERE, 0)
    here: Any = ColumnSource({HERE: (schema, source)})
    there: Any = ColumnSink({THERE: (plan.target, sink)})
    (table,) = verify(here, there, [plan], values=True).tables
    return table


def users(*rows: tuple[str, int | None], age: pa.DataType | None = None) -> pa.Table:
    names, ages = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"name": pa.array(names, pa.string()), "age": pa.array(ages, age or pa.int8())})


def test_texts_as_keys_are_compared_whatever_order_each_system_has() -> None:
    rows = [(f"{name}{number}", number) for number in range(40) for name in ("a", "B", "é", "")]
    table = compared(users(*rows), users(*reversed(rows)))
    assert (table.equal, table.equal_rows, table.digest) == (True, 160, BY_COLUMNS)
    table = compared(users(*rows), users(("A3", 3), *rows[1:], ("a7 ", None)))
    found = {(each.kind.value, each.key) for each in table.samples}
    assert found == {("missing", "a0"), ("extra", "A3"), ("extra", '"a7 "')}
    assert set(table.differing_keys) == {("a0",), ("A3",), ("a7 ",)}


def test_a_value_is_equal_whatever_type_each_system_has_for_it() -> None:
    rows = [("a", 1), ("b", None), ("c", -3)]
    for kind in (pa.int64(), pa.decimal128(20, 3)):
        assert compared(users(*rows), users(*rows, age=kind)).equal
    table = compared(users(*rows), users(("a", 1), ("b", 0), ("c", -3), age=pa.int64()))
    (sample,) = table.samples
    assert [str(each) for each in sample.columns] == ["age: NULL at the source, '0' at the sink"]


def test_json_is_compared_by_its_meaning() -> None:
    kind = ColumnType("json", TypeKind.JSON, KeyKind.OTHER)
    schema = replace(USERS, columns=(USERS.columns[0], Column("age", kind)))
    here = pa.table({"name": ["a", "b"], "age": ['{"x": 1, "y": 2.0}', "[1]"]})
    there = pa.table({"name": ["a", "b"], "age": ['{"y":2,"x":1}', "[1 ]"]})
    assert compared(here, there, schema).equal
    there = pa.table({"name": ["a", "b"], "age": ['{"y":2,"x":1}', "[2]"]})
    (sample,) = compared(here, there, schema).samples
    assert [str(each) for each in sample.columns] == ["age: '[1]' at the source, '[2]' at the sink"]


def test_tables_without_rows_are_equal() -> None:
    assert compared(users(), users()).equal
    assert compared(users(("a", 1)), users()).missing == 1


def test_a_value_without_a_canonical_form_is_refused() -> None:
    schema = replace(
        USERS,
        columns=(
            USERS.columns[0],
            Column("age", ColumnType("list", TypeKind.OTHER, KeyKind.OTHER)),
        ),
    )
    lists = pa.table({"name": ["a"], "age": pa.array([[1]], pa.list_(pa.int8()))})
    with pytest.raises(ValueRefusedError, match="cannot be compared between systems"):
        compared(lists, lists, schema)
