"""Preflight of a source's open transactions: those prepared for XA, and those open for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import AccessDeniedError, IntegrityError
from airflow_cdc_provider.mysql.capabilities import Capabilities
from airflow_cdc_provider.mysql.connection import query
from airflow_cdc_provider.mysql.findings import Finding, Level
from airflow_cdc_provider.mysql.prepared_transactions import prepared_transactions

if TYPE_CHECKING:
    from airflow_cdc_provider.mysql.connection import ServerConnection

_LONG_TRANSACTION_S = 600
_SHOWN_XA = 3


def open_transactions(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    """Yield what is to be said about transactions that are open now."""
    yield from _prepared(connection, capabilities, subject)
    yield from _long_transactions(connection, subject)


def _prepared(
    connection: ServerConnection, capabilities: Capabilities, subject: str
) -> Iterator[Finding]:
    try:
        prepared = prepared_transactions(connection, is_mariadb=capabilities.is_mariadb)
    except (AccessDeniedError, IntegrityError):
        # MySQL asks for XA_RECOVER_ADMIN, which nothing else here needs, and says 1401 without it
        return
    if prepared:
        yield Finding(
            "source.prepared_transactions",
            Level.WARN if capabilities.has_gtids else Level.BLOCK,
            subject,
            f"{len(prepared)} XA transactions are prepared and not committed: "
            + "; ".join([*prepared[:_SHOWN_XA], *(["..."] if prepared[_SHOWN_XA:] else [])]),
            "none while a snapshot is taken",
            "their rows are in the log before anyone can see them and are read back at their "
            "commit: the stream stops if that part of the log is purged by then; on MariaDB and "
            "without GTIDs the snapshot waits for them and then stops",
            "wait for them, or end each by its name before the snapshot starts: "
            f"XA COMMIT {prepared[0]}; or XA ROLLBACK {prepared[0]};",
        )


def _long_transactions(connection: ServerConnection, subject: str) -> Iterator[Finding]:
    try:
        found = query(
            connection,
            "SELECT COUNT(*), MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) "
            "FROM information_schema.INNODB_TRX "
            f"WHERE trx_started < NOW() - INTERVAL {_LONG_TRANSACTION_S} SECOND",
        )
    except AccessDeniedError:
        return  # PROCESS is needed, which nothing else here needs
    count, longest = found[0]
    if count:
        yield Finding(
            "source.long_transactions",
            Level.WARN,
            subject,
            f"{count} transactions are open, the longest for {longest} s",
            f"none older than {_LONG_TRANSACTION_S} s",
            "their changes reach the log as one piece when they commit, and old row versions "
            "slow every read",
            "SELECT * FROM information_schema.INNODB_TRX ORDER BY trx_started;",
        )
