"""Rows whose column lies in an interval are the source's again after a backfill."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

JULY = "--column", "day", "--from", "2026-07-01", "--to", "2026-08-01"


@pytest.fixture
def days(shop: Shop, say: Say) -> str:
    """A table that is in the sink, and has drifted there in July and in June."""
    shop.at_source("CREATE TABLE days (id INT PRIMARY KEY, day DATE, note VARCHAR(20), KEY (day))")
    shop.at_source(
        "INSERT INTO days VALUES (1, '2026-06-30', 'june'), (2, '2026-07-01', 'july'), "
        "(3, '2026-07-31', 'july'), (4, '2026-08-01', 'august'), (5, NULL, 'never')"
    )
    assert say("run", "--until", "caught-up").code == 0
    for statement in (
        "UPDATE days SET note = 'drifted' WHERE id = 1",
        "DELETE FROM days WHERE id = 2",
        "UPDATE days SET day = '2026-07-15' WHERE id IN (4, 5)",
        "INSERT INTO days VALUES (6, '2026-07-20', 'extra'), (7, '2026-08-20', 'extra')",
    ):
        shop.sink.execute(statement, database=shop.target)
    return f"{shop.database}.days"


class Backfills:
    """Whatever the family of the source."""

    def test_an_interval_is_the_sources_again_and_the_rest_is_left_alone(
        self, shop: Shop, say: Say, days: str
    ) -> None:
        told = say("backfill", "--table", days, *JULY, "--dry-run")
        assert told.code == 0, told.err
        assert f"{days}: about 2 rows at the source, about 4 rows at the sink" in told.out
        assert say("requests", "--json").form["requests"] == []
        said = say("backfill", "--table", days, *JULY, "--yes", "--wait", "--id", "july")
        assert said.code == 0, said.err + said.out
        assert f"july: backfill of {days} where day in [2026-07-01, 2026-08-01), done" in said.out
        rows = shop.sink_rows("SELECT id, CAST(day AS CHAR), note FROM days ORDER BY id")
        assert rows == [
            (1, "2026-06-30", "drifted"),
            (2, "2026-07-01", "july"),
            (3, "2026-07-31", "july"),
            (4, "2026-08-01", "august"),
            (5, None, "never"),
            (7, "2026-08-20", "extra"),
        ]
        (request,) = say("requests", "--json").form["requests"]
        assert request["kind"] == "backfill"
        assert request["interval"] == ["day", ["2026-07-01", "2026-08-01"]]
        again = say("backfill", "--table", days, *JULY, "--yes", "--wait")
        assert again.code == 0, again.err
        assert shop.sink_rows("SELECT COUNT(*) FROM days") == [(6,)]

    def test_an_interval_may_be_open_on_one_side(self, shop: Shop, say: Say, days: str) -> None:
        # the greatest value of all lies in no interval that ends
        shop.at_source("INSERT INTO days VALUES (10, '9999-12-31', 'last')")
        assert say("run", "--until", "caught-up").code == 0
        for statement in (
            "DELETE FROM days WHERE id = 10",
            "INSERT INTO days VALUES (11, '0001-01-01', 'extra'), (12, NULL, 'extra')",
        ):
            shop.sink.execute(statement, database=shop.target)
        ask = "backfill", "--table", days, "--column", "day", "--yes", "--wait"
        said = say(*ask, "--from", "2026-08-01", "--id", "on")
        assert said.code == 0, said.err
        assert f"on: backfill of {days} where day in [2026-08-01, +inf), done" in said.out
        ids = "SELECT id FROM days ORDER BY id"
        assert shop.sink_rows(ids) == [(n,) for n in (1, 3, 4, 5, 6, 10, 11, 12)]
        assert say(*ask, "--to", "2026-08-01").code == 0
        assert shop.sink_rows(ids) == [(n,) for n in (1, 2, 3, 4, 5, 10, 12)]
        notes = shop.sink_rows("SELECT note FROM days WHERE id IN (1, 5) ORDER BY id")
        assert notes == [("june",), ("never",)]
        said = say("resync", "--table", days, "--where", "day IS NULL", "--yes", "--wait")
        assert said.code == 0, said.err
        assert shop.sink_rows("SELECT id FROM days WHERE day IS NULL") == [(5,)]


class TestFromMySql(Backfills):
    def test_what_is_no_interval_is_refused(self, say: Say, days: str) -> None:
        for options, text in (
            (("note", "--from", "a", "--to", "b"), "the order of varchar is the"),
            (("dya", "--from", "a", "--to", "b"), "did you mean day?"),
            (("day", "--from", "2026-02-30", "--to", "2026-03-01"), "no such day"),
            (("day", "--from", "2026-03-01", "--to", "2026-03-01"), "no value of day"),
            (("day", "--from="), "--from: '' is no date"),
            (("day",), "an interval has an end on one side at least"),
        ):
            said = say("backfill", "--table", days, "--column", *options, "--yes")
            assert said.code == 2, said.out
            assert text in said.err
        assert say("requests", "--json").form["requests"] == []


class TestFromMariaDb(Backfills):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
