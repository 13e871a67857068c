"""A state store that is away for a while ends no run: the sink's ledger is the truth."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.proxy import NONE, CuttingProxy, Fault


def test_a_run_goes_on_while_its_state_store_is_away(
    shop: Shop,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> None:
    with CuttingProxy(mysql_sink.port) as way:
        dsn = mysql_sink.dsn().rstrip("/").replace(f":{mysql_sink.port}", f":{way.port}")
        shop.environment["STATE_DSN"] = f"{dsn}/{fresh_database(mysql_sink)}"
        shop.path.write_text(shop.path.read_text() + "state: {dsn_env: STATE_DSN}\n")
        run_until_caught_up(shop.run(), SparkOptions(NO_SPARK))
        log = tmp_path / "run.log"
        command = [sys.executable, "-m", "airflow_cdc_provider", "run", str(shop.path)]
        environment = {**os.environ, **shop.environment}
        with (
            log.open("wb") as output,
            subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
        ):
            try:
                shop.at_source("INSERT INTO orders VALUES (4, 'four', 40)")
                wait_until(lambda: len(shop.sink_rows("SELECT 1 FROM orders")) == 4)
                way.fault = Fault(refuse=True)
                way.cut()
                wait_until(lambda: "the job goes on" in log.read_text(), seconds=90)
                assert "CDC-STA-001 the state store did not answer" in log.read_text()
                shop.at_source("INSERT INTO orders VALUES (5, 'five', 50)")
                wait_until(lambda: len(shop.sink_rows("SELECT 1 FROM orders")) == 5)
                way.fault = NONE
                way.cut()
                wait_until(lambda: "progress is known again" in log.read_text(), seconds=90)
                shop.at_source("INSERT INTO orders VALUES (6, 'six', 60)")
                wait_until(lambda: len(shop.sink_rows("SELECT 1 FROM orders")) == 6)
                time.sleep(1)
                assert process.poll() is None
            finally:
                process.terminate()
