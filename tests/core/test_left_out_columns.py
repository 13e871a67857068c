"""Which columns of a changed table are left out, by the definitions and by what the log says."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.schema_changes import Difference, with_left_out
from airflow_cdc_provider.core.table_schema import (
    Column,
    ColumnType,
    TableSchema,
    TypeKind,
    UniqueKey,
)

INT = ColumnType("int", TypeKind.INTEGER, KeyKind.INTEGER)


def table(*names: str, unique: tuple[str, ...] = ()) -> TableSchema:
    keys = (UniqueKey("u", unique),) if unique else ()
    columns = tuple(Column(name, INT) for name in names)
    return TableSchema(TableId("shop", "a"), columns, ("id",), unique_keys=keys)


BEFORE = table("id", "old", "out").ignoring({"out"})


def left_out(now: TableSchema, whole: Difference, *, ignores: bool, is_told: bool) -> set[str]:
    return {*with_left_out(BEFORE, now, whole, ignores=ignores, is_told=is_told).ignored}


def test_what_is_new_is_left_out_beside_what_was() -> None:
    now, whole = table("id", "old", "out", "new"), Difference(added=("new",))
    assert left_out(now, whole, ignores=True, is_told=True) == {"out", "new"}
    assert left_out(now, whole, ignores=False, is_told=True) == {"out"}


def test_a_column_that_is_left_out_stays_so_under_another_name() -> None:
    whole = Difference(renamed=(("out", "away"),))
    assert left_out(table("id", "old", "away"), whole, ignores=False, is_told=True) == {"away"}


def test_a_copied_column_that_takes_the_name_of_one_that_is_gone_is_copied() -> None:
    whole = Difference(renamed=(("old", "out"),), dropped=("out",))
    assert left_out(table("id", "out"), whole, ignores=True, is_told=True) == set()


def test_none_is_left_out_where_a_copied_one_may_have_its_name() -> None:
    whole = Difference(added=("new",), dropped=("old",))
    now = table("id", "out", "new")
    assert left_out(now, whole, ignores=True, is_told=False) == set()
    assert left_out(now, whole, ignores=True, is_told=True) == {"out", "new"}
    gone = Difference(added=("new",), dropped=("out",))
    assert left_out(table("id", "old", "new"), gone, ignores=True, is_told=False) == {"new"}


def test_a_key_column_is_never_left_out() -> None:
    whole = Difference(added=("id",))
    assert left_out(table("id", "old", "out"), whole, ignores=True, is_told=True) == {"out"}


def test_what_is_left_out_is_no_part_of_what_is_copied_nor_of_the_fingerprint() -> None:
    whole = table("id", "old", "out", unique=("out", "old"))
    marked = whole.ignoring({"out"})
    assert marked.fingerprint == whole.fingerprint
    assert [column.name for column in marked.copied_columns] == ["id", "old"]
    assert marked.as_copied == table("id", "old")
    assert marked.ignoring(()) == whole
