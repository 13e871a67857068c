"""Rows that meet a condition, on either side, are the source's again after a resync."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

OPEN = "state = 'open' AND amount > 10"


@pytest.fixture
def bills(shop: Shop, say: Say) -> str:
    """A table that is in the sink, and has drifted there."""
    shop.at_source(
        "CREATE TABLE bills (id INT PRIMARY KEY, state VARCHAR(9), amount INT, note VARCHAR(20))"
    )
    shop.at_source(
        "INSERT INTO bills VALUES (1, 'open', 20, 'a'), (2, 'open', 20, 'b'), (3, 'open', 5, 'c'), "
        "(4, 'paid', 20, 'd'), (5, 'paid', 20, 'e'), (6, NULL, 20, 'f'), (7, 'open', 30, 'g')"
    )
    assert say("run", "--until", "caught-up").code == 0
    for statement in (
        "UPDATE bills SET note = 'drifted' WHERE id IN (1, 5, 6)",  # 5, 6 meet it nowhere
        "UPDATE bills SET state = 'paid' WHERE id = 2",  # meets it at the source alone
        "DELETE FROM bills WHERE id = 7",
        "UPDATE bills SET amount = 50, note = 'drifted' WHERE id = 3",  # at the sink alone
        "UPDATE bills SET state = 'open' WHERE id = 4",
        "INSERT INTO bills VALUES (8, 'open', 99, 'extra'), (9, 'paid', 99, 'extra')",
    ):
        shop.sink.execute(statement, database=shop.target)
    return f"{shop.database}.bills"


class Conditions:
    """Whatever the family of the source."""

    def test_rows_that_meet_it_on_either_side_are_the_sources_and_others_are_left_alone(
        self, shop: Shop, say: Say, bills: str
    ) -> None:
        told = say("resync", "--table", bills, "--where", OPEN, "--dry-run")
        assert told.code == 0, told.err
        assert f"{bills}: about 3 rows at the source, about 4 rows at the sink" in told.out
        assert say("requests", "--json").form["requests"] == []
        said = say("resync", "--table", bills, "--where", OPEN, "--yes", "--wait", "--id", "open")
        assert said.code == 0, said.err + said.out
        assert f"open: resync of {bills} where {OPEN}, done" in said.out
        assert shop.sink_rows("SELECT * FROM bills ORDER BY id") == [
            (1, "open", 20, "a"),
            (2, "open", 20, "b"),
            (3, "open", 5, "c"),
            (4, "paid", 20, "d"),
            (5, "paid", 20, "drifted"),
            (6, None, 20, "drifted"),
            (7, "open", 30, "g"),
            (9, "paid", 99, "extra"),
        ]
        (request,) = say("requests", "--json").form["requests"]
        assert (request["kind"], request["condition"]) == ("resync", OPEN)
        again = say("resync", "--table", bills, "--where", "state IS NULL", "--yes", "--wait")
        assert again.code == 0, again.err
        assert shop.sink_rows("SELECT note FROM bills WHERE id IN (5, 6) ORDER BY id") == [
            ("drifted",),
            ("f",),
        ]


class TestFromMySql(Conditions):
    def test_within_a_range_of_keys_only_its_rows_are_read(
        self, shop: Shop, say: Say, bills: str
    ) -> None:
        part = "--from-key", "2", "--to-key", "4"
        said = say("resync", "--table", bills, "--where", OPEN, *part, "--yes", "--wait")
        assert said.code == 0, said.err
        rows = shop.sink_rows("SELECT id, state, amount FROM bills WHERE id < 5 ORDER BY id")
        assert rows == [(1, "open", 20), (2, "open", 20), (3, "open", 5), (4, "open", 20)]
        assert shop.sink_rows("SELECT COUNT(*) FROM bills WHERE id = 8") == [(1,)]

    def test_what_is_no_condition_is_refused_before_anything_is_asked(
        self, shop: Shop, say: Say, bills: str
    ) -> None:
        for text, why in (
            ("", "1 to 4,000 characters"),
            ("state = 'open'; DROP TABLE bills", "';' is not known"),
            ("id IN (SELECT 1)", "SELECT is no column"),
            ("RAND() < 0.5", "RAND(...) is not known to give the same"),
            ("staet = 'open'", "staet is no column"),
            ("state = ", "the source refuses the condition"),
        ):
            said = say("resync", "--table", bills, f"--where={text}", "--yes")
            assert said.code == 2, text
            assert why in said.err
        shop.sink.execute("ALTER TABLE bills RENAME COLUMN state TO other", database=shop.target)
        said = say("resync", "--table", bills, "--where", OPEN, "--yes")
        assert said.code == 2
        assert "state" in said.err
        everywhere = say("resync", "--where", "id = 1", "--yes")
        assert everywhere.code == 2
        assert "a range of keys is one table's, and so is a condition" in everywhere.err
        assert say("requests", "--json").form["requests"] == []

    def test_the_same_id_with_another_condition_is_refused(self, say: Say, bills: str) -> None:
        ask = "resync", "--table", bills, "--yes", "--id", "one", "--where"
        assert say(*ask, "id = 1").code == 0
        assert say(*ask, "id = 1").code == 0
        said = say(*ask, "id = 2")
        assert said.code == 2
        assert "request one is a resync of" in said.err


class TestFromMariaDb(Conditions):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
