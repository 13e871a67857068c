"""`airflow backfill create` over a pipeline's days, on real servers and by a real scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from tests.airflow.asking import Copied, copied
from tests.end_to_end.airflow_server import AirflowServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]
_PATIENCE_S = 300.0
DAYS = 3
DAY = timedelta(days=1)


@contextmanager
def shop_of_days(
    source: SqlServer, sink: SqlServer, folder: Path, first: datetime
) -> Iterator[Copied]:
    """Copy a shop with a row for each hour from a day before the first on; then all are wrong."""
    with copied(source, sink, folder, "dated") as made:
        rows = ", ".join(
            f"({hour}, '{first - DAY + timedelta(hours=hour):%Y-%m-%d %H:%M}', 'right')"
            for hour in range((DAYS + 2) * 24)
        )
        for sql in (
            "CREATE TABLE c_days (id INT PRIMARY KEY, at DATETIME, note VARCHAR(9), KEY (at))",
            f"INSERT INTO c_days VALUES {rows}",
        ):
            source.execute(sql, database=made.shop.source_database)
        with made.path.open("a") as file:
            table = f"{made.shop.source_database}.c_days"
            file.write(f'backfill: {{"{table}": {{column: at, timezone: UTC}}}}\n')
        with made.opened() as run:
            run_until_caught_up(run)
        sql = "UPDATE c_days SET note = 'wrong'"
        made.shop.sink.execute(sql, database=made.shop.sink_database)
        (folder / "cdc.py").write_text(
            "from airflow_cdc_provider.operators.dags import cdc_dags\n"
            'cdc_dags(".", globals(), schedule=None)\n'
        )
        yield made


def right(copy: Copied) -> set[int]:
    sql = "SELECT id FROM c_days WHERE note = 'right'"
    return {row[0] for row in copy.shop.sink.execute(sql, database=copy.shop.sink_database)}


def ended(airflow: AirflowServer, dag_id: str) -> list[str]:
    """Return the states of a backfill's runs once it is complete."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        (found,) = airflow.get(f"/api/v2/backfills?dag_id={dag_id}")["backfills"]
        runs = airflow.get(f"/api/v2/dags/{dag_id}/dagRuns?run_type=backfill")["dag_runs"]
        if found["completed_at"]:
            return [run["state"] for run in runs]
        time.sleep(2)
    raise AssertionError(f"the backfill did not end:\n{airflow.log_tail()}")


def test_a_backfill_reads_its_days_again_backwards_and_two_at_once(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path
) -> None:
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 6 * DAY
    days = f"--from-date={first:%Y-%m-%d}", f"--to-date={first + (DAYS - 1) * DAY:%Y-%m-%d}"
    with shop_of_days(mysql_server, mysql_sink, tmp_path, first) as copy:
        dag_id = f"{copy.shop.name}__backfill"
        airflow = AirflowServer(connections(copy), dags=tmp_path)
        # before its scheduler is up: a database of SQLite's has one writer
        airflow.command("db", "migrate")
        airflow.command("dags", "reserialize")
        airflow.command("dags", "unpause", dag_id, "--yes")
        how = "--run-backwards", "--max-active-runs", "2"
        airflow.command("backfill", "create", "--dag-id", dag_id, *days, *how)
        with airflow:
            assert ended(airflow, dag_id) == ["success"] * DAYS
        assert right(copy) == set(range(24, (DAYS + 1) * 24))


def connections(copy: Copied) -> dict[str, str]:
    prefix = "AIRFLOW_CONN_"
    found = copy.shop.connections().items()
    return {name.removeprefix(prefix): dsn for name, dsn in found if name.startswith(prefix)}
