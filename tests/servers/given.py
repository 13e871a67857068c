"""What can be asked of any server, our own or one the user gave by a DSN."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pymysql

from airflow_cdc_provider.core.endpoint import Endpoint

if TYPE_CHECKING:
    from pymysql.connections import Connection

MYSQL_DSN = "CDC_TEST_MYSQL_DSN"
MYSQL_SINK_DSN = "CDC_TEST_MYSQL_SINK_DSN"
MARIADB_DSN = "CDC_TEST_MARIADB_DSN"


class SqlServer:
    """A server one can connect to as an administrator."""

    def __init__(self, *, host: str, port: int, user: str, password: str) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.host}:{self.port})"

    def dsn(self, user: str | None = None, password: str | None = None, database: str = "") -> str:
        """Give the address as Airflow's connection URIs are written; by default the test user's."""
        name = self.user if user is None else user
        secret = self.password if user is None and password is None else password or ""
        login = f"{quote(name, safe='')}:{quote(secret, safe='')}"
        return f"mysql://{login}@{self.host}:{self.port}/{quote(database, safe='')}"

    def connect(self, database: str | None = None, **options: Any) -> Connection[Any]:
        """Open a connection in autocommit mode; `options` are PyMySQL's and win."""
        defaults: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "database": database,
            "charset": "utf8mb4",
            "autocommit": True,
            "local_infile": True,
            # A context for TLS reads every authority of the machine: 30 ms of CPU each time.
            "ssl_disabled": self.host == "127.0.0.1",
        }
        return pymysql.connect(**(defaults | options))

    def execute(self, sql: str, args: Any = None, *, database: str | None = None) -> list[Any]:
        """Run one statement on a connection of its own and give its rows, if it has any."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, args)
                return list(cursor.fetchall())
        finally:
            connection.close()

    @property
    def version(self) -> str:
        """Give the server's own version text, such as 9.7.4 or 10.11.18-MariaDB-..."""
        return str(self.execute("SELECT VERSION()")[0][0])


class GivenServer(SqlServer):
    """A server the user runs: it is used and cleaned up after, never started or stopped."""

    @classmethod
    def from_environment(cls, variable: str) -> Self | None:
        """Read the DSN in `variable`, if it is set."""
        dsn = os.environ.get(variable, "")
        if not dsn:
            return None
        given = Endpoint.parse(dsn)
        return cls(host=given.host, port=given.port, user=given.user, password=given.password)
