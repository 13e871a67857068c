"""Which sessions of a pipeline's owner wait at the sink for a lock on a table, and whose it is.

LOCK TABLES, an ALTER, FLUSH TABLES WITH READ LOCK or a backup hold up a write for as long as they
last, and the server answers everybody else meanwhile. An account sees its own sessions in the list
of the server's, so the wait is known without any grant; `lock_holders` finds whose lock it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.lock_holders import WaitingSession, lock_holders
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_TABLE = re.compile(r"`((?:[^`]|``)+)`\.`((?:[^`]|``)+)`")
_SHOWN = 400
"""Characters of a statement that are read; the table's name is among the first."""


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
    return tuple(_wait(session, ids, row) for row in waiting)


def _wait(session: SinkSession, ours: Collection[int], row: Sequence[Any]) -> LockWait:
    """Return the wait that a row of the list of sessions shows."""
    number, time, state, statement = int(row[0]), float(row[1]), str(row[2]), str(row[3] or "")
    database, table = _table_in(statement)
    holders = lock_holders(session, WaitingSession(number, state, database, table), ours)
    return LockWait(number, time, state, f"{database}.{table}" if table else "", holders)


def _table_in(statement: str) -> tuple[str, str]:
    """Return database and name of the first table in one of our statements; empty if cut off."""
    found = _TABLE.search(statement)
    if found is None:
        return "", ""
    return found[1].replace("``", "`"), found[2].replace("``", "`")
