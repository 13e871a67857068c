"""What a guarded writer of two-way sync costs those who insert at the table's end.

`make bench ONLY=gaps`: eight connections insert rows at a table's end. Beside them one session
writes transactions of a hundred changes, as an edge does: ten a second, or as fast as it can. It
writes as today (READ COMMITTED, nothing locked before), or guarded: under REPEATABLE READ it locks
its keys, asks for the log's end, has a reader of the log read up to there, and then writes. Keys
that are absent are locked by their gap: within the table or at its end, one in a hundred changes or
all of them. What is told are the rows that the eight inserted, beside those of the same seconds
with the writer of today, and what the server counted of waits and deadlocks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.benchmarks.end_writers import WRITER
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

TABLE = TableId("shop", "orders")
EDGE = 2
ROWS = 20_000
CHANGES = 100
SECONDS = 5.0
PACES = (10.0, None)
"""Transactions a second; None is as fast as it can."""
_HOLE = ROWS // 2
_BEYOND = 1_000_000_000
_READER_ID = 7301


class Way(StrEnum):
    """How the edge writes its hundred changes."""

    TODAY = "as today"
    PRESENT = "guarded, all keys there"
    WITHIN = "guarded, 1 key absent within"
    AT_END = "guarded, 1 key absent at the end"
    INSERTS = "guarded, 100 inserts at the end"


@dataclass(frozen=True, slots=True)
class Found:
    """What came in the same time, and what it cost."""

    server: str
    way: Way
    pace: float | None
    inserts_per_s: float
    ratio: float
    """Of the inserts to those beside the edge of today, at this pace."""
    p99_ms: float
    longest_ms: float
    edge_per_s: float
    """Transactions of the edge."""
    edge_retries: int
    undone: int
    """Inserts that were tried again."""
    waits: int
    deadlocks: int
    load: float


class Edge:
    """One session that writes transactions of a hundred changes, guarded or not."""

    def __init__(self, server: SqlServer, way: Way) -> None:
        endpoint = Endpoint.parse(server.dsn())
        self._way = way
        self._stack = ExitStack()
        opened = self._stack.enter_context
        self._session = opened(closing(SinkSession.open(endpoint, purpose="test")))
        self._log_end = opened(closing(MySqlLogEnd(endpoint, purpose="test")))
        reader = LogReader(endpoint, server_id=_READER_ID, start=self._now(), captured={TABLE})
        self._reader = opened(closing(reader))
        if way is not Way.TODAY:
            self._session.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._next = int(server.execute("SELECT MAX(id) FROM shop.orders")[0][0]) // 2 * 2
        self.transactions = 0
        self.tries = 0
        self.inserted = 0

    def write(self) -> None:
        """Write one transaction; it is tried again as a whole where a deadlock has undone it."""
        self._session.transaction(self._work)
        self.transactions += 1
        self.inserted += CHANGES if self._way is Way.INSERTS else 0

    def close(self) -> None:
        self._stack.close()

    def _work(self) -> None:
        self.tries += 1
        if self._way is Way.INSERTS:
            # even keys behind the last one of either node, as auto_increment_increment = 2 has it
            last = int(self._session.rows("SELECT MAX(id) FROM shop.orders")[0][0])
            self._next = max(self._next, last // 2 * 2)
        keys = self._keys()
        if self._way is not Way.TODAY:
            named = ", ".join(map(str, keys))
            self._session.rows(f"SELECT id FROM shop.orders WHERE id IN ({named}) FOR UPDATE")
            self._read_up_to_now()
        absent = [key for key in keys if key in {_HOLE, _BEYOND}]
        rows = ", ".join(f"({key}, {EDGE}, 'written there')" for key in keys if key not in absent)
        self._session.execute(
            "INSERT INTO shop.orders (id, origin, v) VALUES "
            f"{rows} ON DUPLICATE KEY UPDATE v = VALUES(v)"
        )
        for key in absent:
            self._session.execute(f"DELETE FROM shop.orders WHERE id = {key}")

    def _keys(self) -> Sequence[int]:
        first = 2 + 2 * CHANGES * (self.transactions % 20)  # before the hole
        present = [first + 2 * number for number in range(CHANGES)]
        match self._way:
            case Way.WITHIN:
                return [*present[:-1], _HOLE]
            case Way.AT_END:
                return [*present[:-1], _BEYOND]
            case Way.INSERTS:
                return [self._next + 2 + 2 * number for number in range(CHANGES)]
            case _:
                return present

    def _read_up_to_now(self) -> None:
        end = self._now().binlog
        if end is not None:
            for _ in self._reader.read_to(end):
                pass

    def _now(self) -> MySqlPosition:
        return self._log_end.now()


def make_table(server: SqlServer) -> None:
    """Make a table of `ROWS` rows with every second key, and a hole in the middle."""
    server.execute("DROP DATABASE IF EXISTS shop")
    server.execute("CREATE DATABASE shop")
    server.execute(
        "CREATE TABLE shop.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, origin INT NOT NULL, "
        "v VARCHAR(60) NOT NULL)"
    )
    keys = [2 + 2 * number for number in range(ROWS) if 2 + 2 * number != _HOLE]
    rows = ", ".join(f"({key}, 0, 'there before')" for key in keys)
    server.execute(f"INSERT INTO shop.orders VALUES {rows}")


def beside(
    server: SqlServer, way: Way, *, pace: float | None, seconds: float = SECONDS
) -> tuple[Edge, dict[str, float]]:
    """Have an edge write beside eight writers; returns what both did. No row may be lost."""
    make_table(server)
    given = {"dsn": server.dsn(), "seconds": seconds}
    command = [sys.executable, "-m", "tests.benchmarks.end_writers", json.dumps(given)]
    with closing(Edge(server, way)) as edge:
        waits, deadlocks = lock_counts(server)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writers:
            began = time.monotonic()
            while writers.poll() is None:
                edge.write()
                if pace is not None:
                    time.sleep(max(0.0, began + edge.transactions / pace - time.monotonic()))
            found = dict(json.loads(writers.communicate()[0]))
    waited, deadlocked = lock_counts(server)
    found |= {"waits": waited - waits, "deadlocks": deadlocked - deadlocks}
    kept = dict(server.execute("SELECT origin, COUNT(*) FROM shop.orders GROUP BY origin"))
    found["lost"] = found["rows"] + edge.inserted - kept.get(WRITER, 0) - kept.get(EDGE, 0)
    return edge, found


def lock_counts(server: SqlServer) -> tuple[int, int]:
    """Return how often the server has had a session wait for a row, and undone a deadlock."""
    ((_, waits),) = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
    ((deadlocks,),) = server.execute(
        "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'"
    )
    return int(waits), int(deadlocks)


def measured() -> Iterator[Found]:
    """Measure every way on both families, at each pace."""
    kinds: tuple[type[ThrowawayServer], ...] = (MySqlServer, MariaDbServer)
    for kind in kinds:
        with kind() as server:
            name = "MariaDB" if kind is MariaDbServer else "MySQL"
            for pace in PACES:
                today = 0.0
                for way in Way:
                    edge, found = beside(server, way, pace=pace)
                    each = _summed(name, way, pace, edge, found, today)
                    today = today or each.inserts_per_s
                    yield each


def _summed(
    server: str,
    way: Way,
    pace: float | None,
    edge: Edge,
    found: dict[str, float],
    today: float,
) -> Found:
    rate = found["rows"] / SECONDS
    if found["lost"]:
        raise SystemExit(f"{found['lost']:.0f} rows were lost: {server}, {way}")
    return Found(
        server=server,
        way=way,
        pace=pace,
        inserts_per_s=rate,
        ratio=rate / today if today else 1.0,
        p99_ms=found["p99_ms"],
        longest_ms=found["longest_ms"],
        edge_per_s=edge.transactions / SECONDS,
        edge_retries=edge.tries - edge.transactions,
        undone=int(found["undone"]),
        waits=int(found["waits"]),
        deadlocks=int(found["deadlocks"]),
        load=os.getloadavg()[0],
    )


def lines(found: Iterator[Found]) -> Iterator[str]:
    """Write them as a table."""
    yield (
        "| server | the edge writes | transactions/s wanted | had | inserts/s | / today's | p99 ms "
        "| longest ms | waits | deadlocks | edge's retries | inserts undone | load |"
    )
    yield "|---|---|" + "---:|" * 11
    for each in found:
        wanted = "all it can" if each.pace is None else f"{each.pace:.0f}"
        yield (
            f"| {each.server} | {each.way} | {wanted} | {each.edge_per_s:.1f} "
            f"| {each.inserts_per_s:.0f} | {each.ratio:.2f} | {each.p99_ms:.1f} "
            f"| {each.longest_ms:.0f} | {each.waits} | {each.deadlocks} | {each.edge_retries} "
            f"| {each.undone} | {each.load:.1f} |"
        )
