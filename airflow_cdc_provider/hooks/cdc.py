"""The hook of a connection to a source or sink: MySQL or MariaDB."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_STARTED, CdcError, RefusedError
from airflow_cdc_provider.hooks.dsn import dsn_of, remembered
from airflow_cdc_provider.systems.registry import open_source


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
                risk=NOTHING_STARTED,
                remedy="correct the connection",
            ) from None

    def get_conn(self) -> Any:
        """Open a connection of the database's own driver; the caller closes it."""
        return open_source(self.endpoint()).connect(purpose="hook")

    def test_connection(self) -> tuple[bool, str]:
        """Connect, and say which server answered."""
        try:
            return True, open_source(self.endpoint()).describe()
        except CdcError as error:
            return False, str(error)
