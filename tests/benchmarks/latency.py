"""How soon a commit at the source is seen at the sink, and what a stream costs meanwhile.

`make bench ONLY=latency`: a continuous stream as a user starts it, between two MySQL servers. One
connection commits a row at a time at an even rate, another asks the sink again and again for the
newest row. Nothing of the stream measures itself. The CPU and the memory are those of its whole
process tree; memory is PSS, so what processes share is counted once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.servers.throwaway import MySqlServer

_FILE = """\
pipeline: latency
source: {dsn_env: LATENCY_SOURCE, tables: ["shop.*"]}
sink: {type: mysql, dsn_env: LATENCY_SINK, route: {"shop.*": "copy.*"}}
spark: {always: %s}
"""
RATES = (2, 20, 100, 500)
_SECONDS = 10.0
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from commit to sight, at one rate; and the stream's cost meanwhile."""

    who: str
    rows_per_s: float
    p50_ms: float
    p99_ms: float
    cores: float
    memory_mb: float
    load: float


class _Stream:
    """A continuous stream between two servers."""

    def __init__(self, source: MySqlServer, sink: MySqlServer, process: psutil.Process) -> None:
        self._source, self._sink = source, sink
        self._process = process
        self._next = 1

    def delays(self, who: str, rate: float) -> Delays:
        """Commit rows at a rate, and see when they come; at rate 0 nothing is committed."""
        load, cpu_s, began = os.getloadavg()[0], self._cpu_s(), time.perf_counter()
        took = self._rows(rate) if rate else self._idle()
        cores = (self._cpu_s() - cpu_s) / (time.perf_counter() - began)
        cuts = statistics.quantiles(took, n=100, method="inclusive")
        committed = len(took) / _SECONDS if rate else 0.0
        return Delays(
            who, committed, cuts[49] * 1e3, cuts[98] * 1e3, cores, self._memory_mb(), load
        )

    def _idle(self) -> list[float]:
        time.sleep(_SECONDS)
        return [0.0, 0.0]

    def wait_for(self, key: int) -> None:
        """Wait until a row is seen."""
        with closing(self._sink.connect(autocommit=True)) as connection:
            cursor = connection.cursor()
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:
                cursor.execute("SHOW TABLES IN copy")
                if cursor.fetchall():
                    cursor.execute("SELECT COALESCE(MAX(id), 0) FROM copy.orders")
                    if cursor.fetchall()[0][0] >= key:
                        return
                time.sleep(0.1)
        raise RuntimeError("the stream brought nothing")

    def commit(self) -> int:
        """Commit a row; returns its key."""
        self._source.execute("INSERT INTO shop.orders VALUES (%s, 'x')", (self._next,))
        self._next += 1
        return self._next - 1

    def _rows(self, rate: float) -> list[float]:
        first, committed, seen = self._next, list[float](), list[float]()
        writing = threading.Thread(target=self._write, args=(rate, committed))
        writing.start()
        with closing(self._sink.connect(autocommit=True)) as connection:
            cursor = connection.cursor()
            while writing.is_alive() or len(seen) < len(committed):
                cursor.execute("SELECT COALESCE(MAX(id), 0) FROM copy.orders")
                now, newest = time.perf_counter(), cursor.fetchall()[0][0]
                seen += [now] * (newest - first + 1 - len(seen))
                time.sleep(_POLL_S)
        return [max(0.0, end - start) for start, end in zip(committed, seen, strict=True)]

    def _write(self, rate: float, committed: list[float]) -> None:
        with closing(self._source.connect(autocommit=True)) as connection:
            cursor = connection.cursor()
            began = time.perf_counter()
            while (now := time.perf_counter()) < began + _SECONDS:
                due = began + len(committed) / rate
                if now < due:
                    time.sleep(due - now)
                cursor.execute("INSERT INTO shop.orders VALUES (%s, 'x')", (self._next,))
                committed.append(time.perf_counter())
                self._next += 1

    def _members(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_s(self) -> float:
        times = [member.cpu_times() for member in self._members()]
        return sum(each.user + each.system for each in times)

    def _memory_mb(self) -> float:
        return sum(member.memory_full_info().pss for member in self._members()) / 1e6


@contextmanager
def _streaming(
    source: MySqlServer, sink: MySqlServer, folder: Path, *, always: bool
) -> Iterator[_Stream]:
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
            stream = _Stream(source, sink, psutil.Process(process.pid))
            for _ in range(3):
                stream.wait_for(stream.commit())
            yield stream
        finally:
            process.terminate()


def measured() -> Iterator[Delays]:
    """Measure both ways to follow a stream, idle and at every rate."""
    for who, always in (("driver", False), ("Spark's micro-batches", True)):
        with (
            MySqlServer() as source,
            MySqlServer() as sink,
            tempfile.TemporaryDirectory() as folder,
            _streaming(source, sink, Path(folder), always=always) as stream,
        ):
            for rate in (0, *RATES):
                yield stream.delays(who, rate)


def lines(found: Iterator[Delays]) -> Iterator[str]:
    """Write them as a table."""
    yield "| followed by | rows/s | p50 ms | p99 ms | cores | memory MB | load |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for each in found:
        yield (
            f"| {each.who} | {each.rows_per_s:.0f} | {each.p50_ms:.0f} | {each.p99_ms:.0f} | "
            f"{each.cores:.3f} | {each.memory_mb:.0f} | {each.load:.1f} |"
        )
