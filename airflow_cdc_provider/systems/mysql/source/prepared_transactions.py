"""Distributed transactions that are prepared and not committed, as `XA RECOVER` lists them.

Their names are any bytes, and those of transaction managers rarely are text: MySQL is asked for
hexadecimal, because it sends the bytes as if they were a text, which no client can decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import AccessDeniedError, IntegrityError
from airflow_cdc_provider.systems.mysql.server.connection import query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


_DENIED = 1401
"""What MySQL says of XA RECOVER without the privilege; of other statements it is no denial."""


def prepared_transactions(connection: ServerConnection, *, is_mariadb: bool) -> list[str]:
    """Return the names of the prepared XA transactions, as XA COMMIT takes them.

    A name is two parts and the number of the format.
    """
    names = []
    for number, first_bytes, _, name in _recovered(connection, is_mariadb=is_mariadb):
        if isinstance(name, bytes):
            digits = name.hex()
        elif is_mariadb:
            digits = str(name).encode().hex()
        else:
            digits = str(name).removeprefix("0x").lower()
        cut = 2 * int(first_bytes)
        names.append(f"X'{digits[:cut]}',X'{digits[cut:]}',{number}")
    return names


def _recovered(connection: ServerConnection, *, is_mariadb: bool) -> list[tuple[Any, ...]]:
    """Query XA RECOVER; a denial is raised with the grant that is needed."""
    try:
        return query(connection, "XA RECOVER" if is_mariadb else "XA RECOVER CONVERT XID")
    except IntegrityError as error:
        if error.server_error != _DENIED:
            raise
        raise AccessDeniedError(
            "the account may not ask for prepared XA transactions (XA RECOVER)",
            error.where,
            "without GTIDs, one of them could be lost without a sign",
            "GRANT XA_RECOVER_ADMIN ON *.* to the account, or switch GTIDs on",
        ) from None
