"""The throttle between real servers: what closes it, who changes it, and that no row is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from airflow_cdc_provider.cli.main import main
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, CriticalLoadError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.engine.throttle import load_watch
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.pipeline.conftest import Shop
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.replication import catch_up, is_mariadb, pair_of

FILE = """\
pipeline: throttled
source:
  dsn_env: SHOP_DSN
  tables: ["shop.*"]
sink:
  dsn_env: DR_DSN
  route: {"shop.*": "copy.*"}
snapshot:
  split_rows: 100
  throttle:
    rows_per_second: 150
    max_threads_running: 4
    critical_threads_running: 12
    max_replica_lag: 30s
    replicas: [{dsn_env: REPLICA_DSN}]
"""
ROWS = 1_000


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[SqlServer, SqlServer]]:
    with pair_of(request.param) as (primary, replica):
        primary.execute("CREATE USER app@'%' IDENTIFIED BY 'app'")
        yield primary, replica


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than a user's servers would like."""
    monkeypatch.setattr(load_watch, "EVERY_S", 0.2)
    monkeypatch.setattr(load_watch, "TOLD_AFTER_S", 0.4)


@pytest.fixture
def shop(pair: tuple[SqlServer, SqlServer], tmp_path: Path) -> Iterator[Shop]:
    primary, replica = pair
    for database in ("shop", "copy"):
        primary.execute(f"CREATE DATABASE {database}")
    path = tmp_path / "shop.yaml"
    path.write_text(FILE)
    environment = {
        "SHOP_DSN": primary.dsn(),
        "DR_DSN": primary.dsn(),
        "REPLICA_DSN": replica.dsn(),
    }
    with ExitStack() as stack:
        made = Shop(primary, primary, "shop", "copy", path, environment, stack)
        made.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))")
        rows = ", ".join(f"({number}, 'row {number}')" for number in range(ROWS))
        made.at_source(f"INSERT INTO orders VALUES {rows}")
        yield made
    for database in ("shop", "copy", "airflow_cdc"):
        primary.execute(f"DROP DATABASE IF EXISTS {database}")


@contextmanager
def busy(
    server: SqlServer, threads: int, *, user: str = "app", password: str = "app"
) -> Iterator[None]:
    """Run so many threads of an account at a server, of another one than the pipeline's."""
    with ExitStack() as stack:
        running = []
        for _ in range(threads):
            app = SqlServer(host=server.host, port=server.port, user=user, password=password)
            connection = stack.enter_context(closing(app.connect()))
            thread = threading.Thread(target=_sleep, args=(connection,), daemon=True)
            thread.start()
            number: int = connection.thread_id()  # type: ignore[no-untyped-call]
            running.append((number, thread))
        try:
            yield
        finally:
            for number, thread in running:
                server.execute(f"KILL {number}")
                thread.join(timeout=10)


def _sleep(connection: object) -> None:
    with suppress(pymysql.err.Error):  # it is killed
        connection.cursor().execute("SELECT SLEEP(60)")  # type: ignore[attr-defined]


class Running:
    """A run of the pipeline in a thread, and what is seen of it meanwhile."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.error: CdcError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen = shop.run("someone who looks")

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        self._seen.store.want(self._seen.name, Wanted.STOP if error else Wanted.RUN)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        options = SparkOptions(master=NO_SPARK, log_folder=self._shop.path.parent / "logs")
        try:
            run_until_caught_up(self._shop.run("runner"), options)
        except CdcError as error:
            self.error = error

    def status(self) -> PipelineStatus:
        store = self._seen.store
        return status(store, self._seen.name, now_us=store.now_us())

    def told(self, beginning: str) -> int:
        """Return how many events begin so."""
        return sum(each.text.startswith(beginning) for each in self.status().events)

    def says(self, text: str) -> None:
        """Wait until the status says so."""

        heard: set[str] = set()

        def said() -> bool:
            throttle = self.status().throttle
            heard.add("" if throttle is None else throttle.text)
            return throttle is not None and text in throttle.text

        try:
            wait_until(said, seconds=15)
        except AssertionError:
            pytest.fail(f"it said {heard}, never {text!r}; the run ended with {self.error}")


def sql_thread(replica: SqlServer, verb: str) -> None:
    kind = "SLAVE" if is_mariadb(replica) else "REPLICA"
    replica.execute(f"{verb} {kind} SQL_THREAD")


def _replica_findings(shop: Shop) -> list[Finding]:
    found = check(shop.run("who checks")).findings
    return [each for each in found if each.code == PipelineCode.THROTTLE_REPLICA]


def test_an_account_that_may_not_see_a_replica_s_lag_blocks_the_pipeline(
    shop: Shop, pair: tuple[SqlServer, SqlServer]
) -> None:
    primary, replica = pair
    catch_up(replica, primary)
    assert _replica_findings(shop) == []
    shop.environment["REPLICA_DSN"] = replica.dsn(user="app", password="app")
    (found,) = _replica_findings(shop)
    assert found.level is Level.BLOCK
    grant = "SLAVE MONITOR" if is_mariadb(replica) else "REPLICATION CLIENT"
    replica.execute(f"GRANT {grant} ON *.* TO app@'%'")
    assert _replica_findings(shop) == []


def test_the_pipeline_s_own_threads_are_not_counted_but_no_more_than_it_has(
    pair: tuple[SqlServer, SqlServer],
) -> None:
    primary, _ = pair
    source = MySqlSource(Endpoint.parse(primary.dsn()))
    with (
        closing(source.load_look(most_own=50)) as look,
        closing(source.load_look(most_own=1)) as cramped,
    ):
        # a thread of the server's own may run at the moment of one look
        before = min(look.threads_running() for _ in range(10))
        with busy(primary, 3, user=primary.user, password=primary.password):
            wait_until(lambda: cramped.threads_running() >= before + 3, seconds=10)
            wait_until(lambda: look.threads_running() == before, seconds=10)
            with busy(primary, 2):
                wait_until(lambda: look.threads_running() == before + 2, seconds=10)


def test_load_and_replicas_hold_a_snapshot_up_and_nothing_is_missing(
    shop: Shop, pair: tuple[SqlServer, SqlServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    for name, dsn in shop.environment.items():
        monkeypatch.setenv(name, dsn)
    sql_thread(replica, "STOP")
    found = _replica_findings(shop)
    assert [each.level for each in found] == [Level.WARN]
    assert "its SQL thread does not run" in found[0].observed
    with Running(shop) as running:
        running.says("its SQL thread does not run")
        assert running.status().summary == "snapshot, throttled"
        assert running.status().splits_finished == 0
        with busy(primary, 6):
            running.says("Threads_running ")
            running.says(" is above 4, since ")
            wait_until(lambda: running.told("throttled: ") == 1, seconds=10)
            sql_thread(replica, "START")
        running.says("throttle: 150 rows/s")
        assert main(["throttle", str(shop.path), "--rows-per-second", "none"]) == 0
    assert running.error is None
    assert shop.sink_rows("SELECT COUNT(*), MIN(id), MAX(id) FROM orders") == [(ROWS, 0, ROWS - 1)]
    assert (running.told("throttled: "), running.told("no longer throttled, after ")) == (1, 1)


def test_a_critical_load_ends_the_snapshot_and_the_next_run_goes_on_from_there(
    shop: Shop, pair: tuple[SqlServer, SqlServer]
) -> None:
    primary, _ = pair
    shop.path.write_text(FILE.replace("rows_per_second: 150", "rows_per_second: 100"))
    with Running(shop) as running:
        wait_until(lambda: running.status().splits_finished > 0, seconds=20)
        with busy(primary, 14):
            wait_until(lambda: running.error is not None, seconds=20)
    assert isinstance(running.error, CriticalLoadError)
    assert "of the source is critical: critical_threads_running is 12" in running.error.what
    failed = running.status()
    assert failed.state.phase is Phase.FAILED
    assert str(failed.state.error).startswith("CDC-LOA-001")
    read = failed.splits_finished
    assert 0 < read < ROWS / 100
    shop.path.write_text(FILE.replace("    rows_per_second: 150\n", ""))
    with Running(shop) as again:
        pass
    assert again.error is None
    assert shop.sink_rows("SELECT COUNT(*), MIN(id), MAX(id) FROM orders") == [(ROWS, 0, ROWS - 1)]


def test_a_request_waits_says_why_and_is_cancelled_at_once(
    shop: Shop, pair: tuple[SqlServer, SqlServer]
) -> None:
    _, replica = pair
    shop.path.write_text(FILE.replace("    rows_per_second: 150\n", ""))
    with Running(shop) as first:
        pass
    assert first.error is None
    sql_thread(replica, "STOP")
    run = shop.run("who asks")
    asked = ask_resync(run, resync_scope(run, [str(TableId("shop", "orders"))]))

    def told() -> str:
        found = run.store.request(run.name, asked.request_id)
        assert found is not None
        return str(found.error)

    with Running(shop) as running:
        running.says("its SQL thread does not run")
        wait_until(lambda: told().startswith("throttled: the lag of replica "), seconds=20)
        run.store.cancel_request(run.name, asked.request_id)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 5
    sql_thread(replica, "START")
    assert running.error is None
    found = run.store.request(run.name, asked.request_id)
    assert found is not None
    assert found.status is RequestStatus.CANCELLED
    assert running.status().throttle is None
