"""Servers of a new pipeline as Airflow's connections name them, and what the form is answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from tests.servers.given import SqlServer
from tests.web.shop import Page

CONNECTIONS = "/api/v2/connections"


@dataclass
class Choices:
    """A source's database, a sink's, and the connections of both."""

    page: Page
    database: str
    target: str
    conn_ids: list[str] = field(default_factory=list)

    def add(self, conn_id: str, dsn: str, conn_type: str) -> str:
        """Have Airflow keep a connection to a DSN's server."""
        server = Endpoint.parse(dsn)
        body = {
            "connection_id": conn_id,
            "conn_type": conn_type,
            "host": server.host,
            "port": server.port,
            "login": server.user,
            "password": server.password,
        }
        assert self.page.airflow("POST", CONNECTIONS, body).status_code == 201
        self.conn_ids.append(conn_id)
        return conn_id

    def answers(self, **changed: Any) -> dict[str, Any]:
        """Return what a person answers, with some answers changed."""
        return {
            "name": "new_shop",
            "source": "new_source",
            "sink": "new_sink",
            "tables": [f"{self.database}.*"],
            "route": {f"{self.database}.*": f"{self.target}.*"},
            "mode": "bounded",
            "verify": "always",
            **changed,
        }

    def remove(self) -> None:
        for conn_id in self.conn_ids:
            self.page.airflow("DELETE", f"{CONNECTIONS}/{conn_id}")


@pytest.fixture
def choices(
    page: Page,
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Choices]:
    """A shop of a few tables at MySQL, another MySQL to copy it to, and their connections."""
    # as the API server's own module has it: connections are looked up in Airflow's database
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    made = Choices(page, fresh_database(mysql_server), fresh_database(mysql_sink))
    for sql in (
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))",
        "INSERT INTO orders VALUES (1, 'one'), (2, 'two')",
        "CREATE TABLE customers (id INT PRIMARY KEY)",
        "CREATE TABLE keyless (a INT)",
    ):
        mysql_server.execute(sql, database=made.database)
    made.add("new_source", mysql_server.dsn(), "cdc_mysql")
    made.add("new_sink", mysql_sink.dsn(), "cdc_mysql_sink")
    yield made
    made.remove()


@contextmanager
def hung_server() -> Iterator[int]:
    """Give the port of a server that takes connections and never says a word."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def take() -> None:
            with suppress(OSError):
                while True:
                    kept.append(listening.accept()[0])

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for each in kept:
                each.close()
