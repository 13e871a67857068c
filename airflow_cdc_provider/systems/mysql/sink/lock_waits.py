"""Which sessions of a pipeline's owner wait at the sink for a lock on a table, and whose it is.

LOCK TABLES, an ALTER, FLUSH TABLES WITH READ LOCK or a backup hold up a write for as long as they
last, and the server answers everybody else meanwhile. An account sees its own sessions in the list
of the server's, so the wait is known without any grant. Who holds the lock is known of MySQL, where
the account may read `performance_schema`; MariaDB does not list its locks.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_TABLE = re.compile(r"`((?:[^`]|``)+)`\.`((?:[^`]|``)+)`")
_SHOWN = 400
"""Characters of a statement that are read; the table's name is among the first."""
_STANDS_IN_THE_WAY = "'SHARED_READ_ONLY', 'SHARED_NO_WRITE', 'SHARED_NO_READ_WRITE', 'EXCLUSIVE'"
"""The locks of MySQL that a write of rows waits for."""


def lock_waits(session: SinkSession, owner: Owner, *, from_s: int) -> tuple[LockWait, ...]:
    """Return the owner's writers that have waited for a table's lock for `from_s` seconds."""
    writers = session.rows(
        f"SELECT IS_USED_LOCK(lock_name) FROM {LEDGER}.writer "
        f"WHERE {pipeline_is(owner.pipeline)} AND generation = {owner.generation}"
    )
    ids = [int(row[0]) for row in writers if row[0] is not None]
    if not ids:
        return ()
    waiting = session.rows(
        f"SELECT ID, TIME, STATE, LEFT(INFO, {_SHOWN}) FROM information_schema.PROCESSLIST "
        f"WHERE ID IN ({', '.join(map(str, ids))}) AND STATE LIKE 'Waiting for%lock%' "
        f"AND TIME >= {from_s}"
    )
    return tuple(
        LockWait(
            int(number),
            float(time),
            str(state),
            _table_in(str(statement or "")),
            _holders(session, int(number), ids),
        )
        for number, time, state, statement in waiting
    )


def _table_in(statement: str) -> str:
    """Return the first table that one of our statements names, empty if it is cut off."""
    found = _TABLE.search(statement)
    return ".".join(name.replace("``", "`") for name in found.groups()) if found else ""


def _holders(session: SinkSession, waiting: int, ours: Collection[int]) -> tuple[str, ...]:
    """Return the sessions whose lock one of ours waits for; none if nobody may see them."""
    if session.capabilities.is_mariadb:
        return ()
    try:
        found = session.rows(_holders_query(waiting))
    except RetryableError:
        raise
    except CdcError:  # not granted, or not there
        return ()
    return tuple(
        f"session {number} of {user}@{host}"
        for number, user, host in dict.fromkeys(map(tuple, found))
        if number not in ours
    )


def _holders_query(waiting: int) -> str:
    """Return the query for the sessions whose locks one session waits for."""
    return (
        "SELECT theirs.PROCESSLIST_ID, theirs.PROCESSLIST_USER, theirs.PROCESSLIST_HOST "
        "FROM performance_schema.metadata_locks AS wanted "
        "JOIN performance_schema.threads AS mine ON mine.THREAD_ID = wanted.OWNER_THREAD_ID "
        "JOIN performance_schema.metadata_locks AS held ON held.OBJECT_TYPE = wanted.OBJECT_TYPE "
        "AND held.OBJECT_SCHEMA <=> wanted.OBJECT_SCHEMA "
        "AND held.OBJECT_NAME <=> wanted.OBJECT_NAME "
        "AND held.OWNER_THREAD_ID <> wanted.OWNER_THREAD_ID "
        f"AND (held.LOCK_TYPE IN ({_STANDS_IN_THE_WAY}) OR held.OBJECT_TYPE <> 'TABLE') "
        "JOIN performance_schema.threads AS theirs ON theirs.THREAD_ID = held.OWNER_THREAD_ID "
        f"WHERE mine.PROCESSLIST_ID = {waiting} AND wanted.LOCK_STATUS = 'PENDING' "
        "AND theirs.PROCESSLIST_ID IS NOT NULL"
    )
