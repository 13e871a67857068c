"""Both digests find the same rows different, and the same rows equal, for every type."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.columns.verify_port import BY_COLUMNS
from airflow_cdc_provider.engine.verify import comparison
from tests.servers.given import SqlServer
from tests.systems.mysql.verify import COLUMNS, FROM_MARIADB, MYSQL, TO_MARIADB, Pair


def verdicts(pair: Pair) -> tuple[dict[str, list[str]], ...]:
    """Return by each digest the columns that differ in each row."""
    found = []
    for by_columns in (False, True):
        (table,) = pair.verify(by_columns=by_columns, values=True).tables
        assert (table.digest == BY_COLUMNS) == bool(table.why_digest) == by_columns
        assert table.different == len(table.samples), "rows are missing or extra"
        found.append({each.key: [c.column for c in each.columns] for each in table.samples})
    return tuple(found)


@pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB, FROM_MARIADB])
def test_both_digests_agree_on_every_type(
    here: str,
    there: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "_SAMPLES", 100)
    servers = [request.getfixturevalue(name) for name in (here, there)]
    pair = Pair(*servers, *map(fresh_database, servers))
    listed = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    names = ", ".join(COLUMNS)
    pair.both(f"CREATE TABLE {{}} (id INT PRIMARY KEY, {listed}) CHARACTER SET utf8mb4")
    for row, values in enumerate(([v for _, v, _ in COLUMNS.values()], ["NULL"] * len(COLUMNS))):
        pair.both(f"INSERT INTO {{}} (id, {names}) VALUES ({row}, {', '.join(values)})")
    for row in range(2, 2 + len(COLUMNS)):
        pair.both(
            f"INSERT INTO {{0}} (id, {names}) SELECT {row}, {names} FROM {{0}} x WHERE id = 0"
        )
    assert verdicts(pair) == ({}, {})

    planted = {}
    for row, (name, (_, _, other)) in enumerate(COLUMNS.items(), 2):
        pair.at_sink(f"UPDATE {{}} SET {name} = {other} WHERE id = {row}")
        planted[str(row)] = [name]
    assert verdicts(pair) == (planted, planted)

    pair.both("DELETE FROM {} WHERE id > 1")
    pair.at_sink("UPDATE {} SET v = '', vb = '', tx = '', bl = '', t = 0, g = 0 WHERE id = 1")
    expected = {"1": ["t", "g", "v", "tx", "vb", "bl"]}
    assert verdicts(pair) == (expected, expected)


def test_rows_that_lost_their_zeros_behind_the_point_are_equal_by_columns(
    mysql_server: SqlServer, mysql_sink: SqlServer, mysql_database: str, sink_database: str
) -> None:
    pair = Pair(mysql_server, mysql_sink, mysql_database, sink_database, by_columns=True)
    pair.at_source("CREATE TABLE {} (id INT PRIMARY KEY, d DECIMAL(9,4), u BIGINT UNSIGNED)")
    pair.at_sink("CREATE TABLE {} (id BIGINT PRIMARY KEY, d DECIMAL(30,10), u DECIMAL(20,0))")
    pair.both("INSERT INTO {} VALUES (1, 1.5, 18446744073709551615), (2, 20, 0)")
    assert pair.verify().equal
    pair.at_sink("UPDATE {} SET u = u - 1 WHERE id = 1")
    assert pair.verify().tables[0].different == 1
