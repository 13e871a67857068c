"""Verify through a table's shape: what the sink is to have is made of the source's rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import IntegrityError, RefusedError, ValueRefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import (
    AllOf,
    Comparator,
    Comparison,
    IsNull,
    Not,
    RowFilter,
)
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn, TableShape
from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.verify import verify as verify_module
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from tests.servers.given import SqlServer
from tests.systems.mysql.verify import FROM_MARIADB, MYSQL, TO_MARIADB, Pair

EMAIL = OutputColumn("email", "mail", Mask(MaskKind.FIRST, length=2))
NOTE = OutputColumn("note", "note", Mask(MaskKind.FIXED, "hidden"))
CARD = OutputColumn("card", "card", Mask(MaskKind.NULL))
SHOP = OutputColumn("shop", constant="eu")


@dataclass
class Shaped:
    """A table and its copy of another shape."""

    pair: Pair
    shape: TableShape

    @property
    def sink(self) -> MySqlSink:
        endpoint = Endpoint.parse(self.pair.there.dsn())
        return MySqlSink(endpoint, Owner(PipelineName("verify"), 1))

    def plan(self) -> TablePlan:
        schema = self.pair.plan().schema
        target = self.sink.target_of(schema, self.pair.target, self.shape)
        return TablePlan(schema, target, 0, self.shape)

    def verify(self, plan: TablePlan | None = None, **options: Any) -> TableVerdict:
        source = MySqlSource(Endpoint.parse(self.pair.here.dsn()))
        (table,) = verify(source, self.sink, [plan or self.plan()], **options).tables
        return table


def named(table: TableVerdict) -> set[str]:
    return {f"{each.kind} {each.key}" for each in table.samples}


@pytest.fixture
def between(
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    sides: Collection[str],
) -> Pair:
    servers = [request.getfixturevalue(side) for side in sides]
    return Pair(*servers, *map(fresh_database, servers))


SIDES = pytest.mark.parametrize(
    "sides",
    [pytest.param(each.values, marks=each.marks) for each in (MYSQL, TO_MARIADB, FROM_MARIADB)],
    ids=["to MySQL", "to MariaDB", "from MariaDB"],
)
ON_MYSQL = pytest.mark.parametrize("sides", [pytest.param(MYSQL.values, marks=MYSQL.marks)])


@SIDES
def test_columns_chosen_renamed_masked_and_constant_and_rows_filtered(between: Pair) -> None:
    between.at_source(
        "CREATE TABLE {} (id INT PRIMARY KEY, mail VARCHAR(50) CHARACTER SET latin1, note TEXT, "
        "card VARBINARY(16), secret INT, amount DECIMAL(9,2), at DATETIME(3))"
    )
    between.at_sink(
        "CREATE TABLE {} (number INT PRIMARY KEY, Email VARCHAR(50), note TEXT, "
        "card VARBINARY(16), shop VARCHAR(255), amount DECIMAL(9,2), at DATETIME(3))"
    )
    shape = TableShape(
        columns=(
            OutputColumn("number", "id"), EMAIL, NOTE, CARD, SHOP,
            OutputColumn("amount", "amount"), OutputColumn("at", "at"),
        ),
        where=AllOf((Comparison("secret", Comparator.GREATER, 0), Not(IsNull("at")))),
    )  # fmt: skip
    between.at_source(
        "INSERT INTO {} VALUES (1, 'éva@x', 'n', 'c', 1, 1.5, '2024-01-02 03:04:05.678'), "
        "(2, NULL, NULL, NULL, 7, NULL, '2024-01-01'), (3, 'out', 'n', 'c', 0, 1, '2024-01-01'), "
        "(4, 'out', 'n', 'c', NULL, 1, '2024-01-01'), (5, 'out', 'n', 'c', 1, 1, NULL)"
    )
    between.at_sink(
        "INSERT INTO {} VALUES (1, 'év', 'hidden', NULL, 'eu', 1.5, '2024-01-02 03:04:05.678'), "
        "(2, NULL, NULL, NULL, 'eu', NULL, '2024-01-01')"
    )
    shaped = Shaped(between, shape)
    table = shaped.verify()
    assert (table.equal, table.rows_source, table.rows_sink) == (True, 2, 2)
    for change, columns in (
        ("email = 'éva@x'", ["email"]),
        ("note = 'n', shop = 'us'", ["note", "shop"]),
        ("card = 'c'", ["card"]),
        ("at = '2024-01-02 03:04:05.679', amount = NULL", ["amount", "at"]),
    ):
        between.at_sink(f"UPDATE {{}} SET {change} WHERE number = 1")
        (sample,) = shaped.verify(values=True).samples
        assert [each.column for each in sample.columns] == columns
        assert "va@x" not in str(sample.columns[0].source)
        between.at_sink(
            "UPDATE {} SET email = 'év', note = 'hidden', shop = 'eu', card = NULL, "
            "at = '2024-01-02 03:04:05.678', amount = 1.5 WHERE number = 1"
        )
    between.at_source("UPDATE {} SET secret = 1 WHERE id = 3")
    between.at_source("UPDATE {} SET secret = 0 WHERE id = 2")
    table = shaped.verify()
    assert named(table) == {"missing 3", "extra 2"}
    assert table.differing == (KeyRange((2,), None),)


@SIDES
def test_rows_marked_as_deleted_are_not_compared(between: Pair) -> None:
    between.at_source("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    between.at_sink("CREATE TABLE {} (id INT PRIMARY KEY, v INT, gone TINYINT NOT NULL)")
    between.at_source("INSERT INTO {} VALUES (1, 1), (3, 3), (4, 4)")
    between.at_sink("INSERT INTO {} VALUES (1, 1, 0), (2, 2, 1), (3, 3, 0), (4, 4, 0), (5, 5, 1)")
    shaped = Shaped(between, TableShape(deleted_flag="gone"))
    table = shaped.verify()
    assert (table.equal, table.rows_sink) == (True, 3)
    between.at_sink("UPDATE {} SET gone = 1 WHERE id = 3")
    between.at_sink("UPDATE {} SET gone = 0 WHERE id = 2")
    between.at_sink("UPDATE {} SET gone = 2 WHERE id = 4")
    assert named(shaped.verify()) == {"missing 3", "extra 2", "different 4"}


@ON_MYSQL
def test_many_rows_marked_as_deleted_are_narrowed_down(
    between: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "_LEAF_ROWS", 3)
    between.at_source("CREATE TABLE {} (id INT PRIMARY KEY)")
    between.at_sink("CREATE TABLE {} (id INT PRIMARY KEY, gone TINYINT NOT NULL)")
    listed = ", ".join(f"({number}, 1)" for number in range(4000))
    between.at_sink(f"INSERT INTO {{}} VALUES {listed}, (5000, 0), (5001, 0)")
    between.at_source("INSERT INTO {} VALUES (-1), (5000), (5002)")
    table = Shaped(between, TableShape(deleted_flag="gone")).verify()
    assert named(table) == {"missing -1", "missing 5002", "extra 5001"}


@SIDES
def test_rows_under_another_key_are_named_by_both(between: Pair) -> None:
    between.at_source(
        "CREATE TABLE {} (id INT PRIMARY KEY, code VARCHAR(9) NOT NULL, part INT NOT NULL, v INT)"
    )
    between.at_sink(
        "CREATE TABLE {} (tenant BIGINT, part INT, code VARCHAR(9), v INT, "
        "PRIMARY KEY (tenant, code, part))"
    )
    outputs = ("part", "code", "v")
    shape = TableShape(
        columns=(
            OutputColumn("tenant", constant=7), *(OutputColumn(name, name) for name in outputs)
        ),
        key=("tenant", "code", "part"),
    )  # fmt: skip
    rows = [(n, f"c{n // 3}", n % 3) for n in range(3000)]
    listed = ", ".join(f"({n}, '{code}', {part}, 0)" for n, code, part in rows)
    between.at_source(f"INSERT INTO {{}} VALUES {listed}")
    listed = ", ".join(f"(7, {part}, '{code}', 0)" for _, code, part in rows)
    between.at_sink(f"INSERT INTO {{}} VALUES {listed}")
    shaped = Shaped(between, shape)
    assert shaped.verify().equal
    between.at_sink("UPDATE {} SET v = 1 WHERE code = 'c5' AND part = 2")
    between.at_sink("DELETE FROM {} WHERE code = 'c7' AND part = 0")
    table = shaped.verify()
    assert {(each.key, each.source_key) for each in table.samples} == {
        ("7/c5/2", "17"), ("7/c7/0", "21"),
    }  # fmt: skip
    assert table.unrepairable == "the sink's key has other columns than the source's"
    assert table.differing_keys == ()
    between.at_sink("INSERT INTO {} VALUES (8, 1, 'c0', 0)")
    table = shaped.verify()
    assert ("8/c0/1", "") in {(each.key, each.source_key) for each in table.samples}
    assert table.differing_keys == ()
    between.at_sink("UPDATE {} SET v = 2 WHERE part = 1")  # more than are sought by their keys
    table = shaped.verify()
    assert (table.different, table.missing, table.extra) == (1001, 1, 1)

    between.at_source("UPDATE {} SET part = 1 WHERE id = 0")
    with pytest.raises(IntegrityError, match=r"two rows of .* have the key 7/c0/1"):
        shaped.verify()


@ON_MYSQL
def test_the_sources_key_is_known_where_the_sinks_has_it(between: Pair) -> None:
    between.at_source("CREATE TABLE {} (a INT, t TIME(1), v INT, PRIMARY KEY (a, t))")
    between.at_sink("CREATE TABLE {} (t TIME(1), a INT, v INT, PRIMARY KEY (t, a))")
    outputs = tuple(OutputColumn(name, name) for name in ("t", "a", "v"))
    shaped = Shaped(between, TableShape(outputs, key=("t", "a")))
    between.at_source("INSERT INTO {} VALUES (1, '1:00:00', 0), (2, '-99:00:00.5', 0)")
    between.at_sink("INSERT INTO {} VALUES ('1:00:00', 1, 0), ('-99:00:00.5', 3, 0)")
    table = shaped.verify()
    assert {(each.kind.value, each.key, each.source_key) for each in table.samples} == {
        ("missing", "-99:00:00.5/2", "2/-99:00:00.5"),
        ("extra", "-99:00:00.5/3", "3/-99:00:00.5"),
    }
    assert not table.unrepairable


@ON_MYSQL
def test_rows_chosen_by_dates_that_are_none_are_refused(between: Pair) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, d DATE)")
    between.at_source("INSERT INTO {} VALUES (1, '2024-02-29'), (2, '2023-01-01'), (3, NULL)")
    between.at_sink("INSERT INTO {} VALUES (1, '2024-02-29')")
    since = TableShape(where=Comparison("d", Comparator.AT_LEAST, "2024-01-01"))
    shaped = Shaped(between, since)
    assert shaped.verify().equal
    between.at_source("INSERT INTO {} VALUES (4, '0000-00-00')")
    with pytest.raises(ValueRefusedError, match="d has dates that are no day"):
        shaped.verify()


@SIDES
@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (Comparison("at", Comparator.AT_LEAST, "2024-03-31 02:30:00.5Z"), {2, 3}),
        (Comparison("at", Comparator.EQUAL, "2024-03-31 04:30:00.5+02:00"), {2}),
        (Not(Comparison("at", Comparator.EQUAL, "2024-03-31 02:30:00.5Z")), {1, 3}),
        (IsNull("at"), {4}),
        (Comparison("day", Comparator.LESS, "2024-03-31 03:00:00"), {1, 2}),
    ],
)
def test_rows_chosen_by_moments_are_compared(
    between: Pair, where: RowFilter, chosen: Collection[int]
) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, at TIMESTAMP(6) NULL, day DATETIME(6) NULL)")
    moments = {1: "02:30:00", 2: "02:30:00.5", 3: "03:30:00"}
    rows = [f"({n}, '2024-03-31 {at}', '2024-03-31 {at}')" for n, at in moments.items()]
    rows.append("(4, NULL, NULL)")
    for side, picked in ((between.at_source, {1, 2, 3, 4}), (between.at_sink, chosen)):
        values = ", ".join(rows[n - 1] for n in sorted(picked))
        side(f"INSERT INTO {{}} VALUES {values}")
    table = Shaped(between, TableShape(where=where)).verify()
    assert (table.equal, table.rows_source, table.rows_sink) == (True, len(chosen), len(chosen))


@SIDES
def test_masked_texts_of_a_fixed_length_are_compared_as_the_sink_keeps_them(between: Pair) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, c CHAR(9), v VARCHAR(9))")
    between.at_source("INSERT INTO {} VALUES (1, 'ab cd', 'ab cd'), (2, 'a', 'a'), (3, '', '')")
    between.at_sink("INSERT INTO {} VALUES (1, 'ab', 'ab'), (2, 'a', 'a'), (3, '', '')")
    masks = [OutputColumn(name, name, Mask(MaskKind.FIRST, length=3)) for name in ("c", "v")]
    assert Shaped(between, TableShape(tuple(masks), others=True)).verify().equal


@ON_MYSQL
@pytest.mark.parametrize("kind", [MaskKind.FIRST, MaskKind.LAST, MaskKind.FIXED])
def test_a_mask_of_bytes_that_are_padded_is_refused(between: Pair, kind: MaskKind) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, b BINARY(6))")
    shape = TableShape((OutputColumn("b", "b", Mask(kind, "x" * 2, 2)),), others=True)
    with pytest.raises(ValueError, match=r"b of .* is padded .* masked by SHA-256 or NULL"):
        Shaped(between, shape).plan()
    whole = TableShape((OutputColumn("b", "b", Mask(kind, "x" * 6, 6)),), others=True)
    assert Shaped(between, whole).plan().target.column("b").type.length == 6


@ON_MYSQL
def test_a_shape_whose_source_has_lost_a_column_is_refused_by_name(between: Pair) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    shaped = Shaped(between, TableShape(where=Comparison("v", Comparator.GREATER, 0)))
    plan = shaped.plan()
    between.at_source("ALTER TABLE {} DROP COLUMN v")
    with pytest.raises(RefusedError, match=r"made of: .* has no column v that is copied"):
        shaped.verify(plan)


@ON_MYSQL
def test_a_shape_whose_columns_are_gone_is_refused_by_name(between: Pair) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    shape = TableShape(columns=(OutputColumn("id", "id"), OutputColumn("w", "v")))
    with pytest.raises(RefusedError, match="lacks the columns w"):
        Shaped(between, shape).verify()
