"""Tables without a key in a lake: each row as often as the source has it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import Lake
from tests.pipeline.notes_without_key import NOTES, Notes
from tests.servers.given import SqlServer

SEED = random.SystemRandom().randrange(10_000)
PLAIN = ("n", "big", "small", "word", "latin", "day", "y")
"""Columns of which servers and readers print the same."""


class LakeNotes(Notes):
    """The same table, whose copy is in a lake."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.shop)
        self.lake = lake

    def is_equal(self) -> bool:
        """Compare a dump with what the query returns, and the whole rows by verify."""
        (verdict,) = self.lake.verified("notes").tables
        here, there = self._dumped(), self._held()
        assert verdict.equal == (here == there), (verdict, SEED)
        assert verdict.rows_source == here.total()
        return here == there

    def _dumped(self) -> Counter[tuple[str, ...]]:
        names = ", ".join(PLAIN)
        found = self.shop.source.execute(f"SELECT {names} FROM notes", database=self.shop.database)
        return Counter(tuple(map(str, row)) for row in found)

    def _held(self) -> Counter[tuple[str, ...]]:
        places = [self.names.index(name) for name in PLAIN]
        return Counter(tuple(row[at] for at in places) for row in self.lake.current("notes"))


@pytest.fixture(params=("iceberg", "delta"))
def notes(shop: Shop, request: pytest.FixtureRequest) -> LakeNotes:
    shop.at_source(NOTES)
    made = LakeNotes(Lake.of(shop, request.param))
    made.insert(300)
    return made


@pytest.fixture(params=("iceberg", "delta"))
def pairs(shop: Shop, request: pytest.FixtureRequest) -> Lake:
    shop.at_source("CREATE TABLE pairs (a INT, b INT, UNIQUE (a))")
    rows = ", ".join(f"({n if n < 50 else 'NULL'}, {n % 5})" for n in range(100))
    shop.at_source(f"INSERT INTO pairs VALUES {rows}")
    return Lake.of(shop, request.param)


class WithoutKey:
    def test_rows_come_and_go_as_often_as_at_the_source_while_it_is_written_to(
        self, notes: LakeNotes
    ) -> None:
        shop = notes.shop
        found = check(shop.run()).findings
        assert not [each for each in found if each.level is Level.BLOCK]
        (told,) = [each for each in found if each.code == "table.primary_key"]
        assert "read as one split" in told.why
        assert "makes the sink read" not in told.why
        with beside(notes.write, every_s=0.01):
            for _ in range(3):
                catch_up(shop)
            asked = ask_resync(shop.run(), resync_scope(shop.run(), [str(notes.table)]))
            catch_up(shop)
        run = catch_up(shop)
        done = run.store.request(run.name, asked.request_id)
        assert done is not None
        assert done.status is RequestStatus.DONE, done.error
        assert notes.is_equal()
        letters = notes.lake.operations("notes")
        assert "u" not in letters
        assert "t" not in letters  # all was there, so nothing was written again

    def test_its_definition_changes_and_it_is_emptied(self, pairs: Lake) -> None:
        shop = pairs.shop
        catch_up(shop)
        for statement in (
            "ALTER TABLE pairs ADD COLUMN c VARCHAR(9)",
            "ALTER TABLE pairs ADD COLUMN d VARCHAR(9) NOT NULL DEFAULT 'x'",
            "ALTER TABLE pairs DROP COLUMN c",
            "TRUNCATE TABLE pairs",
        ):
            shop.at_source("UPDATE pairs SET b = (b + 1) % 5 WHERE b = 2 LIMIT 7")
            shop.at_source(statement)
            shop.at_source("DELETE FROM pairs WHERE b = 3 LIMIT 5")
            shop.at_source("INSERT INTO pairs (a, b) VALUES (NULL, 4), (NULL, 4)")
            catch_up(shop)
            assert pairs.is_equal("pairs"), statement

    def test_rows_that_are_still_to_be_read_are_changed_meanwhile(self, pairs: Lake) -> None:
        """A table that comes while it is written to, and begins again."""
        shop = pairs.shop
        shop.at_source("RENAME TABLE pairs TO later")
        catch_up(shop)
        print(f"seed: {SEED}")
        rng = random.Random(SEED)

        def write() -> None:
            shop.at_source(f"DELETE FROM pairs WHERE b = {rng.randrange(5)} LIMIT 2")
            shop.at_source(f"UPDATE pairs SET b = (b + 1) % 5 WHERE b = {rng.randrange(5)} LIMIT 2")
            shop.at_source("INSERT INTO pairs (a, b) VALUES (NULL, 3)")

        shop.at_source("CREATE TABLE pairs AS SELECT * FROM later")
        for _ in range(2):
            with beside(write, every_s=0.002):
                catch_up(shop)
            catch_up(shop)
            assert pairs.is_equal("pairs")
            reset_tables(shop.run(), [TableId(shop.database, "pairs")])
        with beside(write, every_s=0.002):
            catch_up(shop)
        catch_up(shop)
        assert pairs.is_equal("pairs")

    def test_what_the_log_does_not_have_is_found_and_mended(self, pairs: Lake) -> None:
        shop = pairs.shop
        catch_up(shop)
        pairs.unlogged(
            "DELETE FROM pairs WHERE b = 1 LIMIT 1", "INSERT INTO pairs VALUES (NULL, 7), (NULL, 7)"
        )
        report = pairs.verified("pairs")
        (verdict,) = report.tables
        assert not verdict.equal
        assert (verdict.rows_source, verdict.rows_sink) == (101, 100)
        (repair,) = repairs(shop.run(), report)
        assert repair.scope.tables == (TableId(shop.database, "pairs"),)
        ask_repairs(shop.run(), (repair,))
        catch_up(shop)
        assert pairs.is_equal("pairs")
        assert pairs.operations("pairs").count("t") == 1
        pairs.unlogged("INSERT INTO pairs VALUES (NULL, 8)")
        shop.at_source("DELETE FROM pairs WHERE b = 8")
        catch_up(shop)
        with pytest.raises(
            IntegrityError, match="take away 1 rows, at least, that it does not have"
        ):
            pairs.verified("pairs")
        table = [f"{shop.database}.pairs"]
        ask_resync(shop.run(), resync_scope(shop.run(), table))
        catch_up(shop)
        assert pairs.is_equal("pairs")
        (counted,) = estimate(shop.run(), resync_scope(shop.run(), table)).tables
        assert (counted.source_rows, counted.sink_rows) == (101, 101)

    def test_a_table_that_was_left_alone_comes_back_by_the_log(self, notes: LakeNotes) -> None:
        shop = notes.shop
        catch_up(shop)
        pause_tables(shop.run(), [notes.table])
        catch_up(shop)
        for _ in range(5):
            notes.write()
        shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
        catch_up(shop)
        resume_tables(shop.run(), [notes.table])
        with beside(notes.write, every_s=0.01):
            catch_up(shop)
        catch_up(shop)
        assert notes.is_equal()

    def test_a_resync_behind_the_first_change_of_all_finds_what_is_missing(
        self, pairs: Lake
    ) -> None:
        shop, table = pairs.shop, [f"{pairs.shop.database}.pairs"]
        catch_up(shop)
        shop.at_source("TRUNCATE TABLE pairs")
        catch_up(shop)
        pairs.unlogged("INSERT INTO pairs VALUES (1, 1), (NULL, 2), (NULL, 2)")
        (counted,) = estimate(shop.run(), resync_scope(shop.run(), table)).tables
        assert (counted.source_rows, counted.sink_rows) == (3, 0)
        for _ in range(2):
            ask_resync(shop.run(), resync_scope(shop.run(), table))
            catch_up(shop)
            assert pairs.is_equal("pairs")
        assert pairs.operations("pairs").endswith("ttrrr")

    def test_a_part_of_its_rows_cannot_be_asked_for(self, pairs: Lake) -> None:
        catch_up(pairs.shop)
        with pytest.raises(RefusedError, match="has no key, so a part of its rows cannot be read"):
            resync_scope(pairs.shop.run(), [f"{pairs.shop.database}.pairs"], from_key="1")


class TestMySql(WithoutKey):
    pass


class TestMariaDb(WithoutKey):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"])
def test_what_is_none_of_the_members_is_read_again_as_another_text(shop: Shop, key: str) -> None:
    lake = Lake.of(shop, "iceberg")
    shop.at_source(f"CREATE TABLE pairs (a INT{key}, e ENUM('a', 'b'))")
    lake.logged("INSERT INTO pairs VALUES (1, 'x'), (2, 'y'), (3, 'a'), (4, NULL)")
    catch_up(shop)
    for members in ("'a', 'b', ''", "'a', 'b', '', '0'"):
        shop.at_source(f"ALTER TABLE pairs MODIFY e ENUM({members})")
        shop.at_source("DELETE FROM pairs WHERE e = 0 LIMIT 1")
        catch_up(shop)
        assert lake.verified("pairs").equal
        count = shop.source.execute("SELECT COUNT(*) FROM pairs", database=shop.database)
        assert [(len(lake.current("pairs")),)] == count
