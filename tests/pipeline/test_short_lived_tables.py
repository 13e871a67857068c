"""Tables that come and go within seconds, as ETL makes them, stop no run that adds new tables."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.pipeline.steps import new_table_watch, plan_sync, table_membership
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.pipeline.synced_shops import continuous, copied
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until

GONE = "shorty came later and is not added: it is not at the source any more"
MOMENTS: dict[str, tuple[Any, str]] = {
    "once it is to be added": (plan_sync, "add_tables"),
    "once it was looked at": (table_membership, "_require_copyable"),
    "while the stream catches up": (table_membership, "_own"),
    "once all was looked at again": (table_membership, "origin_now"),
}


def told(shop: Shop) -> list[str]:
    run = shop.run()
    return [event.text for event in run.store.events(run.name, 100)]


class ShortLived:
    """Whatever the family of the source."""

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("end", ["DROP TABLE shorty", "RENAME TABLE shorty TO k_old"])
    @pytest.mark.sample(3)
    def test_a_table_that_has_gone_is_left_out_and_told(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str, end: str
    ) -> None:
        synced(shop)
        shop.at_source("CREATE TABLE shorty (id INT PRIMARY KEY)")
        shop.at_source("CREATE TABLE stays (id INT PRIMARY KEY)")
        shop.at_source("INSERT INTO shorty VALUES (1)")
        module, name = MOMENTS[moment]
        step: Callable[..., Any] = getattr(module, name)
        left = [end]

        def then(*given: Any, **named: Any) -> Any:
            if left:
                shop.at_source(left.pop())
            return step(*given, **named)

        monkeypatch.setattr(module, name, then)
        synced(shop)
        synced(shop)
        run = shop.run()
        phases = {each.table.table: each.phase for each in run.store.tables(run.name)}
        assert {"orders", "stays"} <= phases.keys()
        assert {phases["orders"], phases["stays"]} == {TablePhase.CONSISTENT}
        if moment != "once all was looked at again":  # then the stream hears that it goes
            assert "shorty" not in phases
            assert any(text.endswith(GONE) for text in told(shop)), told(shop)
        shop.at_source("INSERT INTO stays VALUES (7)")
        synced(shop)
        assert at_sink(shop, "stays") == at_source(shop, "stays") == [(7,)]

    def test_those_that_come_and_go_beside_a_stream_do_not_end_it(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.3)
        seed = random.randrange(1 << 32)
        print(f"seed: {seed}")
        rng = random.Random(seed)
        synced(shop)
        with continuous(shop, []) as run:
            wait_until(lambda: run.store.ensure(run.name).phase is Phase.STREAMING)
            for number in range(10):
                shop.at_source(f"CREATE TABLE brief{number} (id INT PRIMARY KEY)")
                shop.at_source(f"INSERT INTO brief{number} VALUES (1)")
                time.sleep(rng.uniform(0, 1.5))
                end = rng.choice(("DROP TABLE brief{0}", "RENAME TABLE brief{0} TO old{0}"))
                shop.at_source(end.format(number))
            shop.at_source("CREATE TABLE stays (id INT PRIMARY KEY)")
            shop.at_source("INSERT INTO stays VALUES (7)")
            wait_until(lambda: "stays" in copied(shop))
        synced(shop)
        assert at_sink(shop, "stays") == at_source(shop, "stays") == [(7,)]

    def test_many_that_come_and_go_meanwhile_end_no_run(self, shop: Shop) -> None:
        synced(shop)
        over = threading.Event()

        def come_and_go() -> None:
            number = 0
            while not over.is_set():
                number += 1
                shop.at_source(f"CREATE TABLE k{number % 7} (id INT PRIMARY KEY, v INT)")
                shop.at_source(f"INSERT INTO k{number % 7} VALUES (1, {number}), (2, 2)")
                time.sleep(0.05 * (number % 4))
                shop.at_source(f"RENAME TABLE k{number % 7} TO gone")
                shop.at_source("DROP TABLE gone")

        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            for number in range(6):
                shop.at_source(f"INSERT INTO orders (id, note) VALUES ({100 + number}, 'more')")
                synced(shop)
        finally:
            over.set()
            thread.join(30)
        synced(shop)
        assert at_sink(shop, "orders") == at_source(shop, "orders")


class TestFromMySql(ShortLived):
    pass


class TestFromMariaDb(ShortLived):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
