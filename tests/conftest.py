"""Fixtures every test may use: real servers, started when first asked for.

- `mysql_server`, `mysql_sink`, `mariadb_server`: one each per session.
- `mysql_database`, `sink_database`, `mariadb_database`: a fresh database on it, dropped afterwards.
- `fresh_database(server)`: the same for a server of the test's own.
- `s3_server`: a server that speaks S3, one per session, from a package.
- `spark`: a Spark on two cores in this process, one per session. A process has one only, so a test
  that stops it stops it for all.

Asking for one marks a test `mysql`, `mariadb` or `spark`; an unmarked test needs nothing but
Python.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest

from tests.servers import one_family
from tests.servers.compiled_statements import share_compiled_statements
from tests.servers.given import MARIADB_DSN, MYSQL_DSN, MYSQL_SINK_DSN, GivenServer, SqlServer
from tests.servers.java import prepare_spark_environment
from tests.servers.postgres import POSTGRES_DSN, PostgresServer, SqlDatabase
from tests.servers.s3 import S3Server, running_s3
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.workermanage import WorkerController

# Airflow reads these once, at its first import, which a test module may do while being collected.
_AIRFLOW_HOME = tempfile.TemporaryDirectory(prefix="cdc-airflow-home-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = "as long as its signature asks for " * 2
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = f"{_AIRFLOW_HOME.name}/dags"
# Jobs' files go to the user's own state directory; each test session has its own.
_STATE_HOME = tempfile.TemporaryDirectory(prefix="cdc-state-home-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _STATE_HOME.name
prepare_spark_environment()
# It says goodbye while the interpreter ends, when there is nothing left to write to.
logging.getLogger("py4j").setLevel(logging.ERROR)

hypothesis.settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

MARKERS_BY_FIXTURE = {
    "mysql": {"mysql_server", "mysql_sink"},
    "mariadb": {"mariadb_server"},
    "postgres": {"postgres_server"},
    "spark": {"spark", "spark_session"},
    "airflow": {"airflow_db", "airflow_home", "airflow_server"},
}
_database_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Choose the seed of the families before the workers start, for it is theirs, too."""
    one_family.fix_seed()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, before `-m` selects; leave out those of other families."""
    gone = one_family.left_out(items, config.rootpath)
    if gone:
        config.hook.pytest_deselected(items=[each for each in items if each in gone])
        items[:] = [each for each in items if each not in gone]
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        for marker, fixtures in MARKERS_BY_FIXTURE.items():
            if used & fixtures:
                item.add_marker(marker)


class FailuresAtOnce:
    """Names what failed when it failed: a run that is cut off prints no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} failed in {report.when}", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    share_compiled_statements()
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None:  # a worker has none
        plugins.register(FailuresAtOnce(terminal))


def pytest_report_header() -> list[str]:
    """Say what the tests run on, as far as it is known before anything has started."""
    names = (MYSQL_DSN, MYSQL_SINK_DSN, MARIADB_DSN, POSTGRES_DSN)
    given = [name for name in names if os.environ.get(name)]
    return [
        f"java: {os.environ['JAVA_HOME']}",
        f"servers: {', '.join(given) or 'throwaway ones, started when first needed'}",
        f"families: {one_family.seed_text()}",
    ]


def _server(
    request: pytest.FixtureRequest, variable: str, kind: type[ThrowawayServer]
) -> Iterator[SqlServer]:
    """Give the server of a DSN or start one; its version goes into the terminal's summary."""
    versions = request.config.stash.setdefault(_VERSIONS, {})
    with ExitStack() as stack:
        server: SqlServer | None = GivenServer.from_environment(variable)
        if server is None:
            server = stack.enter_context(kind())
            request.config.stash.setdefault(_SHARED, []).append(server)
        versions[request.fixturename or variable] = server.version
        yield server


_VERSIONS = pytest.StashKey[dict[str, str]]()
_SHARED = pytest.StashKey[list[SqlServer]]()
_LOG_BYTES = 24 << 20
_WORKER_BYTES = 6 << 30  # three servers, Airflow, and the JVMs of two Sparks


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Give `-n auto` three workers where they fit: servers, Airflow and Spark are each one's own.

    On two cores, too, for tests wait for servers a quarter of their time. Given servers are one's
    only: tests that change a server would meet there.
    """
    given = any(os.environ.get(name) for name in (MYSQL_DSN, MYSQL_SINK_DSN, MARIADB_DSN))
    cores = psutil.cpu_count() or 1
    fitting = min(3, 2 * cores - 1, psutil.virtual_memory().available // _WORKER_BYTES)
    return 0 if given or fitting < 2 else fitting


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's server versions to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["versions"] = session.config.stash.get(_VERSIONS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Keep what a worker said of its servers; one that crashed said nothing."""
    said = getattr(node, "workeroutput", {}).get("versions", {})
    node.config.stash.setdefault(_VERSIONS, {}).update(said)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which servers were used."""
    for name, version in sorted(config.stash.get(_VERSIONS, {}).items()):
        terminalreporter.write_line(f"{name}: {version}")


@pytest.fixture(scope="session")
def mysql_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """MySQL with GTIDs and full row metadata: the source."""
    yield from _server(request, MYSQL_DSN, MySqlServer)


@pytest.fixture(scope="session")
def mysql_sink(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """Another MySQL: the sink."""
    yield from _server(request, MYSQL_SINK_DSN, MySqlServer)


@pytest.fixture(scope="session")
def mariadb_server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """MariaDB with its binary log."""
    yield from _server(request, MARIADB_DSN, MariaDbServer)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[SqlDatabase]:
    """PostgreSQL, which holds the state only."""
    versions = request.config.stash.setdefault(_VERSIONS, {})
    with ExitStack() as stack:
        given = SqlDatabase.from_environment()
        server = given or stack.enter_context(PostgresServer())
        versions["postgres_server"] = server.version
        yield server


@pytest.fixture
def postgres_database(postgres_server: SqlDatabase) -> Iterator[str]:
    """A fresh database on `postgres_server`."""
    with postgres_server.fresh_database() as name:
        yield name


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest) -> Iterator[Callable[[SqlServer], str]]:
    """Make a database of a new name on a server; it is dropped after the test."""
    with ExitStack() as stack:

        def create(server: SqlServer) -> str:
            if server in request.config.stash.get(_SHARED, []):
                _shorten_log(server)
            name = f"t{next(_database_numbers)}_{secrets.token_hex(3)}"
            server.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
            stack.callback(_drop_database, server, name)
            return name

        yield create


def _shorten_log(server: SqlServer) -> None:
    """Let a server drop log that many tests wrote; its last file is kept for who still reads it.

    What a test's own pipeline has to read is then little, wherever it stands among the tests.
    """
    files = server.execute("SHOW BINARY LOGS")
    if sum(int(str(row[1])) for row in files) > _LOG_BYTES:
        server.execute("FLUSH BINARY LOGS")
        server.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


def _drop_database(server: SqlServer, name: str) -> None:
    if isinstance(server, ThrowawayServer) and not server.is_running:
        return  # the test has killed it, and its data goes with it
    server.execute(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture
def mysql_database(mysql_server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    """A fresh database on `mysql_server`."""
    return fresh_database(mysql_server)


@pytest.fixture
def sink_database(mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    """A fresh database on `mysql_sink`."""
    return fresh_database(mysql_sink)


@pytest.fixture
def mariadb_database(mariadb_server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    """A fresh database on `mariadb_server`."""
    return fresh_database(mariadb_server)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that speaks S3, on loopback; a test makes a bucket of its own."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark on two cores in this process."""
    from airflow_cdc_provider.spark.session import open_session  # noqa: PLC0415 - loads pyspark

    session = open_session("tests", master="local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
