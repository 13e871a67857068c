"""MySQL and MariaDB, as the registry hands them out."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.columns.sink_port import Owner, SinkSettings
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.server_look import Part, ServerLook
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource


def source(endpoint: Endpoint) -> MySqlSource:
    """Return a source; nothing is connected yet."""
    return MySqlSource(endpoint)


def sink(
    place: SinkPlace, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
) -> MySqlSink:
    """Return a sink under one generation; nothing is connected yet."""
    if not isinstance(place, Endpoint):
        raise RefusedError(
            "MySQL needs a server, and this is a folder",
            where=str(place),
            risk=NOTHING_STARTED,
            remedy="name the server as the sink",
        )
    return MySqlSink(place, owner, tuple(plans), settings)


def look(endpoint: Endpoint, part: Part) -> ServerLook:
    """Look at a server for the part it is to play, whatever its tables are."""
    from airflow_cdc_provider.systems.mysql.preflight.one_server import (  # noqa: PLC0415
        look_at_server,
    )

    return look_at_server(endpoint, part)


def rights(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the statements that give the account all that its part needs."""
    from airflow_cdc_provider.systems.mysql.preflight.needed_rights import (  # noqa: PLC0415
        needed_rights,
    )

    return needed_rights(endpoint, part, databases)
