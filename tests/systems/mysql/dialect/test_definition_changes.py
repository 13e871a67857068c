"""Which changes of a definition leave every value as the log says."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.dialect.definition_changes import (
    difference,
    other_defaults,
    widens,
)

WIDER = [
    (mysql_type("int"), mysql_type("bigint")),
    (mysql_type("int", unsigned=True), mysql_type("bigint")),
    (mysql_type("decimal", precision=9, scale=2), mysql_type("decimal", precision=12, scale=4)),
    (
        mysql_type("varchar", length=9, charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("varchar", length=10, charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (
        mysql_type("varchar", length=9, charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("text", charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (mysql_type("tinyblob"), mysql_type("blob")),
    (mysql_type("datetime", fraction=3), mysql_type("datetime", fraction=6)),
    (
        mysql_type("enum", members=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("enum", members=("a", "b", "c"), charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (
        mysql_type("varchar", length=9, charset="utf8mb3"),
        mysql_type("varchar", length=9, charset="utf8mb4"),
    ),
]
NOT_WIDER = [
    (mysql_type("int", unsigned=True), mysql_type("int")),
    (mysql_type("int"), mysql_type("bigint", unsigned=True)),
    (
        mysql_type("int"),
        mysql_type("varchar", length=20, charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (mysql_type("decimal", precision=9, scale=2), mysql_type("decimal", precision=10, scale=4)),
    (
        mysql_type("varchar", length=9, charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("char", length=9, charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (
        mysql_type("varchar", length=500, charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("tinytext", charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (
        mysql_type("varchar", length=9, charset="latin1"),
        mysql_type("varchar", length=9, charset="utf8mb4", collation="utf8mb4_bin"),
    ),
    (mysql_type("float"), mysql_type("double")),
    (mysql_type("datetime"), mysql_type("timestamp")),
    (mysql_type("enum", members=("a", "b")), mysql_type("enum", members=("b", "a", "c"))),
    (
        mysql_type("longtext", charset="utf8mb4", collation="utf8mb4_bin"),
        mysql_type("longtext", is_json_text=True, charset="utf8mb4", collation="utf8mb4_bin"),
    ),
]


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_a_wider_type_holds_each_value_as_it_is(old: ColumnType, new: ColumnType) -> None:
    assert widens(old, new)


@pytest.mark.parametrize(("old", "new"), [*NOT_WIDER, *((new, old) for old, new in WIDER)])
def test_any_other_type_may_convert_values(old: ColumnType, new: ColumnType) -> None:
    assert not widens(old, new)


@pytest.mark.parametrize(
    ("stated", "kind", "is_constant"),
    [
        ("int DEFAULT NULL", mysql_type("int"), True),
        ("int NOT NULL", mysql_type("int"), True),
        ("int NOT NULL DEFAULT '7'", mysql_type("int"), True),
        ("date NOT NULL DEFAULT '2020-01-02'", mysql_type("date"), True),
        ("text", mysql_type("text", charset="utf8mb4", collation="utf8mb4_bin"), True),
        ("date NOT NULL", mysql_type("date"), False),
        ("json NOT NULL", mysql_type("json"), False),
        ("timestamp NOT NULL DEFAULT '2020-01-02 03:04:05'", mysql_type("timestamp"), False),
        ("double NOT NULL DEFAULT '1.5'", mysql_type("double"), False),
        ("datetime DEFAULT CURRENT_TIMESTAMP", mysql_type("datetime"), False),
        (
            "varchar(40) DEFAULT (uuid())",
            mysql_type("varchar", length=40, charset="utf8mb4", collation="utf8mb4_bin"),
            False,
        ),
        ("int NOT NULL AUTO_INCREMENT", mysql_type("int"), False),
        ("text DEFAULT 'x'", mysql_type("text", charset="utf8mb4", collation="utf8mb4_bin"), False),
    ],
)
def test_a_new_column_needs_no_read_if_each_row_has_the_same(
    stated: str, kind: ColumnType, is_constant: bool
) -> None:
    column = Column("more", kind, nullable="NOT NULL" not in stated)
    found = difference(table(()), table(((column, stated),)), [added()])
    assert (found.added, found.why == "") == (("more",), is_constant)


@pytest.mark.parametrize(
    ("kind", "one", "other", "is_another"),
    [
        ("int", "int NOT NULL DEFAULT '7'", "int NOT NULL DEFAULT 7", False),
        ("decimal", "decimal(5,2) DEFAULT '7.00'", "decimal(5,2) DEFAULT 7.0", False),
        ("int", "int DEFAULT 7", "int DEFAULT 8", True),
        ("int", "int DEFAULT NULL", "int", False),
        ("int", "int DEFAULT NULL", "int DEFAULT 0", True),
        ("varchar", "varchar(9) DEFAULT '7'", "varchar(9) DEFAULT '7.0'", True),
        ("varchar", "varchar(9) DEFAULT 'a:b.0'", "varchar(9) DEFAULT 'a:b'", True),
        ("varchar", "varchar(9) DEFAULT ''", "varchar(9) DEFAULT NULL", True),
        ("time", "time(3) DEFAULT '10:00:00.500'", "time(3) DEFAULT '10:00:00.5'", False),
        ("time", "time DEFAULT '10:00:00'", "time DEFAULT '10:00:10'", True),
    ],
)
def test_a_default_is_another_by_its_value_not_by_how_it_is_spelled(
    kind: str, one: str, other: str, is_another: bool
) -> None:
    column = Column("more", mysql_type(kind), nullable="NOT NULL" not in one)
    first, second = (table(((column, stated),)) for stated in (one, other))
    assert [*other_defaults(first, second, ["more"])] == (["more"] if is_another else [])


def added() -> StatementEffect:
    return effect_of("ALTER TABLE t ADD COLUMN more INT", default_database="shop")


def table(more: tuple[tuple[Column, str], ...]) -> TableSchema:
    columns = (Column("id", mysql_type("int"), nullable=False), *(column for column, _ in more))
    lines = ["`id` int NOT NULL", *(f"`{column.name}` {stated}" for column, stated in more)]
    return TableSchema(
        TableId("shop", "t"),
        columns,
        ("id",),
        create_statement=f"CREATE TABLE `t` ({', '.join(lines)}, PRIMARY KEY (`id`))",
    )
