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
from airflow_cdc_provider.systems.mysql.preflight.rights import (
    LOG_STATUS,
    SINK_PRIVILEGES,
    TO_LOOK_AT_LOG_STATUS,
    TO_READ_ROWS,
    TO_SEE_PREPARED,
    source_privileges,
    target_privileges,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.privileges import account_name

_PURPOSE = "the rights of the account"


def needed_rights(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the GRANT statements that the endpoint's account needs as a source or sink."""
    role = Role.SOURCE if part is Part.SOURCE else Role.SINK
    server = replace(endpoint, database="")
    with closing(connect(server, purpose=_PURPOSE, role=role)) as connection:
        capabilities = read_capabilities(connection, role=role)
        account = account_name(connection, role=role)
    of_part = _at_source if part is Part.SOURCE else _at_sink
    return tuple(of_part(capabilities, account, databases))


def _at_source(capabilities: Capabilities, account: str, databases: Sequence[str]) -> Iterator[str]:
    """Yield the GRANT statements that a source's account needs."""
    yield grant_everywhere(", ".join(source_privileges(capabilities)), account)
    if not capabilities.is_mariadb and capabilities.setting("gtid_mode") != "ON":
        yield grant_everywhere(f"{TO_SEE_PREPARED}, {TO_LOOK_AT_LOG_STATUS}", account)
        yield f"GRANT {TO_READ_ROWS} ON {LOG_STATUS} TO {account};"
    for database in databases:
        yield _grant_on(database, (TO_READ_ROWS,), account)


def _at_sink(capabilities: Capabilities, account: str, databases: Sequence[str]) -> Iterator[str]:
    """Yield the GRANT statements that a sink's account needs."""
    for database in databases:
        yield _grant_on(database, target_privileges(capabilities), account)
    yield _grant_on(LEDGER_DATABASE, SINK_PRIVILEGES, account)


def _grant_on(database: str, privileges: Sequence[str], account: str) -> str:
    """Return the statement that grants privileges on a database."""
    return f"GRANT {', '.join(privileges)} ON {quote_identifier(database)}.* TO {account};"
