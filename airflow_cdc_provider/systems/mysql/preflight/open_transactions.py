"""Preflight of a source's open transactions: those prepared for XA, and those open for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Doubt,
    NothingFound,
    QueryDenied,
    Seen,
    grant_everywhere,
    look,
    unseen,
)
from airflow_cdc_provider.systems.mysql.preflight.rights import TO_SEE_PREPARED
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.privileges import account_name
from airflow_cdc_provider.systems.mysql.source.prepared_transactions import prepared_transactions

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_LONG_TRANSACTION_S = 600
_SHOWN_XA = 3
_NOT_SHOWN = 3854
"""MySQL's INNODB_TRX holds the statements that run, in utf8mb3."""
_STREAM_STOPS = "the stream stops if the log with their rows is purged by their commit"
_SPLITS_ASK = (
    "without GTIDs each split asks for them and is refused without an answer: so are the "
    "snapshot, requests such as `resync`, and tables that are added or read again; the stream "
    "flows without it"
)


def open_transactions(
    connection: ServerConnection, capabilities: Capabilities, subject: str, *, are_awaited: bool
) -> Iterator[Finding]:
    """Yield findings about prepared XA transactions and those that are open for long.

    `are_awaited` tells whether splits are to be read that wait for the prepared ones.
    """
    yield from _prepared(connection, capabilities, subject, are_awaited=are_awaited)
    yield from _long_transactions(connection, subject)


def _prepared(
    connection: ServerConnection, capabilities: Capabilities, subject: str, *, are_awaited: bool
) -> Iterator[Finding]:
    """Yield a finding about prepared XA transactions, or that the account cannot see them."""
    level = Level.BLOCK if are_awaited else Level.WARN
    splits_ask = not capabilities.has_gtids
    match look(lambda: prepared_transactions(connection, is_mariadb=capabilities.is_mariadb)):
        case Seen(prepared):
            yield _are_prepared(prepared, level, subject)
        case QueryDenied() as denied:
            yield unseen(
                Code.SOURCE_UNSEEN,
                level if splits_ask else Level.INFO,
                subject,
                denied,
                Doubt(
                    what="whether XA transactions are prepared",
                    why=_SPLITS_ASK if splits_ask else _STREAM_STOPS,
                    grant=grant_everywhere(TO_SEE_PREPARED, account_name(connection)),
                ),
            )
        case NothingFound():
            pass


def _are_prepared(prepared: list[str], level: Level, subject: str) -> Finding:
    """Return the finding for prepared XA transactions."""
    return Finding(
        Code.SOURCE_PREPARED_TRANSACTIONS,
        level,
        subject,
        f"{len(prepared)} XA transactions are prepared and not committed: "
        + "; ".join([*prepared[:_SHOWN_XA], *(["..."] if prepared[_SHOWN_XA:] else [])]),
        "none while a snapshot is taken",
        "their rows are in the log before anyone can see them and are read back at their "
        "commit: the stream stops if that part of the log is purged by then; on MariaDB and "
        "without GTIDs the snapshot waits for them, for minutes, and then stops",
        "wait for them, or end each by its name before the snapshot starts: "
        f"XA COMMIT {prepared[0]}; or XA ROLLBACK {prepared[0]};",
    )


def _long_transactions(connection: ServerConnection, subject: str) -> Iterator[Finding]:
    """Yield a finding if transactions have been open for long."""
    sql = (
        "SELECT TIMESTAMPDIFF(SECOND, trx_started, NOW()) FROM information_schema.INNODB_TRX "
        f"WHERE trx_started < NOW() - INTERVAL {_LONG_TRANSACTION_S} SECOND"
    )
    try:
        seen = look(lambda: [int(row[0]) for row in query(connection, sql)])
    except IntegrityError as error:
        if error.server_error != _NOT_SHOWN:
            raise
        yield Finding(
            Code.SOURCE_UNSEEN,
            Level.INFO,
            subject,
            "cannot tell whether transactions are open for long: a statement that runs now holds "
            "a character that the server cannot show in INNODB_TRX",
            "an answer",
            "no row is at risk: their changes come as one piece when they commit",
            "`check` again once that statement has ended",
        )
        return
    match seen:
        case Seen(ages):
            yield Finding(
                Code.SOURCE_LONG_TRANSACTIONS,
                Level.WARN,
                subject,
                f"{len(ages)} transactions are open, the longest for {max(ages)} s",
                f"none older than {_LONG_TRANSACTION_S} s",
                "their changes reach the log as one piece when they commit, and old row versions "
                "slow every read",
                "SELECT * FROM information_schema.INNODB_TRX ORDER BY trx_started;",
            )
        case QueryDenied() as denied:
            yield unseen(
                Code.SOURCE_UNSEEN,
                Level.INFO,
                subject,
                denied,
                Doubt(
                    what="whether transactions are open for long",
                    why="no row is at risk: their changes come as one piece when they commit",
                    grant=grant_everywhere("PROCESS", account_name(connection)),
                ),
            )
        case NothingFound():
            pass
