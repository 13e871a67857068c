"""Sessions on throwaway servers for the tests of the source's room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect, sink_session
from tests.servers.given import SqlServer

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

BOTH_FAMILIES = (
    pytest.param("mysql_server", marks=pytest.mark.mysql),
    pytest.param("mariadb_server", marks=pytest.mark.mariadb),
)
"""Parameters for a fixture that gives first one server, then the other."""


@contextmanager
def source(server: SqlServer) -> Iterator[ServerConnection]:
    """Open a session as readers do."""
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        yield connection


@contextmanager
def sink(server: SqlServer) -> Iterator[ServerConnection]:
    """Open a session as writers do."""
    endpoint = Endpoint.parse(server.dsn())
    opened = connect(endpoint, purpose="test", role=Role.SINK, local_infile=True)
    with closing(opened) as connection:
        sink_session(connection)
        yield connection
