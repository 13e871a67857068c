"""Whoever changes the ledger waits for a writer's commit: neither undoes the other by a deadlock.

A writer locks its own row, writes rows, and holds the generation last. A change of the ledger that
held the generation first would be undone each time it met a writer in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from tests.behaviours.ledger_asks import altered
from tests.behaviours.source_log import at
from tests.servers.patience import wait_until
from tests.systems.mysql.sink.mysql_sinks import MariaDbByInsert, MySqlByLoad
from tests.systems.mysql.sink.world import MySqlSinkWorld

ERROR = StoredError.saying("refused")


class LockOrder:
    @pytest.mark.parametrize("change", ["read", "removed", "stop", "go on", "end"])
    def test_a_change_of_the_stream_meets_a_writer_in_its_batch(
        self, world: MySqlSinkWorld, caplog: pytest.LogCaptureFixture, change: str
    ) -> None:
        world.hand_off()
        orders = world.orders.schema.table
        acts: dict[str, Callable[[Ledger], object]] = {
            "read": lambda ledger: ledger.change_tables(read=[orders]),
            "removed": lambda ledger: ledger.change_tables(removed=[orders]),
            "stop": lambda ledger: ledger.stop_tables([orders], ERROR),
            "go on": lambda ledger: ledger.go_on_from(at(50), [orders]),
            "end": lambda ledger: ledger.end_change(altered(world.orders)),
        }
        meets(world, "stream", lambda: acts[change](world.ledger))
        assert "sink was busy" not in caplog.text

    def test_a_table_that_comes_back_meets_its_own_writer(
        self, world: MySqlSinkWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.hand_off()
        orders = world.orders.schema.table
        world.ledger.stop_tables([orders], ERROR)
        meets(world, "stopped_table", lambda: world.ledger.rejoin(orders))
        assert "sink was busy" not in caplog.text

    def test_a_writer_with_other_slots_meets_one_that_passes_over_log(
        self, world: MySqlSinkWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.hand_off()
        meets(world, "stream", lambda: world.changes(writers=3))
        assert "sink was busy" not in caplog.text


def meets(world: MySqlSinkWorld, table: str, act: Callable[[], object]) -> None:
    """Lock a writer's row, act, and have the writer claim its commit while the other waits."""
    mine = f"WHERE pipeline = {literal(str(world.pipeline))}"
    with (
        closing(world.server.connect(autocommit=False)) as writer,
        closing(world.server.connect()) as looker,
        ThreadPoolExecutor(1) as pool,
    ):
        rows, look = writer.cursor(), looker.cursor()
        rows.execute(f"SELECT position FROM airflow_cdc.{table} {mine} FOR UPDATE")
        acting = pool.submit(act)

        def waits() -> bool:
            look.execute("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state='LOCK WAIT'")
            return bool(look.fetchall())

        wait_until(waits, seconds=20, every_s=0.25)
        rows.execute(f"SELECT generation FROM airflow_cdc.pipeline {mine} LOCK IN SHARE MODE")
        writer.commit()
        acting.result(20)


class TestLockOrderOnMySql(MySqlByLoad, LockOrder):
    pass


class TestLockOrderOnMariaDb(MariaDbByInsert, LockOrder):
    pass
