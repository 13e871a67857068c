"""Verify of a lake: rows are equal or named, whatever their types and keys, published or not."""

from __future__ import annotations

import re

import pytest
from deltalake import write_deltalake

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.verify_report import DifferenceKind, TableVerdict
from airflow_cdc_provider.engine.verify import comparison
from airflow_cdc_provider.pipeline.steps.table_requests import reset_some
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.systems.mysql.verify import COLUMNS

OF_ONE_FAMILY = {
    "mysql": {
        "jd": ("JSON", """'{"a": [1.5, null], "b": "ü"}'""", """'{"a": [1.5], "b": "ü"}'"""),
        "ve": ("VECTOR(3)", "STRING_TO_VECTOR('[1,2,3]')", "STRING_TO_VECTOR('[1,2,4]')"),
    },
    "mariadb": {
        "u": ("UUID", "'6ccd780c-baba-1026-9564-5b8c656024db'", "UUID()"),
        "ip": ("INET6", "'::1'", "'::2'"),
    },
}
OF_BOTH = {
    **COLUMNS,
    "b1": ("BIT(1)", "b'1'", "b'0'"),
    "b9": ("BIT(9)", "b'100000001'", "b'100000000'"),
    "iu": ("INT UNSIGNED", "4294967295", "4294967294"),
    "dt0": ("DATETIME", "'2024-02-29 23:59:59'", "'2024-02-29 23:59:58'"),
    "ts0": ("TIMESTAMP NULL", "'2024-02-29 23:59:59'", "NULL"),
    "dd": ("DATE", "'2024-02-29'", "'2024-03-01'"),
    "t3": ("TIME(3)", "'00:00:00.001'", "'-00:00:00.001'"),
    "ln": ("GEOMETRY", "ST_GeomFromText('LINESTRING(0 0,1 1)')", "ST_GeomFromText('POINT(0 0)')"),
}
KEYS = {
    "INT UNSIGNED": ("1", "4294967295"),
    "BIGINT": ("-9223372036854775808", "7"),
    "BIGINT UNSIGNED": ("1", "18446744073709551615"),
    "DECIMAL(10,2)": ("-1.50", "20000000"),
    "DECIMAL(45,3)": ("-1.500", "123456789012345678901234567890123456789012.125"),
    "FLOAT": ("0.5", "16777216"),
    "DOUBLE": ("0.1e0", "-1e300"),
    "BIT(1)": ("b'0'", "b'1'"),
    "BIT(20)": ("b'1'", "b'10000000000000000000'"),
    "YEAR": ("1999", "2155"),
    "DATE": ("'2024-02-29'", "'1000-01-01'"),
    "DATETIME": ("'2024-02-29 01:02:03'", "'9999-12-31 23:59:59'"),
    "DATETIME(3)": ("'2024-02-29 01:02:03.120'", "'2024-02-29 01:02:03'"),
    "DATETIME(1)": ("'2024-02-29 01:02:03.1'", "'2024-02-29 01:02:03'"),
    "TIMESTAMP(6)": ("'2024-02-29 01:02:03.000001'", "'2024-02-29 01:02:03'"),
    "TIME(6)": ("'-838:59:58.000001'", "'00:00:00.5'"),
    "TIME": ("'101:00:01'", "'-00:00:01'"),
    "ENUM('a','b')": ("'a'", "'b'"),
    "SET('p','q')": ("'p,q'", "''"),
    "CHAR(5) COLLATE utf8mb4_general_ci": ("'É'", "'b'"),
    "VARCHAR(9) CHARACTER SET latin1": ("'é'", "''"),
    "BINARY(3)": ("x'01'", "x'ff00ff'"),
    "VARBINARY(3)": ("x''", "x'00'"),
}


@pytest.fixture(params=FORMS)
def lake(empty_shop: Shop, request: pytest.FixtureRequest) -> Lake:
    """A lake of each form."""
    shop = empty_shop
    text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    shop.path.write_text(text.replace("SHOP_DSN\n", "SHOP_DSN\n  zero_dates: text\n"))
    return Lake.of(shop, request.param)


def kinds(verdict: TableVerdict) -> list[DifferenceKind]:
    return sorted(each.kind for each in verdict.samples)


def test_each_types_values_are_equal_or_named(
    lake: Lake, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_SAMPLES", 100)
    columns = {**OF_BOTH, **OF_ONE_FAMILY[request.node.callspec.params["empty_shop"]]}
    listed = ", ".join(f"{name} {kind}" for name, (kind, _, _) in columns.items())
    values = ", ".join(value for _, value, _ in columns.values())
    names, nulls = ", ".join(columns), ", ".join(["NULL"] * len(columns))
    lake.logged(
        f"CREATE TABLE t (id INT PRIMARY KEY, {listed}) CHARACTER SET utf8mb4",
        f"INSERT INTO t (id, {names}) VALUES (0, {values}), (1, {nulls})",
        *(f"INSERT INTO t SELECT {at + 2}, {names} FROM t x WHERE id = 0" for at in range(10)),
    )
    lake.catch_up()
    rest = range(10, len(columns))
    lake.logged(
        *(f"INSERT INTO t SELECT {at + 2}, {names} FROM t x WHERE id = 0" for at in rest),
        f"INSERT INTO t (id, {names}) VALUES (1000, {nulls})",
    )
    lake.catch_up()
    (verdict,) = lake.verified("t").tables
    assert verdict.equal, verdict
    assert verdict.rows_source == verdict.rows_sink == len(columns) + 3
    lake.unlogged(
        *(
            f"UPDATE t SET {name} = {other} WHERE id = {at + 2}"
            for at, (name, (_, _, other)) in enumerate(columns.items())
        ),
    )
    (verdict,) = lake.verified("t").tables
    found = {each.key: [c.column for c in each.columns] for each in verdict.samples}
    assert found == {str(at + 2): [name] for at, name in enumerate(columns)}


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_table_whose_changes_were_doubled_is_equal_again_once_it_is_reset(lake: Lake) -> None:
    lake.logged("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    lake.logged("CREATE TABLE other (id INT PRIMARY KEY)", "CREATE TABLE third LIKE other")
    lake.catch_up()
    table = TableId(lake.shop.database, "t")
    write_deltalake(str(lake.folder / str(table)), lake.changes("t"), mode="append")
    with pytest.raises(IntegrityError, match="t has changes twice, 2 at least"):
        lake.verified("t")
    lake.unlogged("INSERT INTO third VALUES (77)")
    with pytest.raises(IntegrityError) as error:
        lake.verified()
    told = error.value.what
    assert re.search(r"t has changes twice, .*; \S+third differs: 1 missing.*; 1 other table", told)
    shop = lake.shop
    noted = shop.run().store.note(shop.run().name, NoteKind.VERIFIED)
    assert noted is not None
    compared = {name.split(".")[1]: each["equal"] for name, each in noted.form["tables"].items()}
    assert (compared["third"], compared["other"]) == (False, True)
    assert lake.current("t") == lake.source_rows("t")
    reset_some(lake.shop.run(), [table])
    lake.catch_up()
    assert lake.operations("t") == "rrrrtrr"
    assert lake.verified("t").equal


def test_rows_are_told_apart_by_keys_of_every_kind(lake: Lake) -> None:
    named = {f"t{number}": kind for number, kind in enumerate(KEYS)}
    for table, kind in named.items():
        first, _second = KEYS[kind]
        lake.logged(
            f"CREATE TABLE {table} (k {kind}, n INT, v INT, PRIMARY KEY (n, k)) CHARSET utf8mb4",
            f"INSERT INTO {table} VALUES ({first}, 1, 1), ({first}, 2, 2)",
        )
    lake.catch_up()
    for table, kind in named.items():
        lake.logged(f"INSERT INTO {table} VALUES ({KEYS[kind][1]}, 1, 3)")
        lake.logged(f"DELETE FROM {table} WHERE n = 2")
    lake.catch_up()
    report = lake.verified(*named)
    assert {
        named[each.table.table]: (each.rows_sink, each.equal) for each in report.tables
    } == dict.fromkeys(KEYS, (2, True))
    for table, kind in named.items():
        lake.unlogged(f"UPDATE {table} SET v = 9 WHERE v = 1", f"DELETE FROM {table} WHERE v = 3")
        lake.unlogged(f"INSERT INTO {table} VALUES ({KEYS[kind][0]}, 5, 5)")
    every = [DifferenceKind.DIFFERENT, DifferenceKind.EXTRA, DifferenceKind.MISSING]
    for verdict in lake.verified(*named).tables:
        assert kinds(verdict) == every, f"{named[verdict.table.table]}: {verdict}"
