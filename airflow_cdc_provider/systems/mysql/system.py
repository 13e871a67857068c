"""MySQL and MariaDB, as the registry hands them out."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.server_look import Part, ServerLook
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.options import MySqlOptions


def source(endpoint: Endpoint, options: SourceOptions) -> MySqlSource:
    """Return a MySQL or MariaDB server as a source; nothing is connected yet."""
    return MySqlSource(endpoint, MySqlOptions.of(options).keys)


def sink(
    place: SinkPlace, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
) -> MySqlSink:
    """Return a MySQL or MariaDB server as a sink for one generation; nothing is connected yet."""
    if not isinstance(place, Endpoint):
        raise RefusedError(
            "MySQL needs a server, and this is a place of files",
            where=str(place),
            risk=NOTHING_STARTED,
            remedy="name the server as the sink",
        )
    return MySqlSink(place, owner, tuple(plans), settings)


def look(endpoint: Endpoint, part: Part) -> ServerLook:
    """Return facts and findings of a server as a source or sink, without tables."""
    from airflow_cdc_provider.systems.mysql.preflight.one_server import (  # noqa: PLC0415
        look_at_server,
    )

    return look_at_server(endpoint, part)


def rights(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the GRANT statements that the account needs as a source or sink."""
    from airflow_cdc_provider.systems.mysql.preflight.needed_rights import (  # noqa: PLC0415
        needed_rights,
    )

    return needed_rights(endpoint, part, databases)
