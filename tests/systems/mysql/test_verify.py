"""Verify finds every row that differs, both ways, and no row that does not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.verify_report import DifferenceKind
from airflow_cdc_provider.engine.verify import comparison
from airflow_cdc_provider.engine.verify import verify as verify_module
from airflow_cdc_provider.systems.mysql.server.connection import query
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import sink, source
from tests.systems.mysql.verify import FROM_MARIADB, MYSQL, TO_MARIADB, Pair

DIGESTS = pytest.mark.parametrize(
    "by_columns", [False, True], ids=["the servers' digest", "by columns"]
)


@pytest.fixture(params=[False, True], ids=["the servers' digest", "by columns"])
def pair(
    request: pytest.FixtureRequest,
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    mysql_database: str,
    sink_database: str,
) -> Pair:
    databases = mysql_database, sink_database
    return Pair(mysql_server, mysql_sink, *databases, by_columns=request.param)


EVERY_TYPE = """
    id INT PRIMARY KEY, u BIGINT UNSIGNED, z INT ZEROFILL, b BIT(9), y YEAR, d DECIMAL(20,5),
    f FLOAT, g DOUBLE, h FLOAT(7,3), c CHAR(5) CHARACTER SET latin1, v VARCHAR(20),
    e ENUM('a','b'), s SET('p','q'), t TEXT CHARACTER SET latin1,
    lt LONGTEXT CHARACTER SET utf16, bi BINARY(4), vb VARBINARY(5), bl BLOB, dt DATETIME(3),
    ts TIMESTAMP NULL, ti TIME(6), da DATE, p POINT, js JSON
"""
EVERY_VALUE = """
    (1, 18446744073709551615, 5, b'1011', 0, -1.5, 3.1415927, 0.1e0+0.2e0, 12.345, 'a', 'ü', 2,
     'p,q', 'ö', '漢', x'01', 'ab', 'cd', '2024-00-00 00:00:00', '1970-01-01 00:00:01',
     '-838:59:58.000001', '2024-02-31', ST_GeomFromText('POINT(1 2)'), '{"a": 1.5}'),
    (2, 0, 0, 0, 2000, 1e14, 16777217, -1e308, 1e-3, '', '', 'a', '', '', '', '', '', '',
     '0000-00-00', NULL, '00:00:00', '0000-00-00', NULL, '[]'),
    (3, 0, 0, 0, 2000, 1e14, 1e-40, 1.7976931348623157e308, 1e-3, '', '', 'a', '', '', '', '', '',
     '', '0000-00-00', NULL, '00:00:00', '0000-00-00', NULL, 'null')
"""

POINT = "000000000101000000000000000000F03F0000000000000040"


@pytest.fixture
def between(
    request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Callable[[str, str], Pair]:
    """Make a pair of fresh databases on the servers that these fixtures are."""

    def pair_of(here: str, there: str) -> Pair:
        left, right = request.getfixturevalue(here), request.getfixturevalue(there)
        return Pair(left, right, fresh_database(left), fresh_database(right))

    return pair_of


@DIGESTS
@pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB, FROM_MARIADB])
def test_equal_values_of_every_type_are_equal(
    between: Callable[[str, str], Pair], here: str, there: str, by_columns: bool
) -> None:
    pair = between(here, there)
    pair.by_columns = by_columns
    nulls = ", ".join(["NULL"] * 23)
    for server, table in ((pair.here, pair.table), (pair.there, pair.target)):
        with source(server) as connection:
            definition = EVERY_TYPE
            if "mysql_s" in there and "mariadb" in here and server is pair.there:
                definition = definition.replace("js JSON", "js LONGTEXT")
            query(connection, f"CREATE TABLE {table} ({definition})")
            query(connection, f"INSERT INTO {table} VALUES {EVERY_VALUE}, (4, {nulls})")
    report = pair.verify()
    assert report.equal, report.tables[0].samples
    assert report.tables[0].equal_rows == 4


@DIGESTS
@pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB])
def test_a_sink_that_keeps_more_digits_of_a_second_has_the_same_keys_and_values(
    between: Callable[[str, str], Pair], here: str, there: str, by_columns: bool
) -> None:
    pair = between(here, there)
    pair.by_columns = by_columns
    for kind, own, wide in (("DATETIME", 0, 6), ("TIMESTAMP", 3, 6), ("TIME", 0, 3)):
        pair.at_source(f"CREATE TABLE {{}} (id {kind}({own}) PRIMARY KEY, at {kind}({own}))")
        pair.at_sink(f"CREATE TABLE {{}} (id {kind}({wide}) PRIMARY KEY, at {kind}({wide}))")
        moments = [f"'2024-01-01 0{hour}:00:00'" for hour in range(4)]
        rows = ", ".join(f"({each}, {each})" for each in moments)
        pair.both(f"INSERT INTO {{}} VALUES {rows}")
        assert pair.verify().equal
        pair.at_sink(f"UPDATE {{}} SET at = '2024-01-01 01:00:00.{'0' * own}01' LIMIT 1")
        pair.at_sink(
            f"UPDATE {{}} SET id = '2024-01-01 03:00:00.{'0' * own}01' WHERE at = {moments[3]}"
        )
        (table,) = pair.verify(chunk_rows=2).tables
        assert (table.different, table.missing, table.extra) == (1, 1, 1), (kind, table)
        pair.both("DROP TABLE {}")


@DIGESTS
@pytest.mark.parametrize(("here", "there"), [TO_MARIADB, FROM_MARIADB])
def test_dates_that_are_no_day_are_null_where_the_file_says_so(
    between: Callable[[str, str], Pair], here: str, there: str, by_columns: bool
) -> None:
    pair = between(here, there)
    pair.by_columns = by_columns
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, d DATE, m DATETIME(3), t TIMESTAMP NULL)")
    dates = ["0000-00-00", "2024-00-17", "2024-03-00", "2023-02-29", "2024-04-31"]
    days = ["2024-02-29", "2000-02-29", "0000-02-29", "2023-12-31", "9999-01-01"]
    zero = "'0000-00-00 00:00:00'"
    bad = ", ".join(f"({n}, '{each}', '{each} 01:02:03.5', {zero})" for n, each in enumerate(dates))
    good = ", ".join(f"({n + 10}, '{each}', '{each}', NULL)" for n, each in enumerate(days))
    pair.at_source(f"INSERT INTO {{}} VALUES {bad}, {good}, (20, NULL, NULL, NULL)")
    nulls = ", ".join(f"({n}, NULL, NULL, NULL)" for n in range(len(dates)))
    pair.at_sink(f"INSERT INTO {{}} VALUES {nulls}, {good}, (20, NULL, NULL, NULL)")
    nulled = {"zero_dates": "null"}
    assert pair.verify(options=nulled).equal
    assert pair.verify().tables[0].different == len(dates)
    pair.at_sink("UPDATE {} SET d = NULL WHERE id = 10")
    pair.at_sink("UPDATE {} SET t = '2024-01-01 00:00:00' WHERE id = 0")
    (table,) = pair.verify(options=nulled, values=True).tables
    found = {(sample.key, str(sample.columns[0]).partition(":")[0]) for sample in table.samples}
    assert found == {("0", "t"), ("10", "d")}


def test_two_bytes_of_one_character_are_no_difference(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(9)) CHARACTER SET sjis")
    pair.at_source("INSERT INTO {} VALUES (1, _sjis x'433A5C74')")
    pair.at_sink("INSERT INTO {} VALUES (1, 'C:\\\\t')")
    with source(pair.here) as here, source(pair.there) as there:
        stored = [
            query(side, f"SELECT HEX(v) FROM {table}")[0][0]
            for side, table in ((here, pair.table), (there, pair.target))
        ]
    assert stored == ["433A5C74", "433A815F74"]
    assert pair.verify().equal
    pair.at_sink("UPDATE {} SET v = 'C:/t'")
    assert not pair.verify().equal


CHANGES = {
    "NULL for the empty text": "v = NULL WHERE id = 2",
    "the last bit of a FLOAT": "f = 16777218 WHERE id = 2",
    "a microsecond": "ti = '-838:59:58.000002' WHERE id = 1",
    "a letter's case": "v = 'Ü' WHERE id = 1",
    "the end of a long text": "lt = '漢 ' WHERE id = 1",
    "a zero byte": "vb = x'616200' WHERE id = 1",
    "a moved boundary": "c = '', v = '' WHERE id = 1",
    "the order of a point": "p = ST_GeomFromText('POINT(2 1)') WHERE id = 1",
    "JSON null for NULL": "js = NULL WHERE id = 3",
    "a bit": "b = b'1010' WHERE id = 1",
    "a zero date for NULL": "da = NULL WHERE id = 2",
}


def test_a_change_of_any_value_is_seen(pair: Pair) -> None:
    pair.both(f"CREATE TABLE {{}} ({EVERY_TYPE})")
    for name, change in CHANGES.items():
        pair.both("DELETE FROM {}")
        with source(pair.here) as connection:
            query(connection, f"INSERT INTO {pair.table} VALUES {EVERY_VALUE}")
        with source(pair.there) as connection:
            query(connection, f"INSERT INTO {pair.target} VALUES {EVERY_VALUE}")
        pair.at_sink(f"UPDATE {{}} SET {change}")
        table = pair.verify().tables[0]
        assert (table.different, table.missing, table.extra) == (1, 0, 0), name


@DIGESTS
@pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB, FROM_MARIADB])
def test_values_that_differ_are_shown_where_they_are_asked_for(
    here: str,
    there: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    by_columns: bool,
) -> None:
    servers = [request.getfixturevalue(name) for name in (here, there)]
    pair = Pair(*servers, *map(fresh_database, servers), by_columns=by_columns)
    definition, nulls = EVERY_TYPE.replace("js JSON", "js LONGTEXT"), ", ".join(["NULL"] * 23)
    pair.both(f"CREATE TABLE {{}} ({definition}, `Long` TEXT)")
    values = EVERY_VALUE.replace("'null')", "'null', REPEAT('l', 300))")
    values = values.replace("}'),", "}', 'x'),").replace("'[]'),", "'[]', 'y'),")
    for side, table in ((pair.here, pair.table), (pair.there, pair.target)):
        with source(side) as connection:
            query(connection, f"INSERT INTO {table} VALUES {values}, (4, {nulls}, NULL)")
    assert pair.verify(values=True).equal
    pair.at_sink("UPDATE {} SET v = NULL, e = 'a', vb = x'6100', g = 0.25 WHERE id = 1")
    pair.at_sink("UPDATE {} SET `Long` = '', p = ST_GeomFromText('POINT(1 2)') WHERE id = 3")
    pair.at_sink("UPDATE {} SET u = 18446744073709551615, b = 3, da = '2024-02-31' WHERE id = 4")
    pair.at_sink("DELETE FROM {} WHERE id = 2")
    found = {sample.key: sample for sample in pair.verify(values=True).tables[0].samples}
    shown = {key: [str(column) for column in sample.columns] for key, sample in found.items()}
    assert shown == {
        "1": [
            "g: '0.30000000000000004' at the source, '0.25' at the sink",
            "v: 'ü' at the source, NULL at the sink",
            "e: 'b' at the source, 'a' at the sink",
            "vb: '0x6162' at the source, '0x6100' at the sink",
        ],
        "2": [],
        "3": [
            f"p: NULL at the source, '0x{POINT}' at the sink",
            f"Long: '{'l' * 200}...' at the source, '' at the sink",
        ],
        "4": [
            "u: NULL at the source, '18446744073709551615' at the sink",
            "b: NULL at the source, '3' at the sink",
            "da: NULL at the source, '2024-02-31' at the sink",
        ],
    }
    assert not any(sample.columns for sample in pair.verify().tables[0].samples)


@DIGESTS
@pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB, FROM_MARIADB])
def test_the_empty_member_of_an_enum_is_not_the_value_that_is_none(
    here: str,
    there: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    by_columns: bool,
) -> None:
    servers = [request.getfixturevalue(name) for name in (here, there)]
    pair = Pair(*servers, *map(fresh_database, servers), by_columns=by_columns)
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, e ENUM('a', ''))")
    pair.both("INSERT INTO {} VALUES (1, 0), (2, ''), (3, 'a')")
    assert pair.verify().equal
    pair.at_sink("UPDATE {} SET e = 2 - e")  # the first two change places
    table = pair.verify().tables[0]
    assert (table.different, table.missing, table.extra) == (2, 0, 0)


@pytest.mark.parametrize(
    "key",
    [
        "a INT, b VARCHAR(20) COLLATE utf8mb4_unicode_ci, PRIMARY KEY (b, a)",
        "a INT, b VARCHAR(20), PRIMARY KEY (a)",
        "a INT, b VARCHAR(20), PRIMARY KEY (b(9), a)",
        "a FLOAT, b VARCHAR(20), PRIMARY KEY (a)",
    ],
)
def test_rows_missing_extra_and_different_are_found_under_any_key(pair: Pair, key: str) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    generator = random.Random(seed)
    columns, _, primary = key.partition(", PRIMARY")
    pair.both(f"CREATE TABLE {{}} ({columns}, v INT, PRIMARY{primary})")
    keys = [(number, f"{generator.choice('aBcDé')}{number}") for number in range(3000)]
    listed = ", ".join(f"({a}, '{b}', 0)" for a, b in keys)
    pair.both(f"INSERT INTO {{}} VALUES {listed}")
    lost, extra, changed = generator.sample(range(3000), 3)
    pair.at_sink(f"DELETE FROM {{}} WHERE a = {lost}")
    pair.at_source(f"DELETE FROM {{}} WHERE a = {extra}")
    pair.at_sink(f"UPDATE {{}} SET v = 1 WHERE a = {changed}")
    pair.at_sink("INSERT INTO {} VALUES (999999, 'zzz', 0), (-5, '', 0)")
    report = pair.verify(chunk_rows=200)
    table = report.tables[0]
    assert not report.equal
    assert (table.missing, table.extra, table.different) == (1, 3, 1)
    assert (table.rows_source, table.rows_sink) == (2999, 3001)
    assert table.equal_rows == 2997
    assert {sample.kind for sample in table.samples} == set(DifferenceKind)


def test_a_range_that_differs_is_narrowed_to_its_rows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_module, "_LEAF_ROWS", 10)
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    listed = ", ".join(f"({number}, 0)" for number in range(2000))
    pair.both(f"INSERT INTO {{}} VALUES {listed}")
    pair.at_sink("UPDATE {} SET v = 1 WHERE id IN (0, 777, 1999)")
    table = pair.verify().tables[0]
    assert {sample.key for sample in table.samples} == {"0", "777", "1999"}
    assert table.different == 3


def test_an_empty_source_finds_all_the_sink_has(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY)")
    pair.at_sink("INSERT INTO {} VALUES (1), (2), (3)")
    table = pair.verify().tables[0]
    assert (table.extra, table.rows_source, table.rows_sink) == (3, 0, 3)


def test_rows_still_on_their_way_are_not_reported(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    pair.both("INSERT INTO {} VALUES (1, 0), (2, 0), (3, 0)")
    pair.at_source("UPDATE {} SET v = 1 WHERE id = 1")
    pair.at_source("INSERT INTO {} VALUES (4, 0)")
    pair.at_source("DELETE FROM {} WHERE id = 3")

    def stream_passes() -> None:
        pair.at_sink("REPLACE INTO {} VALUES (1, 1), (4, 0)")
        pair.at_sink("DELETE FROM {} WHERE id = 3")

    report = pair.verify(recheck=stream_passes)
    assert report.equal
    assert report.unsettled == 0


def test_a_row_that_never_stands_still_is_neither_equal_nor_different(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    pair.both("INSERT INTO {} VALUES (1, 0), (2, 0)")
    pair.at_source("UPDATE {} SET v = 1 WHERE id = 1")

    def another_change() -> None:
        pair.at_source("UPDATE {} SET v = v + 1 WHERE id = 1")

    report = pair.verify(recheck=another_change)
    assert report.equal
    assert report.unsettled == 1
    assert "still changing" in str(report.tables[0])


def test_a_lost_change_is_reported_though_other_rows_change(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    pair.both("INSERT INTO {} VALUES (1, 0), (2, 0)")
    pair.at_source("UPDATE {} SET v = 1")

    def stream_loses_row_2() -> None:
        pair.at_sink("UPDATE {} SET v = 1 WHERE id = 1")

    report = pair.verify(recheck=stream_loses_row_2)
    assert not report.equal
    assert [(s.kind, s.key) for s in report.tables[0].samples] == [(DifferenceKind.DIFFERENT, "2")]


def test_a_table_that_differs_everywhere_ends_early(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_MOST_CANDIDATES", 100)
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY, v INT)")
    listed = ", ".join(f"({number}, 0)" for number in range(1000))
    pair.at_source(f"INSERT INTO {{}} VALUES {listed}")
    table = pair.verify(chunk_rows=60).tables[0]
    assert table.truncated
    assert not table.equal
    assert table.missing < 1000
    assert str(table).startswith("at least")


def test_a_table_the_sink_lacks_is_named(pair: Pair) -> None:
    pair.at_source("CREATE TABLE {} (id INT PRIMARY KEY)")
    with pytest.raises(RefusedError, match="copy does not exist on the sink"):
        pair.verify()


def test_only_the_wanted_tables_are_compared(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY)")
    assert pair.verify(tables=[TableId("other", "t")]).tables == ()


def test_a_report_is_plain_json(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id VARBINARY(4) PRIMARY KEY)")
    pair.at_sink("INSERT INTO {} VALUES (x'00ff')")
    form = json.loads(json.dumps(pair.verify().to_json()))
    assert form["equal"] is False
    assert form["tables"][0]["samples"] == [{"kind": "extra", "key": "00ff"}]


def test_generated_columns_are_the_sinks_own(pair: Pair) -> None:
    pair.at_source("CREATE TABLE {} (id INT PRIMARY KEY, g INT AS (id + 1))")
    pair.at_sink("CREATE TABLE {} (id INT PRIMARY KEY, g INT AS (id + 2))")
    pair.both("INSERT INTO {} (id) VALUES (1)")
    assert pair.verify().equal


def test_a_session_of_a_writer_may_be_open_meanwhile(pair: Pair) -> None:
    pair.both("CREATE TABLE {} (id INT PRIMARY KEY)")
    with sink(pair.there) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {pair.target} VALUES (1)")
        assert pair.verify().equal
        cursor.execute("ROLLBACK")
