"""Rows at the sink are the source's again after a resync, whoever carries it out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until


def test_rows_that_are_wrong_at_the_sink_are_right_after_a_resync(shop: Shop, say: Say) -> None:
    drift_and_resync(shop, say)


class TestFromMariaDb:
    """The same from a server of the other family."""

    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_rows_that_are_wrong_are_right_after_a_resync(self, shop: Shop, say: Say) -> None:
        drift_and_resync(shop, say)


def drift_and_resync(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("UPDATE orders SET note = 'drifted' WHERE id = 2")
        connection.cursor().execute("DELETE FROM orders WHERE id = 3")
        connection.cursor().execute("INSERT INTO orders VALUES (9, 'too many', 90)")
        connection.commit()
    different = say("verify", "--settle-s", "0")
    assert different.code == 1
    assert f"to read it again: resync --table {shop.database}.orders" in different.out
    shop.at_source("INSERT INTO orders VALUES (4, 'late', 40)")
    said = say("resync", "--table", f"{shop.database}.orders", "--yes", "--wait")
    assert said.code == 0, said.err + said.out
    assert "done; 4 rows in " in said.out
    assert say("verify", "--settle-s", "0").code == 0
    assert say("status", "--json").form["requests"] == []
    assert not say("status", "--json").form["owned"]


def test_only_the_range_that_was_asked_for_is_read_again(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("UPDATE orders SET note = 'drifted'")
        connection.commit()
    table = f"{shop.database}.orders"
    said = say(
        "resync", "--table", table, "--from-key", "2", "--to-key", "3", "--yes", "--wait", "--json"
    )
    assert said.code == 0, said.err
    request = said.form["request"]
    assert (request["status"], request["rows"]) == ("done", 1)
    notes = shop.sink_rows("SELECT id, note FROM orders ORDER BY id")
    assert notes == [(1, "drifted"), (2, "two"), (3, "drifted")]


def test_a_key_from_a_variable_that_is_not_set_is_no_open_end(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    table = f"{shop.database}.orders"
    for option in ("--from-key=", "--to-key="):
        said = say("resync", "--table", table, option, "--yes")
        assert said.code == 2
        assert f"{option}: '' is no int for id".replace("=", "") in said.err
    assert say("requests", "--json").form["requests"] == []


def test_a_request_that_waited_is_carried_out_by_the_next_run(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("DELETE FROM orders")
        connection.commit()
    assert say("resync", "--yes", "--id", "waiting").code == 0
    ran = say("run", "--until", "caught-up")
    assert ran.code == 0, ran.err
    (request,) = say("requests", "--json").form["requests"]
    assert (request["status"], request["rows"]) == ("done", 3)
    assert say("verify", "--settle-s", "0").code == 0


ROWS = 25_000
"""Three splits of a request."""


@pytest.fixture
def many(shop: Shop, say: Say) -> str:
    """A table of three splits that is in the sink, and has drifted there in all of them."""
    rows = ", ".join(f"({number}, 'right')" for number in range(1, ROWS + 1))
    shop.at_source("CREATE TABLE many (id INT PRIMARY KEY, note VARCHAR(9))")
    shop.at_source(f"INSERT INTO many VALUES {rows}")
    assert say("run", "--until", "caught-up").code == 0
    shop.sink.execute("UPDATE many SET note = 'drifted'", database=shop.target)
    return f"{shop.database}.many"


@contextmanager
def held_up(shop: Shop, key: int) -> Iterator[None]:
    """Hold a row of the sink, so that nothing is joined from its split on."""
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.begin()
        connection.cursor().execute(f"SELECT * FROM many WHERE id = {key} FOR UPDATE")
        yield


@contextmanager
def started(shop: Shop, *options: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "airflow_cdc_provider", "resync", str(shop.path), *options]
    environment = {**os.environ, **shop.environment}
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as command:
        try:
            yield command
        finally:
            command.kill()


def right_rows(shop: Shop) -> int:
    ((rows,),) = shop.sink_rows("SELECT COUNT(*) FROM many WHERE note = 'right'")
    assert isinstance(rows, int)
    return rows


def test_a_command_that_is_killed_is_gone_on_with_under_the_same_id(
    shop: Shop, say: Say, many: str
) -> None:
    options = "--table", many, "--yes", "--wait", "--id", "nightly"
    with held_up(shop, 15_000), started(shop, *options):
        wait_until(lambda: right_rows(shop) > 0)
    assert 0 < right_rows(shop) < ROWS
    assert say(*("resync", *options)).code == 0
    assert right_rows(shop) == ROWS
    (request,) = say("requests", "--json").form["requests"]
    assert (request["status"], request["rows"], request["tables_done"]) == ("done", ROWS, 1)


def test_what_is_joined_before_a_cancel_stays_and_the_rest_is_not_read(
    shop: Shop, say: Say, many: str
) -> None:
    options = "--table", many, "--yes", "--wait", "--id", "mistake"
    with started(shop, *options) as command:
        with held_up(shop, 15_000):
            wait_until(lambda: right_rows(shop) > 0)
            assert "to be cancelled" in say("cancel", "mistake").out
            time.sleep(1)  # it asks every half second, between two splits
        said, _ = command.communicate(timeout=60)
    assert command.returncode == 3, said
    assert "CDC-REQ-001 request mistake was cancelled" in said
    (request,) = say("requests", "--json").form["requests"]
    assert request["status"] == "cancelled"
    assert 0 < right_rows(shop) == request["rows"] < ROWS


def test_a_request_that_is_cancelled_while_nobody_is_at_work_ends_with_the_next_run(
    shop: Shop, say: Say, many: str
) -> None:
    with (
        held_up(shop, 15_000),
        started(shop, "--table", many, "--yes", "--wait", "--id", "left"),
    ):
        wait_until(lambda: right_rows(shop) > 0)
    before = right_rows(shop)
    assert "to be cancelled" in say("cancel", "left").out
    assert say("run", "--until", "caught-up").code == 0
    assert states(say) == {"left": "cancelled"}
    assert 0 < right_rows(shop) == before < ROWS
    assert say("resync", "--table", many, "--yes", "--wait").code == 0
    assert right_rows(shop) == ROWS


class SideBySide:
    """Requests of different tables do not wait for each other."""

    def test_a_table_that_cannot_be_read_just_now_holds_up_no_other(
        self, shop: Shop, say: Say, many: str
    ) -> None:
        shop.sink.execute("UPDATE orders SET note = 'drifted'", database=shop.target)
        orders = f"{shop.database}.orders"
        for name, table in (("held", many), ("behind it", many), ("beside it", orders)):
            assert (
                say("resync", "--table", table, "--yes", "--id", name.replace(" ", "-")).code == 0
            )
        with closing(shop.source.connect(database=shop.database)) as connection:
            connection.cursor().execute("LOCK TABLES many WRITE")
            with started(
                shop, "--table", orders, "--yes", "--wait", "--id", "beside-it"
            ) as command:
                wait_until(lambda: states(say)["beside-it"] == "done")
                assert states(say) == {"held": "reading", "behind-it": "asked", "beside-it": "done"}
                assert shop.sink_rows("SELECT COUNT(*) FROM orders WHERE note = 'drifted'") == [
                    (0,)
                ]
                connection.cursor().execute("UNLOCK TABLES")
                said, _ = command.communicate(timeout=60)
        assert command.returncode == 0, said
        assert set(states(say).values()) == {"done"}
        assert right_rows(shop) == ROWS


def states(say: Say) -> dict[str, str]:
    return {each["id"]: each["status"] for each in say("requests", "--json").form["requests"]}


class TestSideBySideFromMySql(SideBySide):
    pass


class TestSideBySideFromMariaDb(SideBySide):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class FreedRows:
    """A row that stood in the way of another is deleted until its own range is read."""

    @pytest.fixture
    def swapped(self, shop: Shop, say: Say) -> str:
        """The first and the last of three splits' rows have swapped unique values at the sink."""
        values = ", ".join(f"({number}, {number})" for number in range(1, ROWS + 1))
        shop.at_source("CREATE TABLE many (id INT PRIMARY KEY, code INT, day DATE, UNIQUE (code))")
        shop.at_source(f"INSERT INTO many (id, code) VALUES {values}")
        assert say("run", "--until", "caught-up").code == 0
        at_sink(shop, "DELETE FROM many WHERE id = 15000")
        for key, code in ((1, -1), (ROWS, 1), (1, ROWS)):
            at_sink(shop, f"UPDATE many SET code = {code} WHERE id = {key}")
        return f"{shop.database}.many"

    def test_it_is_brought_back_when_the_request_is_cancelled(
        self, shop: Shop, say: Say, swapped: str
    ) -> None:
        options = "--table", swapped, "--yes", "--wait", "--id", "swapped"
        with started(shop, *options) as command:
            with held_up(shop, 15_000):  # its gap, so that it cannot be inserted
                wait_until(lambda: code_of(shop, 1) == 1)
                assert code_of(shop, ROWS) is None
                assert say("cancel", "swapped").code == 0
                time.sleep(1)  # it asks every half second, between two splits
            command.communicate(timeout=60)
        assert command.returncode == 3
        assert code_of(shop, 1) == 1
        assert code_of(shop, ROWS) == ROWS

    def test_it_is_brought_back_when_the_request_fails(
        self, shop: Shop, say: Say, swapped: str
    ) -> None:
        with closing(shop.source.connect(database=shop.database)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET sql_mode = '', sql_log_bin = 0")  # the stream never meets it
            cursor.execute("UPDATE many SET day = '0000-00-00' WHERE id = 15000")
            connection.commit()
        said = say("resync", "--table", swapped, "--yes", "--wait")
        assert said.code == 3, said.out
        assert "0000-00-00" in said.err
        assert code_of(shop, 1) == 1
        assert code_of(shop, ROWS) == ROWS


class TestFreedRowsInMySql(FreedRows):
    pass


class TestFreedRowsInMariaDb(FreedRows):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def at_sink(shop: Shop, statement: str) -> None:
    shop.sink.execute(statement, database=shop.target)


def code_of(shop: Shop, key: int) -> object:
    found = shop.sink_rows(f"SELECT code FROM many WHERE id = {key}")
    return found[0][0] if found else None


def test_a_request_that_fails_is_told_with_its_cause_and_the_pipeline_goes_on(
    shop: Shop, say: Say, many: str
) -> None:
    refuse = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'"
    shop.sink.execute(
        f"CREATE TRIGGER no BEFORE INSERT ON many FOR EACH ROW {refuse}", database=shop.target
    )
    said = say("resync", "--table", many, "--yes", "--wait")
    assert said.code == 3, said.out
    assert "CDC-REQ-001" in said.err
    assert "tables of the sink were changed there, and may alter or refuse rows" in said.err
    shop.sink.execute("DROP TRIGGER no", database=shop.target)
    shop.at_source("UPDATE many SET note = 'new' WHERE id = 7")
    assert say("run", "--until", "caught-up").code == 0
    assert shop.sink_rows("SELECT note FROM many WHERE id IN (7, 8)") == [("new",), ("drifted",)]
    assert say("resync", "--table", many, "--yes", "--wait").code == 0
    assert right_rows(shop) == ROWS - 1
