"""Two definitions compared; what real servers say of theirs is compared in the sinks' tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches

ID = Column("id", mysql_type("int"), nullable=False)


def of(kind: ColumnType) -> TableSchema:
    return TableSchema(TableId("shop", "t"), (ID, Column("v", kind)), ("id",))


def found(source: ColumnType, sink: ColumnType) -> list[str]:
    return [str(mismatch) for mismatch in mismatches(of(source), of(sink))]


def test_the_same_definition_has_no_mismatch() -> None:
    assert found(mysql_type("set", members=("a",)), mysql_type("set", members=("a",))) == []


def test_members_are_written_out_with_their_quotes() -> None:
    source, sink = (mysql_type("enum", members=m) for m in (("it's", "b"), ("b",)))
    assert found(source, sink) == ["column v is enum('b'), at the source it is enum('it''s','b')"]


def test_members_that_differ_behind_a_long_list_are_named_by_their_number() -> None:
    many = tuple(f"member {number}" for number in range(100))
    source = mysql_type("enum", members=(*many, "last", "one more"))
    sink = mysql_type("enum", members=(*many, "other"))
    assert found(source, sink) == [
        "column v is enum of 101 members, the one at 101 'other', "
        "at the source it is enum of 102 members, the one at 101 'last'"
    ]
    shorter = replace(sink, members=many)
    assert found(source, shorter) == [
        "column v is enum of 100 members, the one at 101 missing, "
        "at the source it is enum of 102 members, the one at 101 'last'"
    ]


def test_a_key_prefix_is_shown_where_it_is_what_differs() -> None:
    source = TableSchema(TableId("shop", "t"), (ID,), ("id",), key_prefixes=(7,))
    (mismatch,) = mismatches(source, replace(source, key_prefixes=()))
    assert str(mismatch) == "its primary key is (id), the source's is (id(7))"


def test_a_float_that_rounds_does_not_hold_one_that_does_not() -> None:
    rounding = mysql_type("float", precision=7, scale=3)
    assert found(mysql_type("float"), rounding) == [
        "column v is float(7,3), at the source it is float"
    ]
    assert found(rounding, mysql_type("float")) == []


NARROW_AND_WIDE = [
    (mysql_type("int"), mysql_type("bigint")),
    (mysql_type("enum", members=("a",)), mysql_type("enum", members=("a", "b"))),
    (
        mysql_type("decimal", precision=8, scale=2),
        mysql_type("decimal", precision=10, scale=2),
    ),
    (mysql_type("text", charset="latin1"), mysql_type("longtext", charset="latin1")),
    (mysql_type("tinyblob"), mysql_type("blob")),
]


@pytest.mark.parametrize(("narrow", "wide"), NARROW_AND_WIDE)
def test_a_shared_table_may_have_the_wider_type_that_another_table_needs(
    narrow: ColumnType, wide: ColumnType
) -> None:
    assert found(narrow, wide)
    assert not list(mismatches(of(narrow), of(wide), may_be_wider=True))
    assert list(mismatches(of(wide), of(narrow), may_be_wider=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (mysql_type("int"), mysql_type("int", unsigned=True)),
        (mysql_type("enum", members=("a", "b")), mysql_type("enum", members=("b", "a"))),
        (
            mysql_type("decimal", precision=8, scale=2),
            mysql_type("decimal", precision=9, scale=3),
        ),
        (mysql_type("float", precision=7, scale=3), mysql_type("float")),
        (mysql_type("text", charset="latin1"), mysql_type("text", charset="latin2")),
    ],
)
def test_two_types_of_a_shared_table_of_which_one_would_alter_values_do_not_go_together(
    one: ColumnType, other: ColumnType
) -> None:
    assert list(mismatches(of(other), of(one), may_be_wider=True))
