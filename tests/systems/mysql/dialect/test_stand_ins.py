"""Types that a sink lacks have others there that hold each of their values."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import AllOf, Comparator, Comparison, IsNull, Not
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.systems.mysql.dialect.addresses import canonical_text
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import (
    carried,
    lacked_types,
    named_type,
    named_types,
    require_as_printed,
    stand_in,
    stands_in,
)
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import sink_create_statement
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches

TABLE = TableId("shop", "hosts")
UUID, INET4, INET6 = mysql_type("uuid"), mysql_type("inet4"), mysql_type("inet6")
VECTOR = mysql_type("vector", length=3)
ALL = frozenset({"uuid", "inet4", "inet6", "vector"})


def text(name: str, length: int, collation: str = "ascii_bin") -> ColumnType:
    charset = collation.partition("_")[0]
    return mysql_type(name, length=length, charset=charset, collation=collation)


def hosts(*lines: str, flavour: str = "mariadb", generated: str = "") -> TableSchema:
    """Return a table with a column of each type, and more lines in its definition."""
    columns = [Column("u", UUID, nullable=False), Column("i", INET6), Column("v", VECTOR)]
    columns += [Column(name, INET6, generated=True) for name in generated]
    body = ",\n  ".join(
        (
            "`u` uuid NOT NULL DEFAULT uuid()",
            "`i` inet6 DEFAULT '::1' COMMENT 'its, (address)' CHECK (`i` <> '::2')",
            "`v` vector(3) DEFAULT (to_vector('[1,2,3]'))",
            *lines,
            "PRIMARY KEY (`u`)",
            "UNIQUE KEY `of_i` (`i`)",
            "CONSTRAINT `c` CHECK (`i` <> '::')",
        )
    )
    return TableSchema(
        TABLE,
        tuple(columns),
        ("u",),
        create_statement=f"CREATE TABLE `hosts` (\n  {body}\n) ENGINE=InnoDB",
        flavour=flavour,
    )


def test_a_definition_has_types_that_hold_every_value() -> None:
    plan = carried(TablePlan.alike(hosts(), TABLE, 0), ALL)
    made = sink_create_statement(plan.written, TABLE, sink_flavour="mysql")
    assert made == (
        "CREATE TABLE `shop`.`hosts` (\n"
        "  `u` char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n"
        "  `i` varchar(39) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '::1' "
        "COMMENT 'its, (address)',\n"
        "  `v` blob,\n"
        "  PRIMARY KEY (`u`)\n) ENGINE=InnoDB"
    )


def test_a_definition_of_types_that_the_sink_has_stays() -> None:
    plan = TablePlan.alike(hosts(), TABLE, 0)
    assert carried(plan, frozenset({"inet4"})) is plan


def test_a_sink_of_the_same_family_and_an_older_version_gets_the_defaults() -> None:
    plan = carried(TablePlan.alike(hosts(), TABLE, 0), frozenset({"uuid"}))
    made = sink_create_statement(plan.written, TABLE, sink_flavour="mariadb")
    assert "`u` char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT uuid()" in made
    assert "`i` inet6 DEFAULT '::1'" in made
    assert "CONSTRAINT" in made or "CHECK (`i` <> '::')" in made


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("`g` inet6 GENERATED ALWAYS AS ('::1') VIRTUAL", "g is computed, and the sink does not"),
        ("`g` inet6 GENERATED ALWAYS AS (`i`) STORED", "g is computed, and the sink does not"),
    ],
)
def test_a_computed_column_of_such_a_type_is_refused_by_name(line: str, why: str) -> None:
    with pytest.raises(UnsupportedTableError, match=why):
        carried(TablePlan.alike(hosts(line, generated="g"), TABLE, 0), ALL)


@pytest.mark.parametrize(
    ("family", "is_mariadb", "version", "lacked"),
    [
        ("mariadb", False, (9, 7, 0), {"uuid", "inet4", "inet6"}),
        ("mysql", False, (8, 4, 0), ALL),
        ("mysql", False, (9, 0, 0), {"uuid", "inet4", "inet6"}),
        ("mysql", True, (10, 11, 0), {"vector"}),
        ("mysql", True, (12, 0, 0), {"vector"}),
        ("mariadb", True, (11, 7, 0), {"vector"}),
        ("mariadb", True, (11, 7, 1), set()),
        ("mariadb", True, (10, 9, 9), {"inet4", "vector"}),
        ("mariadb", True, (10, 6, 0), {"uuid", "inet4", "vector"}),
    ],
)
def test_what_a_server_lacks_is_known_by_its_family_and_version(
    family: str, is_mariadb: bool, version: tuple[int, int, int], lacked: set[str]
) -> None:
    assert lacked_types(family, is_mariadb=is_mariadb, version=version) == lacked


@pytest.mark.parametrize("kind", [UUID, INET4, INET6, VECTOR, mysql_type("vector", length=16383)])
def test_what_stands_in_for_a_type_holds_all_of_its_values(kind: ColumnType) -> None:
    assert stands_in(stand_in(kind), kind)


@pytest.mark.parametrize(
    ("named", "kind", "why"),
    [
        ("char(35)", UUID, r"char\(35\) does not hold every UUID; .* is char\(36\)"),
        ("varchar(14)", INET4, r"every INET4; the smallest that does is varchar\(15\)"),
        ("varchar(38)", INET6, r"every INET6; the smallest that does is varchar\(39\)"),
        ("varbinary(16)", INET6, r"every INET6; the smallest that does is varchar\(39\)"),
        ("blob", UUID, r"every UUID; the smallest that does is char\(36\)"),
        ("varbinary(11)", VECTOR, r"every VECTOR\(3\); .* is varbinary\(12\)"),
        ("varchar(99)", VECTOR, r"every VECTOR\(3\); .* is varbinary\(12\)"),
        ("tinyblob", mysql_type("vector", length=64), r"is varbinary\(256\)"),
        ("text", UUID, "'text' is no type that can be named: write char"),
        ("varchar", UUID, "is no type that can be named"),
        ("char(36) binary", UUID, "is no type that can be named"),
        ("varchar(0)", UUID, "a varchar has a length of 1 to 16383"),
        ("char(256)", UUID, "a char has a length of 1 to 255"),
        ("bigint", mysql_type("int"), "it is int, and another type can be named for UUID"),
        ("char(36)", text("char", 36), r"it is char\(36\), and another type can be named for"),
    ],
)
def test_a_type_that_is_named_has_to_hold_every_value(
    named: str, kind: ColumnType, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        named_type(named, kind)


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("char(36)", UUID),
        ("varchar(255)", UUID),
        ("varchar(39)", INET6),
        ("char(15)", INET4),
        ("varbinary(12)", VECTOR),
        ("tinyblob", VECTOR),
        ("longblob", VECTOR),
    ],
)
def test_a_type_that_holds_every_value_may_be_named(named: str, kind: ColumnType) -> None:
    assert stands_in(named_type(named, kind), kind)


def test_the_types_of_a_shape_are_those_of_the_sinks_columns() -> None:
    shape = TableShape((OutputColumn("ip", "i", type="varchar(45)"),), others=True)
    assert named_types(hosts(), shape) == {"ip": text("varchar", 45)}
    assert TableShape.from_json(shape.to_json()) == shape
    with pytest.raises(ValueError, match=r"the type of u of shop\.hosts: blob does not hold"):
        named_types(hosts(), TableShape((OutputColumn("u", "u", type="blob"),), others=True))


def test_a_shape_that_was_stored_before_types_were_named_has_none() -> None:
    form = dict(TableShape((OutputColumn("ip", "i"),), others=True).to_json())
    (column,) = form["columns"]
    form["columns"] = [{name: value for name, value in column.items() if name != "type"}]
    assert TableShape.from_json(form).columns == (OutputColumn("ip", "i"),)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (text("char", 36), set()),
        (text("varchar", 50, "utf8mb4_bin"), set()),
        (text("varchar", 50, "utf8mb4_general_ci"), {"key column u has the collation "}),
        (text("varchar", 35), {"column u is varchar(35)"}),
        (mysql_type("binary", length=36), {"column u is binary(36)"}),
        (mysql_type("text", charset="ascii", collation="ascii_bin"), {"column u is text"}),
    ],
)
def test_a_table_that_is_there_may_hold_uuids_as_texts(kind: ColumnType, found: set[str]) -> None:
    table = TableSchema(TABLE, (Column("u", UUID, nullable=False),), ("u",), flavour="mariadb")
    there = TableSchema(TABLE, (Column("u", kind, nullable=False),), ("u",), flavour="mysql")
    told = [str(each) for each in mismatches(table, there)]
    assert len(told) == len(found)
    assert all(any(one.startswith(start) for start in found) for one in told)


@pytest.mark.parametrize(
    ("kind", "written", "canonical"),
    [
        ("uuid", "AAAAAAAA111111111111-111111111111", "aaaaaaaa-1111-1111-1111-111111111111"),
        ("uuid", "aaaaaaaa-1111", None),
        ("inet4", "10.0.0.1", "10.0.0.1"),
        ("inet4", "10.0.0", None),
        ("inet6", "::FFFF:1.2.3.4", "::ffff:1.2.3.4"),
        ("inet6", "0:0:1::", "0:0:1::"),
        ("inet6", "1:0:2:3:4:5:6:7", "1::2:3:4:5:6:7"),
        ("inet6", "0:0:0:0:0:0:0:0", "::"),
        ("inet6", "0:0:0:0:0:0:1:0", "::0.1.0.0"),
        ("inet6", "fe80::1%eth0", None),
        ("inet6", "1.2.3.4", None),
    ],
)
def test_an_address_that_a_person_writes_has_one_text(
    kind: str, written: str, canonical: str | None
) -> None:
    assert canonical_text(kind, written) == canonical


def test_a_condition_says_values_as_the_server_prints_them() -> None:
    right = Comparison("i", Comparator.EQUAL, "::ffff:1.2.3.4")
    require_as_printed(hosts(), AllOf((right, Not(IsNull("u")))))
    for value, why in (("::FFFF:1.2.3.4", "prints as '::ffff:1.2.3.4'"), ("x", "is no INET6")):
        wrong = Not(Comparison("i", Comparator.EQUAL, value))
        with pytest.raises(ValueError, match=why):
            require_as_printed(hosts(), wrong)
