"""What a MySQL-protocol sink can do, as data: asked once a session, decided on nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import UnsupportedServerError
from airflow_cdc_provider.systems.mysql.server.connection import Role, query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_ROW_ALIAS = (8, 0, 19)
_FOR_SHARE = (8, 0, 1)
_STATEMENT_BYTES = 4 << 20
_LOAD_PACKETS = 2 << 20
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """One sink server's family, version and limits."""

    is_mariadb: bool
    version: tuple[int, int, int]
    max_allowed_packet: int
    takes_local_files: bool
    """LOAD DATA LOCAL is allowed, and its rows may come in packets of a megabyte."""

    @property
    def has_row_alias(self) -> bool:
        """Tell whether an upsert names its new row (`AS new`), else by `VALUES(column)`."""
        return not self.is_mariadb and self.version >= _ROW_ALIAS

    @property
    def share_lock(self) -> str:
        """Return the locking clause with which a SELECT shares a row until the transaction ends."""
        renamed = not self.is_mariadb and self.version >= _FOR_SHARE
        return "FOR SHARE" if renamed else "LOCK IN SHARE MODE"

    @property
    def statement_bytes(self) -> int:
        """Return up to how many bytes a multi-row statement is filled.

        Beyond a few megabytes a larger statement only takes more memory on both sides.
        """
        return min(_STATEMENT_BYTES, self.largest_statement)

    @property
    def largest_statement(self) -> int:
        """Return the bytes of the largest statement that the server takes.

        The packet counts its command's byte, and has to be smaller than the limit, not equal.
        """
        return self.max_allowed_packet - 2


def ask_capabilities(connection: ServerConnection, *, local_files: bool) -> SinkCapabilities:
    """Query a sink's version and limits; `local_files` permits LOAD DATA LOCAL where allowed."""
    ask = "SELECT VERSION(), @@max_allowed_packet, @@global.local_infile"
    text, packet, allowed = query(connection, ask, role=Role.SINK)[0]
    match = _VERSION.search(str(text))
    if match is None:
        raise UnsupportedServerError(
            f"the sink's version {text!r} is not understood",
            where=f"{connection.host}:{connection.port}",
            remedy="connect to a MySQL 8.0 or MariaDB 10.5 server or later",
        )
    return SinkCapabilities(
        is_mariadb="mariadb" in str(text).lower(),
        version=(int(match[1]), int(match[2]), int(match[3])),
        max_allowed_packet=int(packet),
        takes_local_files=local_files and bool(int(allowed)) and int(packet) > _LOAD_PACKETS,
    )
