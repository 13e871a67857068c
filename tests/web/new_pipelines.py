"""Servers of a new pipeline as Airflow's connections name them, and what the form is answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
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
