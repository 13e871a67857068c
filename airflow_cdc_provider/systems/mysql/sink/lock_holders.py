"""Whose lock on a table, or on the server, a session of the sink waits for.

MySQL lists locks in `performance_schema.metadata_locks`, to those who may read it. MariaDB does so
only where its performance schema and the instrument of these locks are on, which they are not by
default, and in `information_schema.METADATA_LOCK_INFO`, to everybody, where the plugin of that name
is installed. That list has no locks that are waited for, so the table is the statement's.

MariaDB's performance schema shows a lock as it was first taken, and both an ALTER and LOCK TABLES
READ begin with one that keeps no write out. So where no lock that does is shown, a session that has
one of these is named, if there is no other such session: one that only reads has the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.systems.mysql.dialect.sql import text_literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_KEEPS_WRITES_OUT = frozenset(
    {"SHARED_READ_ONLY", "SHARED_NO_WRITE", "SHARED_NO_READ_WRITE", "EXCLUSIVE"}
)
"""The locks on a table that a write of rows waits for."""
_OF_EVERY_WRITE = frozenset(
    {
        "INTENTION_EXCLUSIVE",
        "BACKUP_DML",
        "BACKUP_TRANS_DML",
        "BACKUP_SYS_DML",
        "BACKUP_DDL",
        "BACKUP_ALTER_COPY",
        "BACKUP_COMMIT",
    }
)
"""The locks on a database or the server that each write or ALTER takes beside others."""
_MAY_KEEP_WRITES_OUT = ("SHARED_UPGRADABLE", "SHARED_READ")
"""The first locks of an ALTER, and of LOCK TABLES READ."""


@dataclass(frozen=True, slots=True)
class _Lock:
    """A lock of another session on what one of ours waits for."""

    session: int
    user: str
    host: str
    is_on_table: bool
    kind: str

    @property
    def keeps_writes_out(self) -> bool:
        """Tell whether a write of rows waits for it."""
        if self.is_on_table:
            return self.kind in _KEEPS_WRITES_OUT
        return self.kind not in _OF_EVERY_WRITE

    def __str__(self) -> str:
        return f"session {self.session}" + (f" of {self.user}@{self.host}" if self.user else "")


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session of ours that waits, and for what."""

    number: int
    state: str
    """In the server's own words."""
    database: str = ""
    table: str = ""


def lock_holders(
    session: SinkSession, waiting: WaitingSession, ours: Collection[int]
) -> tuple[str, ...]:
    """Return the sessions whose lock one of ours waits for; none if the account sees none."""
    queries = [_by_performance_schema(waiting.number)]
    if session.capabilities.is_mariadb:
        queries.insert(0, _by_plugin(waiting))
    for query in queries:
        found = [lock for lock in _locks(_rows(session, query)) if lock.session not in ours]
        holding = _named(lock for lock in found if lock.keeps_writes_out)
        for kind in _MAY_KEEP_WRITES_OUT if session.capabilities.is_mariadb else ():
            may = _named(lock for lock in found if lock.kind == kind)
            holding = holding or (may if len(may) == 1 else ())
        if holding:
            return holding
    return ()


def _named(locks: Iterable[_Lock]) -> tuple[str, ...]:
    """Return the sessions of locks, each once."""
    return tuple(dict.fromkeys(map(str, locks)))


def _rows(session: SinkSession, query: str) -> Sequence[Sequence[Any]]:
    """Return the rows of a query; none if it is not granted, or what it asks is not there."""
    try:
        return session.rows(query)
    except RetryableError:
        raise
    except CdcError:
        return ()


def _locks(rows: Iterable[Sequence[Any]]) -> list[_Lock]:
    """Read the locks that either query found."""
    return [
        _Lock(int(number), str(user or ""), str(host or ""), bool(is_on_table), str(kind))
        for number, user, host, is_on_table, kind in rows
    ]


def _by_performance_schema(waiting: int) -> str:
    """Return the query for the locks of others on what one session waits for."""
    return (
        "SELECT theirs.PROCESSLIST_ID, theirs.PROCESSLIST_USER, theirs.PROCESSLIST_HOST, "
        "held.OBJECT_TYPE = 'TABLE', held.LOCK_TYPE "
        "FROM performance_schema.metadata_locks AS wanted "
        "JOIN performance_schema.threads AS mine ON mine.THREAD_ID = wanted.OWNER_THREAD_ID "
        "JOIN performance_schema.metadata_locks AS held ON held.OBJECT_TYPE = wanted.OBJECT_TYPE "
        "AND held.OBJECT_SCHEMA <=> wanted.OBJECT_SCHEMA "
        "AND held.OBJECT_NAME <=> wanted.OBJECT_NAME "
        "AND held.OWNER_THREAD_ID <> wanted.OWNER_THREAD_ID "
        "JOIN performance_schema.threads AS theirs ON theirs.THREAD_ID = held.OWNER_THREAD_ID "
        f"WHERE mine.PROCESSLIST_ID = {waiting} AND wanted.LOCK_STATUS = 'PENDING' "
        "AND theirs.PROCESSLIST_ID IS NOT NULL"
    )


def _by_plugin(waiting: WaitingSession) -> str:
    """Return the query for the locks on what a session waits for; its table is the statement's."""
    return (
        "SELECT held.THREAD_ID, theirs.USER, theirs.HOST, held.TABLE_NAME <> '', "
        "SUBSTR(held.LOCK_MODE, 5) "  # behind MDL_
        "FROM information_schema.METADATA_LOCK_INFO AS held "
        "LEFT JOIN information_schema.PROCESSLIST AS theirs ON theirs.ID = held.THREAD_ID "
        f"WHERE CONCAT('Waiting for ', held.LOCK_TYPE) = {text_literal(waiting.state)} "
        "AND held.THREAD_ID <> 0 AND (held.TABLE_NAME = '' OR "
        f"(held.TABLE_SCHEMA = {text_literal(waiting.database)} "
        f"AND held.TABLE_NAME = {text_literal(waiting.table)}))"
    )
