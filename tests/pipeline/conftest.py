"""A pipeline between two real servers, with its state in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from tests.pipeline.pairs import MakePair, pair_of
from tests.servers.given import SqlServer

FILE = """\
pipeline: {name}
source:
  dsn_env: SHOP_DSN
  tables: ["{source}.*"]
sink:
  dsn_env: DR_DSN
  route: {{"{source}.*": "{sink}.*"}}
"""


@dataclass
class Shop:
    """A source database, a sink database, and the file that joins them."""

    source: SqlServer
    sink: SqlServer
    database: str
    target: str
    path: Path
    environment: dict[str, str]
    stack: ExitStack

    def run(self, owner: str = "test") -> Run:
        opened = open_run(load_pipeline(self.path), EnvironmentDsns(self.environment), owner=owner)
        return self.stack.enter_context(opened)

    def forget_state(self) -> None:
        for file in self.path.parent.glob("*.state.db*"):
            file.unlink()

    def at_source(self, sql: str) -> None:
        with closing(self.source.connect(database=self.database)) as connection:
            connection.cursor().execute(sql)

    def sink_rows(self, sql: str) -> list[tuple[object, ...]]:
        with closing(self.sink.connect(database=self.target)) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall())

    @property
    def sink_endpoint(self) -> Endpoint:
        return Endpoint.parse(self.environment["DR_DSN"])


@pytest.fixture
def make_pair(fresh_database: Callable[[SqlServer], str], tmp_path: Path) -> MakePair:
    """Make pairs of nodes: give it their servers, and who wins conflicts, if they are settled."""
    return partial(pair_of, fresh_database=fresh_database, folder=tmp_path)


@pytest.fixture
def shop(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> Iterator[Shop]:
    source, sink = fresh_database(mysql_server), fresh_database(mysql_sink)
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(name=f"p_{source}", source=source, sink=sink))
    environment = {"SHOP_DSN": mysql_server.dsn(), "DR_DSN": mysql_sink.dsn()}
    with ExitStack() as stack:
        made = Shop(mysql_server, mysql_sink, source, sink, path, environment, stack)
        made.at_source(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT, UNIQUE (code))"
        )
        made.at_source("INSERT INTO orders VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30)")
        yield made


@pytest.fixture(params=["mysql", "mariadb"])
def empty_shop(
    request: pytest.FixtureRequest,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> Iterator[Shop]:
    """A source of either family and its sink, without tables and without a file yet."""
    server = request.getfixturevalue(f"{request.param}_server")
    source, sink = fresh_database(server), fresh_database(mysql_sink)
    environment = {"SHOP_DSN": server.dsn(), "DR_DSN": mysql_sink.dsn()}
    with ExitStack() as stack:
        yield Shop(server, mysql_sink, source, sink, tmp_path / "shop.yaml", environment, stack)
