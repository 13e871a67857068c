"""Rows that verify finds different are read again, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.engine.verify import comparison
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import Lake
from tests.servers.given import SqlServer

ROWS = 12_000


@pytest.fixture
def copied(shop: Shop, say: Say) -> None:
    """The shop is at the sink, with a table of some thousand rows and one whose keys are texts."""
    shop.at_source("CREATE TABLE many (id INT PRIMARY KEY, note VARCHAR(9))")
    shop.at_source("CREATE TABLE texts (name VARCHAR(20) PRIMARY KEY, note VARCHAR(9))")
    values = ", ".join(f"({number}, 'right')" for number in range(1, ROWS + 1))
    shop.at_source(f"INSERT INTO many VALUES {values}")
    shop.at_source(
        "INSERT INTO texts VALUES ('a', 'right'), ('b', 'right'), ('C', 'right'), ('ß  é', 'right')"
    )
    shop.at_source(
        "CREATE TABLE pairs (name CHAR(36), at DATETIME(3), note VARCHAR(9), "
        "PRIMARY KEY (name, at))"
    )
    shop.at_source(
        "INSERT INTO pairs SELECT 'x', '2024-01-01' + INTERVAL id SECOND, 'right' FROM many"
    )
    assert say("run", "--until", "caught-up").code == 0


@pytest.fixture
def streamed(copied: None, shop: Shop, say: Say) -> None:
    """The stream has come to the log's end, so that rows cannot be late."""
    shop.at_source("INSERT INTO orders VALUES (4, 'last', 40)")
    assert say("run", "--until", "caught-up").code == 0


def at_sink(shop: Shop, *statements: str) -> None:
    for statement in statements:
        shop.sink.execute(statement, database=shop.target)


def drift(shop: Shop) -> None:
    at_sink(
        shop,
        "UPDATE many SET note = 'drifted' WHERE id IN (5, 6, 7000)",
        "DELETE FROM many WHERE id IN (7, 11000)",
        "INSERT INTO many VALUES (20000, 'extra')",
        "UPDATE texts SET note = 'drifted' WHERE name IN ('b', 'ß  é')",
        "UPDATE texts SET name = 'c' WHERE name = 'C'",
        "UPDATE pairs SET note = 'drifted' WHERE at = '2024-01-01 00:00:07'",
        "DELETE FROM pairs WHERE at = '2024-01-01 00:00:09'",
        "INSERT INTO pairs VALUES ('y', '2024-01-01 00:00:07.125', 'extra')",
    )


class Repairs:
    """Whatever the family of the source."""

    @pytest.mark.usefixtures("copied")
    def test_rows_that_differ_are_read_again_and_then_equal(self, shop: Shop, say: Say) -> None:
        drift(shop)
        looked = say("verify", "--values")
        assert looked.out.count("note: 'right' at the source, 'drifted' at the sink") == 6
        said = say("verify", "--repair", "--yes", "--wait")
        assert said.code == 0, said.err + said.out
        many, texts, pairs = (f"{shop.database}.{name}" for name in ("many", "texts", "pairs"))
        assert f"to repair {many}: 4 ranges of its key (about 5 rows)" in said.out
        assert f"to repair {texts}: 4 rows by their keys (about 3 rows)" in said.out
        assert f"to repair {pairs}: 3 rows by their keys (about 2 rows)" in said.out
        assert "5 rows written, 1 deleted" in said.out
        found = {each["tables"][0]: each for each in requests(say)}
        assert found[many]["rows"] == 5
        assert (found[many]["ranges"], found[many]["keys"]) == (4, None)
        assert (found[texts]["keys"], found[pairs]["keys"]) == (4, 3)
        assert (found[texts]["rows"], found[pairs]["rows"]) == (4, 2)
        assert len(found) == 3
        assert say("verify", "--settle-s", "0").code == 0

    @pytest.mark.usefixtures("copied")
    def test_rows_that_are_only_late_are_not_repaired(self, shop: Shop, say: Say) -> None:
        shop.at_source("UPDATE many SET note = 'late' WHERE id < 10")
        said = say("verify", "--repair", "--yes")
        assert said.code == 2, said.out
        assert "they may only be late" in said.err
        said = say("verify", "--repair", "--yes", "--wait")
        assert said.code == 0, said.err
        assert requests(say) == []
        assert shop.sink_rows("SELECT COUNT(*) FROM many WHERE note = 'late'") == [(9,)]


class TestFromMySql(Repairs):
    @pytest.mark.usefixtures("streamed")
    def test_what_is_not_confirmed_is_not_asked_for(self, shop: Shop, say: Say) -> None:
        drift(shop)
        said = say("verify", "--repair")
        assert said.code == 2, said.out
        assert "4 ranges of its key" in said.out
        assert "not confirmed" in said.err
        assert requests(say) == []

    @pytest.mark.usefixtures("streamed")
    def test_a_repair_that_nobody_waits_for_is_asked_and_the_rows_still_differ(
        self, shop: Shop, say: Say
    ) -> None:
        drift(shop)
        said = say("verify", "--repair", "--yes", "--table", f"{shop.database}.many", "--json")
        assert said.code == 1, said.err
        (request,) = said.form["requests"]
        assert (request["status"], request["ranges"]) == ("asked", 4)
        assert say("run", "--until", "caught-up").code == 0
        assert say("verify", "--table", f"{shop.database}.many", "--settle-s", "0").code == 0
        assert say("verify", "--settle-s", "0").code == 1

    @pytest.mark.usefixtures("copied")
    def test_many_rows_that_differ_are_one_request_of_few_ranges(
        self, shop: Shop, say: Say
    ) -> None:
        at_sink(shop, "UPDATE many SET note = 'drifted' WHERE id % 4 = 1 AND id < 9000")
        said = say("verify", "--repair", "--yes", "--wait")
        assert said.code == 0, said.err + said.out
        (request,) = requests(say)
        assert request["ranges"] == 100
        assert request["rows"] == 8_700  # of 8,997; the 99 gaps of three rows are left out


class TestFromMariaDb(Repairs):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def test_a_repair_is_refused_where_none_is_asked_for(shop: Shop, say: Say) -> None:
    assert shop.path.exists()
    said = say("verify", "--wait")
    assert said.code == 2
    assert "add --repair" in said.err


def requests(say: Say) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = say("requests", "--json").form["requests"]
    return found


class TestAtMariaDb:
    """MySQL has no such types."""

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.mark.usefixtures("copied")
    def test_rows_of_a_uuid_are_read_again_by_their_keys(self, shop: Shop, say: Say) -> None:
        shop.at_source("CREATE TABLE named (id UUID PRIMARY KEY, note VARCHAR(9))")
        shop.at_source("INSERT INTO named SELECT UUID(), 'right' FROM many LIMIT 500")
        assert say("run", "--until", "caught-up").code == 0
        at_sink(
            shop,
            "UPDATE named SET note = 'drifted' ORDER BY id LIMIT 3",
            "DELETE FROM named ORDER BY id DESC LIMIT 1",
            "INSERT INTO named VALUES ('00000000-0000-4000-8000-000000000001', 'extra')",
        )
        said = say("verify", "--repair", "--yes", "--wait", "--table", f"{shop.database}.named")
        assert said.code == 0, said.err + said.out
        assert "named: 5 rows by their keys (about 4 rows)" in said.out


def test_of_a_lake_what_cannot_be_repaired_is_told_and_stays_different(
    shop: Shop, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_MOST_KEYS", 2)
    for table in ("few", "many"):
        shop.at_source(f"CREATE TABLE {table} (name VARCHAR(20) PRIMARY KEY, note VARCHAR(9))")
        shop.at_source(f"INSERT INTO {table} VALUES ('a', 'x'), ('b', 'x'), ('c', 'x')")
    lake = Lake.of(shop, "iceberg")
    assert say("run", "--until", "caught-up").code == 0
    lake.unlogged("UPDATE few SET note = 'y' WHERE name = 'b'", "UPDATE many SET note = 'y'")
    lake.unlogged("UPDATE orders SET note = 'y' WHERE id = 2")
    said = say("verify", "--repair", "--yes", "--wait")
    assert said.code == 1, said.err + said.out
    few, many, orders = (f"{shop.database}.{name}" for name in ("few", "many", "orders"))
    assert f"to repair {few}: one row by its key" in said.out
    assert f"to repair {orders}: one row by its key" in said.out
    assert "no repair by keys is possible: the order of its key is the server's own" in said.out
    assert f"to read it again: reset --table {many}" in said.out
    looked = say("verify")
    assert looked.code == 1
    assert f"{few} -> {few}: equal" in looked.out
    assert say("resync", "--table", many, "--yes").code == 2
    assert say("resync", "--table", many, "--dry-run").code == 2
    assert say("reset", "--table", many, "--yes").code == 0
    assert say("run", "--until", "caught-up").code == 0
    assert say("verify").code == 0
