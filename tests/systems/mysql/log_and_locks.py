"""Sessions that wait for a row's lock and then ask for the log's end, as a guarded writer does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from tests.servers.given import SqlServer
from tests.systems.mysql.counters import COUNTERS, LogTruth, unless_deadlocked

ROUNDS = 150
_MOST_S = 60.0


@dataclass(frozen=True)
class Locked:
    """A counter as a locking read found it, with the log's end before and behind that read."""

    key: int
    value: int | None
    end_before: BinlogPosition
    end: BinlogPosition


class Guard:
    """A session under REPEATABLE READ and another one that asks for the log's end."""

    def __init__(self, session: Any, log_end: MySqlLogEnd, table: TableId) -> None:
        self._session = session
        self._log_end = log_end
        self._table = f"{table.database}.{table.table}"

    def now(self) -> BinlogPosition:
        place = self._log_end.now().binlog
        assert place is not None
        return place

    def lock(self, key: int) -> Locked:
        """Lock a counter, or the gap where it would be, and ask for the log's end; then let go."""
        before = self.now()
        with self._session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT n FROM {self._table} WHERE id = {key} FOR UPDATE")
            found = cursor.fetchone()
            end = self.now()
            cursor.execute("ROLLBACK")
        return Locked(key, None if found is None else found[0], before, end)


@contextmanager
def guard_of(server: SqlServer, table: TableId) -> Iterator[Guard]:
    log_end = MySqlLogEnd(Endpoint.parse(server.dsn()), purpose="test")
    with closing(server.connect()) as session, closing(log_end):
        with session.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield Guard(session, log_end, table)


def lock_many(guard: Guard, *, seed: int, before_each: Callable[[], None]) -> list[Locked]:
    """Lock counters at random, `ROUNDS` times; what a deadlock undid does not count."""
    chosen = random.Random(seed)
    deadline = time.monotonic() + _MOST_S
    locked: list[Locked] = []
    while len(locked) < ROUNDS:
        assert time.monotonic() < deadline, "the locks were not had in time"
        before_each()
        with unless_deadlocked():
            locked.append(guard.lock(chosen.randrange(COUNTERS)))
    return locked


def require_in_log(locked: list[Locked], truth: LogTruth) -> list[Locked]:
    """Require that the log had what each lock showed; return those that came during the wait.

    Each of them was changed after the log's end had been asked for once, and before the lock was
    had. That there are such is what makes the rest a test.
    """
    late = [each for each in locked if truth.at(each.key, each.end) != each.value]
    assert not late, f"the lock showed what the log had not up to its end: {late[:5]}"
    return [each for each in locked if truth.at(each.key, each.end_before) != each.value]
