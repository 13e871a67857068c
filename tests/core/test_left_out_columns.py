"""Which columns of a changed table are left out, by the definitions and by what the log says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.schema_changes import names_behind, with_left_out
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
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


SAME = {name: name for name in ("id", "old", "out")}


def left_out(
    now: TableSchema,
    names: Mapping[str, str] | None = SAME,
    *,
    ignores: bool = True,
    at_sink: Collection[str] = ("id", "old"),
) -> set[str]:
    return {*with_left_out(BEFORE, now, names, ignores=ignores, at_sink=at_sink).ignored}


def test_what_is_new_is_left_out_beside_what_was() -> None:
    now = table("id", "old", "out", "new")
    assert left_out(now) == {"out", "new"}
    assert left_out(now, ignores=False) == {"out"}
    assert left_out(now, None) == {"out", "new"}


def test_a_column_that_is_left_out_stays_so_under_another_name() -> None:
    assert left_out(table("id", "old", "Away"), SAME | {"out": "away"}, ignores=False) == {"Away"}


def test_a_copied_column_that_takes_the_name_of_one_that_is_gone_is_copied() -> None:
    assert left_out(table("id", "out"), SAME | {"old": "out"}) == set()


def test_none_is_left_out_where_a_copied_one_may_have_its_name() -> None:
    now = table("id", "out", "new")
    assert left_out(now, None) == set()
    assert left_out(now) == {"out", "new"}
    assert left_out(table("id", "old", "new"), None) == {"new"}


def test_a_column_whose_name_the_sink_has_is_copied() -> None:
    now = table("id", "old", "out", "Kept")
    assert left_out(now, at_sink=("id", "old", "kept")) == {"out"}
    assert left_out(now, at_sink=("id", "old", "out"), ignores=False) == set()
    assert left_out(now, None, at_sink=("id", "old", "kept", "out")) == set()


def test_a_key_column_is_never_left_out() -> None:
    now = table("id", "old", "out")
    assert left_out(now, SAME | {"id": "former"}, at_sink=()) == {"out"}


def test_what_columns_are_called_is_told_by_alters_that_follow_each_other() -> None:
    first, second = renaming(("old", "free")), renaming(("OUT", "old"))
    assert names_behind(BEFORE, [first, second]) == {"id": "id", "old": "free", "out": "old"}
    assert names_behind(BEFORE, [renaming(("old", "out"), ("out", "old"))]) == {
        "id": "id",
        "old": "out",
        "out": "old",
    }
    doubtful = replace(second, is_doubtful=True)
    assert names_behind(BEFORE, [first, doubtful]) is None
    assert names_behind(BEFORE, [StatementEffect(StatementKind.RENAME)]) is None
    assert names_behind(BEFORE, []) is None


def renaming(*pairs: tuple[str, str]) -> StatementEffect:
    return StatementEffect(StatementKind.ALTER, column_renames=pairs)


def test_what_is_left_out_is_no_part_of_what_is_copied_nor_of_the_fingerprint() -> None:
    whole = table("id", "old", "out", unique=("out", "old"))
    marked = whole.ignoring({"out"})
    assert marked.fingerprint == whole.fingerprint
    assert [column.name for column in marked.copied_columns] == ["id", "old"]
    assert marked.as_copied == table("id", "old")
    assert marked.ignoring(()) == whole
