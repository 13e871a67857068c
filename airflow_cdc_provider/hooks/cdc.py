"""The hooks of connections to sources, sinks and state stores, and what their test button says."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseHook

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.hooks.dsn import dsn_of, remembered
from airflow_cdc_provider.pipeline.connection_fields import endpoint_of
from airflow_cdc_provider.systems.registry import look_at, open_source
from airflow_cdc_provider.views.connection_test import connection_test


class CdcHook(BaseHook):
    """
    Connects to a MySQL or MariaDB server as the pipelines do; its test is that of a source.

    :param cdc_conn_id: connection of type `cdc_mysql`, or Airflow's own `mysql`.
    """

    conn_name_attr = "cdc_conn_id"
    default_conn_name = "cdc_default"
    conn_type = "cdc_mysql"
    hook_name = "CDC source (MySQL, MariaDB)"
    part: ClassVar[Part] = Part.SOURCE

    def __init__(self, cdc_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cdc_conn_id = cdc_conn_id

    def endpoint(self) -> Endpoint:
        """Return the server's address and account; `repr` hides the password."""
        return endpoint_of(self.cdc_conn_id, _dsn(self.cdc_conn_id))

    def get_conn(self) -> Any:
        """Open a connection of the database's own driver; the caller closes it."""
        return open_source(self.endpoint()).connect(purpose="hook")

    def test_connection(self) -> tuple[bool, str]:
        """Check the server as preflight does; return whether it can be used, and the findings."""
        try:
            return connection_test(look_at(self.endpoint(), self.part))
        except CdcError as error:
            return False, str(error)


class CdcSinkHook(CdcHook):
    """
    Connects to a MySQL or MariaDB server as the pipelines do; its test is that of a sink.

    :param cdc_conn_id: connection of type `cdc_mysql_sink`, or Airflow's own `mysql`.
    """

    conn_type = "cdc_mysql_sink"
    hook_name = "CDC sink (MySQL, MariaDB)"
    part = Part.SINK


class CdcStateHook(BaseHook):
    """
    Finds the database of a state store; its test checks that.

    :param cdc_conn_id: connection of type `cdc_state`, or Airflow's own `mysql`, `postgres` or
        `sqlite`.
    """

    conn_name_attr = "cdc_conn_id"
    default_conn_name = "cdc_state"
    conn_type = "cdc_state"
    hook_name = "CDC state store (MySQL, PostgreSQL, SQLite)"

    def __init__(self, cdc_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cdc_conn_id = cdc_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Check the database; return whether it can be a state store, and what was found."""
        from airflow_cdc_provider.state.connection_test import try_store  # noqa: PLC0415 - SQLAlchemy

        try:
            return True, "\n".join(f"{line}." for line in try_store(_dsn(self.cdc_conn_id)))
        except CdcError as error:
            return False, str(error)


def _dsn(conn_id: str) -> str:
    """Return the DSN of an Airflow connection, masked in logs."""
    connection = BaseHook.get_connection(conn_id)
    return remembered(dsn_of(connection, connection.extra_dejson))
