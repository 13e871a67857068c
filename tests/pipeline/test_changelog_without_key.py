"""Tables without a key in a change log: its events make the source's rows, as often as they are."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.change_logs import Logged
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

SEED = random.SystemRandom().randrange(10_000)


@pytest.fixture(params=("json", "parquet"))
def log(shop: Shop, request: pytest.FixtureRequest) -> Logged:
    """A log of a table in which many rows are equal."""
    shop.at_source("CREATE TABLE pairs (a INT, b VARCHAR(9), UNIQUE (a))")
    rows = ", ".join(f"({n if n < 50 else 'NULL'}, {n % 5})" for n in range(100))
    shop.at_source(f"INSERT INTO pairs VALUES {rows}")
    return Logged.of(shop, form=request.param)


def is_equal(log: Logged) -> bool:
    """Tell whether the events make the source's rows; each takes away what there is."""
    rows: Counter[str] = Counter()
    for event in log.events("pairs"):
        assert event["key"] is None
        if event["op"] == "t":
            rows.clear()
        if event["op"] in "ud":
            assert rows[str(event["before"])] > 0, event
            rows[str(event["before"])] -= 1
        if event["op"] in "rcu":
            rows[str(event["after"])] += 1
    there = Counter(map(str, log.source_rows("pairs")))
    assert +rows == there, SEED
    return True


class WithoutKey:
    def test_its_events_make_its_rows_while_it_is_written_to(self, log: Logged) -> None:
        shop, table = log.shop, TableId(log.shop.database, "pairs")
        print(f"seed: {SEED}")
        rng = random.Random(SEED)

        def write() -> None:
            shop.at_source(f"DELETE FROM pairs WHERE b = '{rng.randrange(5)}' LIMIT 2")
            shop.at_source(
                f"UPDATE pairs SET b = (b + 1) % 5 WHERE b = '{rng.randrange(5)}' LIMIT 2"
            )
            shop.at_source("INSERT INTO pairs (a, b) VALUES (NULL, '3'), (NULL, NULL)")

        def caught_up() -> bool:
            with beside(write, every_s=0.002):
                catch_up(shop)
            catch_up(shop)
            return is_equal(log)

        assert not [each for each in check(shop.run()).findings if each.level is Level.BLOCK]
        assert caught_up()
        assert {"c", "u", "d"} <= {*log.operations("pairs")}
        reset_tables(shop.run(), [table])
        assert caught_up()
        pause_tables(shop.run(), [table])
        catch_up(shop)
        write()
        resume_tables(shop.run(), [table])
        assert caught_up()
        shop.at_source("TRUNCATE TABLE pairs")
        assert caught_up()


class TestMySql(WithoutKey):
    pass


class TestMariaDb(WithoutKey):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
