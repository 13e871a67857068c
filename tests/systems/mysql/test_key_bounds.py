"""Boundaries cut any table into splits that cover each key once, in the server's own order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.split_planner import cut_in_two, splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.sql import (
    by_key,
    range_predicate,
    split_predicate,
)
from airflow_cdc_provider.systems.mysql.server.connection import query, query_named
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source import key_bounds
from airflow_cdc_provider.systems.mysql.source.key_bounds import boundaries, split_middle
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import BOTH_FAMILIES, source

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

SPLIT_ROWS = 7


@pytest.fixture(params=BOTH_FAMILIES)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, SqlServer)
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(server)


def rows_of(connection: ServerConnection, split: SnapshotSplit) -> int:
    condition = range_predicate(split.key_columns, split.keys)
    return int(query(connection, f"SELECT COUNT(*) FROM {split.table} WHERE {condition}")[0][0])


def planned(
    connection: ServerConnection, schema: TableSchema, split_rows: int = SPLIT_ROWS
) -> list[SnapshotSplit]:
    return list(planned_lazily(connection, schema, split_rows))


def planned_lazily(
    connection: ServerConnection, schema: TableSchema, split_rows: int
) -> Iterator[SnapshotSplit]:
    cuts = boundaries(connection, schema, split_rows)
    return splits_between(schema.table, schema.primary_key, schema.key_kinds, cuts)


WORDS = [f"{a}{b}" for a, b in itertools.product("aZbYzß-_ é", "xYÖ 1")]
KEYS: dict[str, tuple[str, list[str]]] = {
    "integers with holes": ("k INT", [str(i * i) for i in range(40)]),
    "dense integers": ("k INT", [str(i) for i in range(-30, 30)]),
    "integers at both ends of the type": (
        "k BIGINT",
        [str(i) for i in (*range(-(1 << 63), -(1 << 63) + 30), *range((1 << 63) - 30, 1 << 63))],
    ),
    "unsigned integers at the end of the type": (
        "k BIGINT UNSIGNED",
        [str(i) for i in range((1 << 64) - 60, 1 << 64)],
    ),
    "years": ("k YEAR", ["0", *map(str, range(1999, 2040))]),
    "decimals": ("k DECIMAL(30,10)", [f"{i * abs(i)}.{abs(i):010}" for i in range(-25, 25)]),
    "texts in a case-insensitive collation": (
        "k VARCHAR(9) COLLATE utf8mb4_unicode_ci",
        [f"'{word}'" for word in dict.fromkeys(w.lower().rstrip() for w in WORDS)],
    ),
    "texts in a binary collation": (
        "k VARCHAR(9) COLLATE utf8mb4_bin",
        [f"'{word}'" for word in dict.fromkeys(w.rstrip() for w in WORDS)],
    ),
    "texts in latin1": (
        "k CHAR(9) CHARACTER SET latin1 COLLATE latin1_german1_ci",
        [f"'{a}{i:02}'" for i in range(20) for a in ("é", "ß", "z")],
    ),
    "texts in utf16": (
        "k VARCHAR(9) CHARACTER SET utf16",
        [f"'{a}{i:02}'" for i in range(20) for a in ("漢", "x", "z")],
    ),
    "texts in sjis": (
        "k VARCHAR(9) CHARACTER SET sjis",
        [f"'{a}{i:02}'" for i in range(20) for a in ("漢", "ソ", "z")],
    ),
    "binary": ("k BINARY(3)", [f"x'{i:02x}{255 - i:02x}'" for i in range(0, 250, 5)]),
    "var binary": ("k VARBINARY(9)", [f"x'{'00' * (i % 4)}{i:02x}'" for i in range(60)]),
    "dates with impossible ones": (
        "k DATE",
        [
            "'0000-00-00'",
            "'2024-00-15'",
            *(f"'2024-{m:02}-{d}'" for m in (1, 2) for d in range(10, 32)),
        ],
    ),
    "times with fractions": (
        "k DATETIME(6)",
        [f"'2024-01-01 00:00:00.{i:06}'" for i in range(0, 600, 11)],
    ),
    "timestamps": ("k TIMESTAMP(3)", [f"'2024-03-31 01:59:5{i % 10}.{i:03}'" for i in range(50)]),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_row_of_a_table_is_in_one_split(server: SqlServer, database: str, name: str) -> None:
    definition, values = KEYS[name]
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t ({definition} PRIMARY KEY, v INT)")
        listed = ", ".join(f"({value}, 1)" for value in values)
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        splits = planned(connection, schema)
        counts = [rows_of(connection, split) for split in splits]
    assert sum(counts) == len(values)
    assert len(splits) > 3
    assert max(counts) <= 2 * SPLIT_ROWS
    assert (splits[0].keys.start, splits[-1].keys.end) == (None, None)


def test_a_composite_key_is_cut_behind_a_first_column_that_hardly_varies(
    server: SqlServer, database: str
) -> None:
    with source(server) as connection:
        query(
            connection,
            f"CREATE TABLE {database}.t (a INT, b VARCHAR(9), c DATE, PRIMARY KEY (a, b, c))",
        )
        rows = [(1, f"k{i % 3}", f"2024-01-{1 + i // 3:02}") for i in range(90)]
        listed = ", ".join(f"({a}, '{b}', '{c}')" for a, b, c in rows)
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        splits = planned(connection, schema, 10)
        counts = [rows_of(connection, split) for split in splits]
    assert counts == [10] * 9
    assert {len(split.keys.end) for split in splits if split.keys.end} == {3}


def test_a_range_of_a_composite_key_reads_its_own_rows_only(
    server: SqlServer, database: str
) -> None:
    """A predicate the index cannot serve would read the table again for each split."""
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (a INT, b INT, v INT, PRIMARY KEY (a, b))")
        listed = ", ".join(f"(1, {i}, 0)" for i in range(1000))
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        condition = range_predicate(("a", "b"), KeyRange((1, 900), (1, 910)))
        query(connection, "FLUSH STATUS")
        found = query(
            connection, f"SELECT SUM(v) FROM {database}.t FORCE INDEX (PRIMARY) WHERE {condition}"
        )
        status = query(connection, "SHOW SESSION STATUS LIKE 'Handler_read_next'")
    assert found == [(0,)]
    assert int(status[0][1]) < 20


def test_planning_goes_on_behind_the_last_stored_boundary(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (k VARCHAR(9) PRIMARY KEY)")
        listed = ", ".join(f"('k{i:03}')" for i in range(100))
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        whole = list(boundaries(connection, schema, SPLIT_ROWS))
        rest = list(boundaries(connection, schema, SPLIT_ROWS, start=whole[4]))
    assert rest == whole[5:]


def test_a_hole_between_dense_keys_makes_no_empty_splits(server: SqlServer, database: str) -> None:
    far = 10**15
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (k BIGINT PRIMARY KEY)")
        keys = [*range(200), *range(far, far + 200)]
        query(connection, f"INSERT INTO {database}.t VALUES {', '.join(f'({k})' for k in keys)}")
        schema = read_schema(connection, TableId(database, "t"))
        splits = planned(connection, schema, 20)
        counts = [rows_of(connection, split) for split in splits]
    assert sum(counts) == 400
    assert len(splits) <= 40
    assert min(counts) > 0


def test_holes_that_no_probe_met_are_jumped_over(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense wherever it is looked, with far more numbers than rows between."""
    monkeypatch.setattr(key_bounds, "_PROBE_WIDTH", 20)
    far = 10**12
    keys = [far * spot // 7 + i for spot in range(8) for i in range(20)]
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (k BIGINT PRIMARY KEY)")
        query(connection, f"INSERT INTO {database}.t VALUES {', '.join(f'({k})' for k in keys)}")
        schema = read_schema(connection, TableId(database, "t"))
        splits = list(itertools.islice(planned_lazily(connection, schema, 20), 100))
        counts = [rows_of(connection, split) for split in splits]
    assert sum(counts) == len(keys)
    assert len(splits) < 20
    assert min(counts) > 0


def test_rows_deleted_while_planning_end_it_in_order(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (k VARCHAR(9) PRIMARY KEY)")
        listed = ", ".join(f"('k{i:03}')" for i in range(100))
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        cuts = boundaries(connection, schema, SPLIT_ROWS)
        first = next(cuts)
        query(connection, f"DELETE FROM {database}.t WHERE k > 'k010'")
        assert list(cuts) == []
    assert first == ("k007",)


@pytest.mark.parametrize(
    "definition",
    ["k FLOAT PRIMARY KEY", "k TEXT, PRIMARY KEY (k(5))", "k ENUM('1','2','3'), PRIMARY KEY (k)"],
)
def test_a_key_that_bounds_no_range_is_one_split(
    server: SqlServer, database: str, definition: str
) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t ({definition})")
        query(connection, f"INSERT INTO {database}.t VALUES (1), (2), (3)")
        schema = read_schema(connection, TableId(database, "t"))
        (split,) = planned(connection, schema, 1)
        assert split.keys == KeyRange()
        with pytest.raises(UnsupportedTableError, match="cannot be cut"):
            split_middle(connection, split)


@pytest.mark.parametrize(
    ("definition", "row"),
    [
        ("a INT, b ENUM('x','y','z'), PRIMARY KEY (a, b)", "({a}, '{xyz}')"),
        ("a INT, b FLOAT, PRIMARY KEY (a, b)", "({a}, {b}.1)"),
        ("a DATE, b BIT(9), PRIMARY KEY (a, b)", "('2024-01-01' + INTERVAL {a} DAY, {b})"),
        ("a INT, b VARCHAR(9), PRIMARY KEY (a, b(3))", "({a}, '{b}')"),
        ("a DECIMAL(9,2), c VARBINARY(4), b TIME, PRIMARY KEY (a, c, b)", "({a}.5, 'q', {b})"),
        # two texts that are one: a boundary of one must not be followed by one of the other
        ("a VARCHAR(9) COLLATE utf8mb4_unicode_ci, b TIME, PRIMARY KEY (a, b)", "('{aA}{a}', {b})"),
    ],
)
def test_a_key_is_cut_by_the_columns_before_one_that_bounds_no_range(
    server: SqlServer, database: str, definition: str, row: str
) -> None:
    rows = [row.format(a=i // 3, b=i % 3, xyz="xyz"[i % 3], aA="kK"[i % 2]) for i in range(150)]
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t ({definition})")
        query(connection, f"INSERT INTO {database}.t VALUES {', '.join(rows)}")
        schema = read_schema(connection, TableId(database, "t"))
        splits = planned(connection, schema, 10)
        counts = [rows_of(connection, split) for split in splits]
        assert sum(counts) == 150
        assert len(splits) > 10
        assert min(counts) > 0
        assert len({split.keys.start for split in splits}) == len(splits)
        (first, *_, last) = splits
        assert list(boundaries(connection, schema, 10, start=first.keys.end)) == [
            split.keys.end for split in splits[1:] if split is not last
        ]
        whole = SnapshotSplit(schema.table, 0, schema.primary_key, schema.key_kinds, KeyRange())
        halves = cut_in_two(whole, split_middle(connection, whole), next_number=1)
        assert sorted(rows_of(connection, half) for half in halves) >= [70, 70]
        one = SnapshotSplit(
            schema.table, 0, schema.primary_key, schema.key_kinds, KeyRange(last.keys.start, None)
        )
        while rows_of(connection, one) > 3:
            _, one = cut_in_two(one, split_middle(connection, one), next_number=1)
        with pytest.raises(UnsupportedTableError, match="cannot be cut"):
            split_middle(connection, one)


def test_a_start_that_all_rows_share_ends_the_plan(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (a INT, b FLOAT, PRIMARY KEY (a, b))")
        query(
            connection,
            f"INSERT INTO {database}.t VALUES {', '.join(f'(7, {i})' for i in range(50))}",
        )
        schema = read_schema(connection, TableId(database, "t"))
        splits = planned(connection, schema, 10)
        counts = [rows_of(connection, split) for split in splits]
    assert sum(counts) == 50
    assert len(splits) <= 2


@pytest.mark.parametrize("name", ["k", "`a ``key`", "`PRIMARY KEY`"])
def test_rows_are_read_by_the_unique_key_where_none_is_primary(
    server: SqlServer, database: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement goes through that key, whatever its name; no other index is used."""
    asked: list[str] = []

    def noted(connection: ServerConnection, sql: str) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return query(connection, sql)

    with source(server) as connection:
        definition = "a VARCHAR(9) NOT NULL, b INT NOT NULL, v INT, KEY other (b, a, v)"
        query(connection, f"CREATE TABLE {database}.t ({definition}, UNIQUE {name} (a, b))")
        listed = ", ".join(f"('{'aB'[i % 2]}', {i}, 0)" for i in range(200))
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        monkeypatch.setattr(key_bounds, "query", noted)
        splits = planned(connection, schema)
        assert sum(rows_of(connection, split) for split in splits) == 200
        split_middle(connection, splits[0])
        asked += [
            f"SELECT * FROM {database}.t {by_key(schema)} WHERE {split_predicate(split)}"
            for split in splits
        ]
        plans = [query_named(connection, f"EXPLAIN FORMAT=TRADITIONAL {sql}") for sql in asked]
    assert len(splits) > 10
    assert {row["key"] for plan in plans for row in plan} == {schema.key_name}
    assert not [sql for sql, (row,) in zip(asked, plans, strict=True) if "filesort" in row["Extra"]]


def test_a_split_is_cut_in_its_middle(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (a VARCHAR(9), b INT, PRIMARY KEY (a, b))")
        listed = ", ".join(f"('{'aB'[i % 2]}', {i})" for i in range(50))
        query(connection, f"INSERT INTO {database}.t VALUES {listed}")
        schema = read_schema(connection, TableId(database, "t"))
        start: Key = ("a", 10)
        split = SnapshotSplit(
            schema.table, 0, schema.primary_key, schema.key_kinds, KeyRange(start, None)
        )
        halves = cut_in_two(split, split_middle(connection, split), next_number=1)
        counts = [rows_of(connection, half) for half in halves]
    assert counts == [22, 23]


def test_a_split_of_one_row_cannot_be_cut(server: SqlServer, database: str) -> None:
    with source(server) as connection:
        query(connection, f"CREATE TABLE {database}.t (k INT PRIMARY KEY)")
        query(connection, f"INSERT INTO {database}.t VALUES (1)")
        schema = read_schema(connection, TableId(database, "t"))
        (split,) = planned(connection, schema)
        with pytest.raises(UnsupportedTableError, match="1 rows"):
            split_middle(connection, split)


LOOK, LEAP = 20, 200
"""Rows looked at, and of a split."""
LEAPT: dict[str, tuple[str, list[tuple[int, int]]]] = {
    "a few rows of each": ("a BIGINT, b INT", [(i // 4 * 8, i % 4) for i in range(4000)]),
    "sparse and one of each": (
        "a INT, b INT",
        [(i * 1013 % 99_991 - 50_000, 0) for i in range(3000)],
    ),
    "sparse, then dense": (
        "a INT, b INT",
        [*((i * 5000, 0) for i in range(1000)), *((5_000_000 + i, 0) for i in range(3000))],
    ),
    "dense, a hole, dense": (
        "a BIGINT, b INT",
        [(i // 2 + (10**15 if i > 1500 else 0), i % 2) for i in range(3000)],
    ),
    "up to the end of the type": (
        "a BIGINT UNSIGNED, b INT",
        [((1 << 64) - 1 - 7 * i, 0) for i in range(1500)],
    ),
    "up to the end of the signed type": (
        "a BIGINT, b INT",
        [((1 << 63) - 1 - 7 * i, 0) for i in range(1500)],
    ),
    "years": ("a YEAR, b INT", [(1901 + i // 9, i % 9) for i in range(2250)]),
    "hardly varying": ("a INT, b INT", [(i // 1000, i) for i in range(3000)]),
}


def filled(
    connection: ServerConnection, table: TableId, columns: str, rows: list[tuple[int, int]]
) -> TableSchema:
    query(connection, f"CREATE TABLE {table} ({columns}, PRIMARY KEY (a, b))")
    listed = ", ".join(f"({a}, {b})" for a, b in rows)
    query(connection, f"INSERT INTO {table} VALUES {listed}")
    return read_schema(connection, table)


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_bounds, "_LOOK_ROWS", LOOK)


@pytest.mark.parametrize("name", LEAPT)
@pytest.mark.usefixtures("short_looks")
def test_leaps_leave_every_row_in_one_split(server: SqlServer, database: str, name: str) -> None:
    columns, rows = LEAPT[name]
    with source(server) as connection:
        schema = filled(connection, TableId(database, "t"), columns, rows)
        splits = planned(connection, schema, LEAP)
        counts = [rows_of(connection, split) for split in splits]
    assert sum(counts) == len(rows)
    assert max(counts) <= 2 * LEAP
    assert len(splits) <= 2 * len(rows) // LEAP + 1


@pytest.mark.usefixtures("short_looks")
def test_leaps_read_a_small_part_of_the_index(server: SqlServer, database: str) -> None:
    columns, rows = LEAPT["a few rows of each"]
    with source(server) as connection:
        schema = filled(connection, TableId(database, "t"), columns, rows)
        query(connection, "FLUSH STATUS")
        bounds = list(boundaries(connection, schema, LEAP))
        status = query(connection, "SHOW SESSION STATUS LIKE 'Handler_read_next'")
    assert {len(bound) for bound in bounds[:-1]} == {1}
    assert int(status[0][1]) < len(rows) // 4


@pytest.mark.usefixtures("short_looks")
def test_a_crowd_that_no_look_met_is_in_one_split_and_cut_where_it_is_too_big(
    server: SqlServer, database: str
) -> None:
    rows = [(i, 0) for i in range(2000)] + [(1090, i) for i in range(1, 1500)]
    with source(server) as connection:
        schema = filled(connection, TableId(database, "t"), "a INT, b INT", rows)
        splits = planned(connection, schema, LEAP)
        counts = [rows_of(connection, split) for split in splits]
        largest = splits[counts.index(max(counts))]
        halves = cut_in_two(largest, split_middle(connection, largest), next_number=100)
        halved = [rows_of(connection, half) for half in halves]
    assert sum(counts) == len(rows)
    assert max(counts) > 1500
    assert max(halved) - min(halved) <= 1


@pytest.mark.usefixtures("short_looks")
def test_leaps_go_on_behind_the_last_stored_boundary(server: SqlServer, database: str) -> None:
    columns, rows = LEAPT["sparse, then dense"]
    with source(server) as connection:
        schema = filled(connection, TableId(database, "t"), columns, rows)
        whole = list(boundaries(connection, schema, LEAP))
        rests = [list(boundaries(connection, schema, LEAP, start=bound)) for bound in whole]
    assert rests == [whole[i + 1 :] for i in range(len(whole))]


def test_small_splits_are_not_leapt_over(server: SqlServer, database: str) -> None:
    columns, rows = LEAPT["a few rows of each"]
    with source(server) as connection:
        schema = filled(connection, TableId(database, "t"), columns, rows)
        counts = [rows_of(connection, split) for split in planned(connection, schema, LEAP)]
    assert counts == [LEAP] * 20
