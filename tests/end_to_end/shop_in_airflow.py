"""A shop that a whole Airflow keeps in step: real servers, its stream, and rows for each hour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.pausing import resume
from airflow_cdc_provider.views.status import status
from tests.airflow.asking import Copied, copied
from tests.end_to_end.airflow_server import AirflowServer
from tests.end_to_end.compare import differences
from tests.servers.patience import wait_while_working

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer
    from tests.servers.postgres import SqlDatabase

DAY = timedelta(days=1)
DAYS = 8
TABLES = ("orders", "customers", "c_days")


@dataclass(frozen=True)
class ShopInAirflow:
    """A shop whose stream runs in an Airflow of its own.

    The table `c_days` has a row for each hour of `DAYS` days from `first` on; its `id` counts them.
    """

    copy: Copied
    airflow: AirflowServer
    first: datetime

    def dag_id(self, kind: str) -> str:
        """Return the id of one of the pipeline's DAGs."""
        return f"{self.copy.shop.name}__{kind}"

    def table(self, name: str) -> str:
        """Return a table's name at the source, with its database."""
        return f"{self.copy.shop.source_database}.{name}"

    def day(self, number: int) -> str:
        """Return the date of a day, counted from 0."""
        return f"{self.first + number * DAY:%Y-%m-%d}"

    def make_wrong(self, days: Collection[int]) -> None:
        """Make the rows of these days wrong at the sink, and all others right."""
        wrong = ", ".join(str(hour) for day in days for hour in hours(day)) or "NULL"
        sql = f"UPDATE c_days SET note = IF(id IN ({wrong}), 'wrong', 'right')"
        self.copy.shop.sink.execute(sql, database=self.copy.shop.sink_database)

    def wrong_days(self) -> list[int]:
        """Return the days that have a row that is wrong at the sink."""
        sql = "SELECT DISTINCT id DIV 24 FROM c_days WHERE note <> 'right' ORDER BY 1"
        shop = self.copy.shop
        return [int(row[0]) for row in shop.sink.execute(sql, database=shop.sink_database)]

    def differences(self) -> list[str]:
        """Compare both sides whole, row by row; returns what differs."""
        shop = self.copy.shop
        here, there = shop.source_database, shop.sink_database
        tables = {f"{here}.{name}": f"{there}.{name}" for name in TABLES}
        return differences(shop.source, shop.sink, tables)

    def connections(self) -> int:
        """Count the connections that the pipeline holds at the source."""
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = %s"
        ((count,),) = self.copy.shop.source.execute(sql, (self.copy.shop.reads.user,))
        return int(count)

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Look until something is so; where Airflow comes to a stop fail with the newest logs."""
        wait_while_working(until, what, signs=self.airflow.signs, told=self.airflow.log_tail)

    def calm(self) -> None:
        """Have the stream run, nothing asked and nothing wrong, however a test before has ended."""
        for kind in ("resync", "backfill"):
            self.airflow.end_runs(self.dag_id(kind))
        with self.copy.opened() as run:
            for request in run.store.requests(run.name, only_open=True):
                run.store.cancel_request(run.name, request.request_id)
            is_paused = run.store.ensure(run.name).wanted is Wanted.STOP
            if is_paused:
                resume(run)
        if is_paused or not self.is_streaming():
            self.stream()
        self.make_wrong(())

    def stream(self) -> None:
        """Run the DAG that starts the stream, and return when it streams."""
        self.airflow.trigger(self.dag_id("sync"), {"verify": False})
        self.wait(self.is_streaming, "the stream")

    def is_streaming(self) -> bool:
        """Tell whether the newest owner's stream was heard of."""
        with self.copy.opened() as run:
            seen = status(run.store, run.name, now_us=run.store.now_us())
        stream = seen.stream
        is_its = stream is not None and stream.generation == seen.state.generation
        is_heard = stream is not None and stream.heartbeat_us > 0
        return is_its and is_heard and seen.state.phase is Phase.STREAMING


def hours(day: int) -> range:
    """Return the ids of a day's rows."""
    return range(day * 24, (day + 1) * 24)


@contextmanager
def shop_in_airflow(
    source: SqlServer, sink: SqlServer, postgres: SqlDatabase, folder: Path
) -> Iterator[ShopInAirflow]:
    """Copy a shop, then start an Airflow in which it streams."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - (DAYS + 1) * DAY
    with copied(source, sink, folder, "in_airflow", mode="continuous") as copy:
        _add_days(copy, first)
        (folder / "cdc.py").write_text(
            "from airflow_cdc_provider.operators.dags import cdc_dags\n"
            'cdc_dags(".", globals(), schedule=None, backfill_schedule="@daily",'
            ' default_args={"retry_delay": 2.0})\n'
        )
        with (
            postgres.fresh_database() as database,
            AirflowServer(
                connections(copy), dags=folder, metadata=postgres.dsn(database)
            ) as airflow,
        ):
            made = ShopInAirflow(copy, airflow, first)
            made.stream()
            yield made


def _add_days(copy: Copied, first: datetime) -> None:
    """Add the table of hours to the source, the file and the sink."""
    rows = ", ".join(
        f"({hour}, '{first + timedelta(hours=hour):%Y-%m-%d %H:%M}', 'right')"
        for hour in range(DAYS * 24)
    )
    database = copy.shop.source_database
    for sql in (
        "CREATE TABLE c_days (id INT PRIMARY KEY, at DATETIME, note VARCHAR(9), KEY (at))",
        f"INSERT INTO c_days VALUES {rows}",
    ):
        copy.shop.source.execute(sql, database=database)
    named = ", ".join(f'"{database}.{name}"' for name in (*TABLES, "later_*"))
    text = copy.path.read_text(encoding="utf-8")
    text = text.replace(f'"{database}.orders", "{database}.c*"', named)
    text += f'backfill: {{"{database}.c_days": {{column: at, timezone: UTC}}}}\n'
    copy.path.write_text(text, encoding="utf-8")
    with copy.opened() as run:
        run_until_caught_up(run)


def connections(copy: Copied) -> dict[str, str]:
    """Return Airflow's connections of a shop, by their ids."""
    prefix = "AIRFLOW_CONN_"
    found = copy.shop.connections().items()
    return {name.removeprefix(prefix): dsn for name, dsn in found if name.startswith(prefix)}
