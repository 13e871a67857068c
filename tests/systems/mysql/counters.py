"""Writers that count up while splits are read, and the log as the truth about it.

Every update of a counter is in the log with its value, so for each place of the log the value that
a row must have is known. A watermark that is wrong by one transaction shows up as a wrong number.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pyarrow.compute as pc
import pymysql

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer

COUNTERS = 16
_DEADLOCK = 1213
Change = Callable[[random.Random, TableId], str]
"""Returns the next statement of a writer."""
XA_A_TURN = 20
"""XA transactions that are written while a split is read.

Each costs its reader about as much time as its writers. Without a bound, a read that took long
would find more to decode the next time, and take longer: minutes for what is done in seconds.
"""


class Pace:
    """Lets writers do so much in each turn, and then wait for the next; no bound if None."""

    def __init__(self, each_turn: int | None) -> None:
        self._each_turn = each_turn
        self._left = 0
        self._changed = threading.Condition()

    def turn(self) -> None:
        """Begin a turn."""
        with self._changed:
            self._left = self._each_turn or 0
            self._changed.notify_all()

    def take(self, stop: threading.Event) -> bool:
        """Wait until one more may be done; False if it is over."""
        with self._changed:
            while self._each_turn is not None and self._left <= 0 and not stop.is_set():
                self._changed.wait(0.05)
            self._left -= 1
        return not stop.is_set()


class Counting:
    """What the test may know of the writers, and tell them."""

    def __init__(self, writers: int, pace: Pace) -> None:
        self.committed = [0] * writers
        self.turn = pace.turn

    def __call__(self) -> int:
        """Return how many transactions are committed by now."""
        return sum(self.committed)


@contextmanager
def unless_deadlocked() -> Iterator[None]:
    """Go on where the server has undone a statement for a deadlock."""
    try:
        yield
    except pymysql.err.OperationalError as error:
        if error.args[0] != _DEADLOCK:
            raise


def make_counters(server: SqlServer, database: str) -> TableId:
    server.execute(f"CREATE TABLE {database}.counter (id INT PRIMARY KEY, n INT NOT NULL)")
    rows = ", ".join(f"({key}, 0)" for key in range(COUNTERS))
    server.execute(f"INSERT INTO {database}.counter VALUES {rows}")
    return TableId(database, "counter")


def increment(chosen: random.Random, table: TableId) -> str:
    """Count one counter up."""
    key = chosen.randrange(COUNTERS)
    return f"UPDATE {table.database}.{table.table} SET n = n + 1 WHERE id = {key}"


def come_or_go(chosen: random.Random, table: TableId) -> str:
    """Insert a counter with a value that no other insert has, or delete it; it may be there."""
    key, name = chosen.randrange(COUNTERS), f"{table.database}.{table.table}"
    if chosen.random() < 0.5:
        return f"DELETE FROM {name} WHERE id = {key}"
    return f"INSERT IGNORE INTO {name} VALUES ({key}, {chosen.randrange(2**31)})"


@contextmanager
def counting(
    server: SqlServer,
    table: TableId,
    *,
    writers: int,
    seed: int,
    distributed: bool = False,
    change: Change = increment,
) -> Iterator[Counting]:
    """Run writers, each of which changes counters in transactions of its own, maybe of XA.

    Those of XA wait for the test to begin a turn.
    """
    stop = threading.Event()
    pace = Pace(XA_A_TURN if distributed else None)
    told = Counting(writers, pace)
    committed = told.committed
    failures: list[Exception] = []

    def write(number: int) -> None:
        chosen = random.Random(seed * 100 + number)
        try:
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                while pace.take(stop):
                    name = f"'{number}-{committed[number]}'"
                    around = ("START", "END", "PREPARE", "COMMIT") if distributed else ()
                    statements = [f"XA {verb} {name}" for verb in around]
                    for statement in (*statements[:1], change(chosen, table), *statements[1:]):
                        with unless_deadlocked():
                            cursor.execute(statement)
                    committed[number] += 1
        except Exception as error:  # noqa: BLE001 - shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    if failures:
        raise failures[0]


class LogTruth:
    """Which value each counter has at each place of the log; None for one that is not there."""

    def __init__(self, batches: list[ChangeBatch], *, first: int | None = 0) -> None:
        self._first = first
        self._places: dict[int, list[BinlogPosition]] = defaultdict(list)
        self._values: dict[int, list[int | None]] = defaultdict(list)
        for batch in batches:
            for changes in batch.tables:
                before, after = changes.before.column("id"), changes.after.column("id")
                keys = pc.coalesce(after, before).to_pylist()
                values = changes.after.column("n").to_pylist()
                for number, key, value in zip(
                    changes.transaction.to_pylist(), keys, values, strict=True
                ):
                    self._places[key].append(batch.transactions[number].end)
                    self._values[key].append(value)

    def at(self, key: int, place: BinlogPosition) -> int | None:
        """Return the counter's value when everything up to `place` had happened, and no more."""
        count = bisect_right(self._places[key], place)
        return self._values[key][count - 1] if count else self._first

    @property
    def changes(self) -> int:
        return sum(len(values) for values in self._values.values())


def truth_of(
    server: SqlServer,
    table: TableId,
    start: MySqlPosition,
    end: BinlogPosition,
    *,
    server_id: int,
    first: int | None = 0,
) -> LogTruth:
    """Read the log from `start`, where each counter had the value `first`, to `end`."""
    reader = LogReader(
        Endpoint.parse(server.dsn()), server_id=server_id, start=start, captured={table}
    )
    with closing(reader):
        return LogTruth(list(reader.read_to(end)), first=first)
