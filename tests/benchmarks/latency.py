"""How soon a commit at the source is seen at the sink, beside the servers' own replication.

`make bench ONLY=latency`: a continuous stream as a user starts it, between two MySQL servers, and a
replica of the same source that the server keeps itself (`CHANGE REPLICATION SOURCE TO`, by GTIDs).
All three are durable: each commit is forced to the disk, in the log and in the table.

A process of its own commits a row at a time at an even rate and notes when the source had said so.
One connection to each of the two asks for the newest row, one after the other, again and again, so
both are seen with the same eyes: what an answer adds is printed as `probe`, half of it on average.
Nothing of the stream measures itself. The CPU and the memory are those of its whole process tree;
memory is PSS, so what processes share is counted once.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.servers.replication import follow
from tests.servers.throwaway import MySqlServer, Options

_FILE = """\
pipeline: latency
source: {dsn_env: LATENCY_SOURCE, tables: ["shop.*"]}
sink: {type: mysql, dsn_env: LATENCY_SINK, route: {"shop.*": "copy.*"}}
spark: {always: %s}
"""
_DURABLE: Options = {"innodb-flush-log-at-trx-commit": 1, "sync-binlog": 1}
RATES = (2, 50, 500)
_LEAST_S, _LEAST_ROWS = 10.0, 100
_IDLE_S = 60.0
_POLL_S = 0.0005
_SEEN_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from commit to sight, at one rate; and the stream's cost meanwhile."""

    who: str
    rows_per_s: float
    ours_ms: tuple[float, float] | None
    """Half of the rows were seen as soon as this, and 99 of 100."""
    replica_ms: tuple[float, float] | None
    probe_ms: float
    cores: float
    memory_mb: float
    load: float


@dataclass(slots=True)
class _Sight:
    """When the rows of one table were seen."""

    cursor: object
    question: str
    newest: int
    at: list[float] = field(default_factory=list)

    def look(self) -> None:
        """Note the rows that have come since the last look."""
        cursor = self.cursor
        cursor.execute(self.question)  # type: ignore[attr-defined]
        now, newest = time.perf_counter(), cursor.fetchall()[0][0]  # type: ignore[attr-defined]
        self.at += [now] * (newest - self.newest)
        self.newest = newest


class _Streams:
    """A continuous stream between two servers, and a replica of the first."""

    def __init__(
        self,
        source: MySqlServer,
        sink: MySqlServer,
        replica: MySqlServer,
        process: psutil.Process,
    ) -> None:
        self._source = source
        self._tables = ((sink, "copy.orders"), (replica, "shop.orders"))
        self._process = process
        self._next = 1

    def delays(self, who: str, rate: float) -> Delays:
        """Commit rows at a rate, and see when they come; at rate 0 nothing is committed."""
        load, cpu_s, began = os.getloadavg()[0], self._cpu_s(), time.perf_counter()
        ours, theirs, probe_ms = self._rows(rate) if rate else self._idle()
        cores = (self._cpu_s() - cpu_s) / (time.perf_counter() - began)
        return Delays(who, rate, ours, theirs, probe_ms, cores, self._memory_mb(), load)

    def _idle(self) -> tuple[None, None, float]:
        time.sleep(_IDLE_S)
        return None, None, 0.0

    def wait_for(self, key: int) -> None:
        """Wait until a row is seen at both."""
        for server, table in self._tables:
            database, name = table.split(".")
            deadline = time.monotonic() + 300
            with closing(server.connect()) as connection:
                cursor = connection.cursor()
                while not _has(cursor, database, name, key):
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"nothing came to {table}")
                    time.sleep(0.1)

    def commit(self) -> int:
        """Commit a row; returns its key."""
        self._source.execute("INSERT INTO shop.orders VALUES (%s, 'x')", (self._next,))
        self._next += 1
        return self._next - 1

    def _rows(self, rate: float) -> tuple[tuple[float, float], tuple[float, float], float]:
        first, count = self._next, int(max(_LEAST_ROWS, rate * _LEAST_S))
        self._next += count
        given = {"source": self._source.dsn(), "first": first, "rate": rate, "count": count}
        command = [sys.executable, "-m", "tests.benchmarks.steady_writer", json.dumps(given)]
        connections = [server.connect(autocommit=True) for server, _ in self._tables]
        sights = [
            _Sight(connection.cursor(), f"SELECT MAX(id) FROM {table}", first - 1)
            for connection, (_, table) in zip(connections, self._tables, strict=True)
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            rounds = _looked(sights, first + count - 1, count / rate + _SEEN_WITHIN_S)
            committed = json.loads(writer.communicate()[0])
        for connection in connections:
            connection.close()
        ours, theirs = (_quantiles(committed, sight.at) for sight in sights)
        return ours, theirs, statistics.median(rounds) * 1e3

    def _members(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_s(self) -> float:
        times = [member.cpu_times() for member in self._members()]
        return sum(each.user + each.system for each in times)

    def _memory_mb(self) -> float:
        return sum(member.memory_full_info().pss for member in self._members()) / 1e6


def _has(cursor: object, database: str, table: str, key: int) -> bool:
    cursor.execute(f"SHOW TABLES IN {database} LIKE '{table}'")  # type: ignore[attr-defined]
    if not cursor.fetchall():  # type: ignore[attr-defined]
        return False
    cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {database}.{table}")  # type: ignore[attr-defined]
    return bool(cursor.fetchall()[0][0] >= key)  # type: ignore[attr-defined]


def _looked(sights: Sequence[_Sight], last: int, within_s: float) -> list[float]:
    """Look at all in turn until each has seen the last row; returns what the rounds took."""
    rounds: list[float] = []
    deadline = time.perf_counter() + within_s
    began = time.perf_counter()
    while any(sight.newest < last for sight in sights):
        if began > deadline:
            raise RuntimeError(f"of rows up to {last} came {[sight.newest for sight in sights]}")
        for sight in sights:
            sight.look()
        time.sleep(_POLL_S)
        ended = time.perf_counter()
        rounds.append(ended - began)
        began = ended
    return rounds


def _quantiles(committed: Sequence[float], seen: Sequence[float]) -> tuple[float, float]:
    took = [max(0.0, end - start) for start, end in zip(committed, seen, strict=True)]
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3


@contextmanager
def _streaming(
    source: MySqlServer, sink: MySqlServer, replica: MySqlServer, folder: Path, *, always: bool
) -> Iterator[_Streams]:
    follow(replica, source)
    source.execute("CREATE DATABASE shop")
    source.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    sink.execute("CREATE DATABASE copy")
    file = folder / "latency.yaml"
    file.write_text(_FILE % str(always).lower(), encoding="utf-8")
    environment = {
        **os.environ,
        "LATENCY_SOURCE": source.dsn(),
        "LATENCY_SINK": sink.dsn(),
        "XDG_STATE_HOME": str(folder),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_cdc_provider", "run", str(file)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            streams = _Streams(source, sink, replica, psutil.Process(process.pid))
            for _ in range(3):
                streams.wait_for(streams.commit())
            yield streams
        finally:
            process.terminate()


def measured() -> Iterator[Delays]:
    """Measure both ways to follow a stream, idle and at every rate."""
    for who, always in (("driver", False), ("Spark's micro-batches", True)):
        with (
            MySqlServer(_DURABLE) as source,
            MySqlServer(_DURABLE) as sink,
            MySqlServer(_DURABLE) as replica,
            tempfile.TemporaryDirectory() as folder,
            _streaming(source, sink, replica, Path(folder), always=always) as streams,
        ):
            for rate in (0, *RATES):
                yield streams.delays(who, rate)


def lines(found: Iterator[Delays]) -> Iterator[str]:
    """Write them as a table."""
    yield (
        "| followed by | rows/s | p50 ms | p99 ms | the replica's p50 | p99 | p50 / its "
        "| p99 / its | probe ms | cores | memory MB | load |"
    )
    yield "|---|" + "---:|" * 11
    for each in found:
        times = ["-"] * 6
        if each.ours_ms is not None and each.replica_ms is not None:
            both = (*each.ours_ms, *each.replica_ms)
            ratios = (each.ours_ms[0] / each.replica_ms[0], each.ours_ms[1] / each.replica_ms[1])
            times = [*(f"{time:.1f}" for time in both), *(f"{ratio:.1f}" for ratio in ratios)]
        yield (
            f"| {each.who} | {each.rows_per_s:.0f} | {' | '.join(times)} | {each.probe_ms:.1f} | "
            f"{each.cores:.3f} | {each.memory_mb:.0f} | {each.load:.1f} |"
        )
