"""The connections that Airflow keeps, as DSNs: the form in which the rooms below know a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_cdc_provider.core.dsn import passwords_in
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.pipeline.connection_fields import (
    ConnectionFields,
    conn_type_of,
    require_encoded,
)
from airflow_cdc_provider.pipeline.file.model import Reference


class AirflowDsns:
    """Finds DSNs in Airflow connections or environment variables."""

    def __call__(self, reference: Reference) -> str | None:
        """Return the DSN or text that the reference names, None if there is none."""
        if reference.dsn_env is not None:
            return remembered(os.environ.get(reference.dsn_env, "")) or None
        conn_id = reference.conn_id or ""
        require_encoded(conn_id, os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", ""))
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            return None
        return remembered(dsn_of(connection, connection.extra_dejson))

    def fields(self, conn_id: str) -> ConnectionFields | None:
        """Return the fields of an Airflow connection of any type, None if there is none."""
        try:
            connection = BaseHook.get_connection(conn_id)
            return fields_of(connection, connection.extra_dejson)
        except AirflowNotFoundException:
            return None
        except Exception as error:  # noqa: BLE001 - of whatever keeps Airflow's connections
            raise RefusedError(
                f"connection {conn_id!r} cannot be read: {type(error).__name__}",
                where=f"connection {conn_id}",
                risk=NOTHING_STARTED,
                remedy="correct it, or the secrets backend that keeps it",
            ) from None


def fields_of(connection: Connection, extra: Mapping[str, Any]) -> ConnectionFields:
    """Return an Airflow connection's fields; `extra` is its extra, parsed from JSON."""
    return ConnectionFields(
        connection.conn_id,
        conn_type_of(connection.conn_type or ""),
        connection.host or "",
        connection.port,
        connection.login or "",
        connection.password or "",
        connection.schema or "",
        extra,
    )


def dsn_of(connection: Connection, extra: Mapping[str, Any]) -> str:
    """Return an Airflow connection as a DSN; `extra` is its extra, parsed from JSON."""
    return fields_of(connection, extra).dsn()


def remembered(dsn: str) -> str:
    """Have Airflow mask a DSN and its password in logs, and return the DSN."""
    if not dsn:
        return dsn
    mask_secret(dsn)
    for password in passwords_in(dsn):
        mask_secret(password)
        mask_secret(unquote(password))
    return dsn
