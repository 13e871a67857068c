"""The rights that an account needs, as statements for the person who grants them.

Preflight reports what is missing; this is all of it, for an account that has nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, quote_identifier
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.systems.mysql.preflight.looks import grant_everywhere
from airflow_cdc_provider.systems.mysql.preflight.preflight import (
    SINK_PRIVILEGES,
    TO_SEE_TRIGGERS,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.privileges import account_name

_PURPOSE = "the rights of the account"


def needed_rights(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the GRANT statements for the account that the endpoint names."""
    role = Role.SOURCE if part is Part.SOURCE else Role.SINK
    server = replace(endpoint, database="")
    with closing(connect(server, purpose=_PURPOSE, role=role)) as connection:
        capabilities = read_capabilities(connection, role=role)
        account = account_name(connection, role=role)
    of_part = _at_source if part is Part.SOURCE else _at_sink
    return tuple(of_part(capabilities, account, databases))


def _at_source(capabilities: Capabilities, account: str, databases: Sequence[str]) -> Iterator[str]:
    names = "REPLICATION SLAVE, REPLICATION CLIENT"
    if capabilities.is_mariadb:
        names = "REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR"
    yield grant_everywhere(names, account)
    if not capabilities.is_mariadb and capabilities.setting("gtid_mode") != "ON":
        yield grant_everywhere("XA_RECOVER_ADMIN, BACKUP_ADMIN", account)
        yield f"GRANT SELECT ON performance_schema.log_status TO {account};"
    for database in databases:
        yield f"GRANT SELECT ON {quote_identifier(database)}.* TO {account};"


def _at_sink(capabilities: Capabilities, account: str, databases: Sequence[str]) -> Iterator[str]:
    sees_triggers = () if capabilities.is_mariadb else (TO_SEE_TRIGGERS,)
    for database in databases:
        names = ", ".join((*SINK_PRIVILEGES, "REFERENCES", *sees_triggers))
        yield f"GRANT {names} ON {quote_identifier(database)}.* TO {account};"
    ledger = quote_identifier(LEDGER_DATABASE)
    yield f"GRANT {', '.join(SINK_PRIVILEGES)} ON {ledger}.* TO {account};"
