"""The hook of a connection to a source or sink: MySQL or MariaDB."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.hooks.dsn import dsn_of, remembered
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


class CdcHook(BaseHook):
    """
    Connects to a MySQL or MariaDB server as the pipelines do.

    :param cdc_conn_id: connection of type `cdc_mysql`, or Airflow's own `mysql`.
    """

    conn_name_attr = "cdc_conn_id"
    default_conn_name = "cdc_default"
    conn_type = "cdc_mysql"
    hook_name = "MySQL or MariaDB (CDC)"

    def __init__(self, cdc_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cdc_conn_id = cdc_conn_id

    def endpoint(self) -> Endpoint:
        """Return where the server is and how to get in; the password shows in no repr."""
        connection = self.get_connection(self.cdc_conn_id)
        try:
            return Endpoint.parse(remembered(dsn_of(connection, connection.extra_dejson)))
        except ValueError as error:
            raise RefusedError(
                str(error),
                where=f"connection {self.cdc_conn_id}",
                risk="none: nothing was started",
                remedy="correct the connection",
            ) from None

    def get_conn(self) -> ServerConnection:
        """Open a connection; the caller closes it."""
        return connect(self.endpoint(), purpose="hook")

    def capabilities(self) -> Capabilities:
        """Ask the server what it is and what it can do."""
        with closing(self.get_conn()) as connection:
            return read_capabilities(connection)

    def test_connection(self) -> tuple[bool, str]:
        """Connect, and say which server answered."""
        try:
            found = self.capabilities()
        except CdcError as error:
            return False, str(error)
        version = ".".join(str(part) for part in found.version)
        return True, f"{found.flavour.value} {version}, server {found.server_uuid}"
