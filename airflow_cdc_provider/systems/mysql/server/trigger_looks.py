"""Triggers at a sink, where an account that may not see them is told so.

MySQL lists no trigger of a table to accounts without TRIGGER on it, and no error: "none" would then
say nothing. MariaDB shows them to who may write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import AccessDeniedError
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.systems.mysql.server.catalogue import firing_triggers
from airflow_cdc_provider.systems.mysql.server.connection import Role
from airflow_cdc_provider.systems.mysql.server.privileges import read_grants
from airflow_cdc_provider.systems.mysql.server.raw_connection import is_mariadb

if TYPE_CHECKING:
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_TO_SEE = "TRIGGER"


def triggers_that_fire(
    connection: ServerConnection, tables: Sequence[TableId]
) -> Mapping[TableId, Sequence[str]]:
    """Return the triggers of a sink's tables that do not ask for `@airflow_cdc`, by table.

    `AccessDeniedError` if the account may not see them.
    """
    if not is_mariadb(connection):
        _require_sight(connection, tables)
    return firing_triggers(connection, tables)


def _require_sight(connection: ServerConnection, tables: Sequence[TableId]) -> None:
    """Refuse an account from which MySQL hides the triggers of one of the tables."""
    grants = read_grants(connection, role=Role.SINK)
    lacking = sorted(grants.missing_on((_TO_SEE,), tables))
    if not lacking:
        return
    statements = "; ".join(
        f"GRANT {_TO_SEE} ON {quote_identifier(database)}.* TO {grants.account}"
        for database in lacking
    )
    raise AccessDeniedError(
        f"the account {grants.account} may not see the triggers of {', '.join(lacking)}",
        where="sink's account",
        risk="a trigger could change rows as they are written; nothing was written",
        remedy=f"{statements}; then run again",
    )
