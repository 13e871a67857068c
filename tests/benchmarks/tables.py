"""What one table's trouble costs the others: 200 tables, one broken, and one that is read again.

`make bench ONLY=tables`: a continuous stream as a user starts it, while one connection changes rows
of all the tables and another commits a row now and then, of which it is watched when it is seen at
the sink. Then one table's target begins to refuse rows; then, beside that, the largest table is
read again. The delays of the others are told for each.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.benchmarks.resync import FILE, Cli, Found, Ticks, found, lines
from tests.servers.throwaway import MySqlServer

__all__ = ["lines", "measured"]

TABLES = 200
ROWS, LARGE = 200, 200_000
_PER_S = 200
_SECONDS = 10.0
_REFUSED_FROM = 1_000_000
_BROKEN, _LARGE = "t000", "t001"


def measured() -> Iterator[Found]:
    """Stream, break a table, and read another again."""
    with MySqlServer() as source, MySqlServer() as sink, tempfile.TemporaryDirectory() as folder:
        _fill(source)
        sink.execute("CREATE DATABASE copy")
        cli = Cli(source, sink, Path(folder), FILE.replace("resync", "tables", 1))
        cli.call("run", "--until", "caught-up")
        with cli.streaming(), _Writer(source) as writer:
            ticks = Ticks(source, sink)
            ticks.watch(until=lambda: len(ticks.delays) > 3)
            yield _told(f"{TABLES} tables", writer, ticks, _after(_SECONDS))
            _break(source, sink, cli, ticks)
            yield _told("one is broken", writer, ticks, _after(_SECONDS))
            words = cli.command("resync", "--table", f"shop.{_LARGE}", "--yes", "--wait")
            began = time.monotonic()
            with subprocess.Popen(words, env=cli.environment, stdout=subprocess.PIPE) as asked:
                told = _told(
                    "and one is read again", writer, ticks, lambda: asked.poll() is not None
                )
                if asked.wait():
                    raise RuntimeError("the resync failed")
            yield Found(
                told.what,
                LARGE / (time.monotonic() - began),
                told.changes_per_s,
                told.p50_ms,
                told.p99_ms,
                told.load,
            )


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _told(what: str, writer: _Writer, ticks: Ticks, until: Callable[[], bool]) -> Found:
    before, changed, began = len(ticks.delays), writer.changes, time.monotonic()
    load = os.getloadavg()[0]
    ticks.watch(until=until)
    changes = (writer.changes - changed) / (time.monotonic() - began)
    return found(what, 0, changes, ticks, before, load)


def _break(source: MySqlServer, sink: MySqlServer, cli: Cli, ticks: Ticks) -> None:
    """Have a target refuse a row, and wait until the table is said to have failed."""
    sink.execute(f"ALTER TABLE copy.{_BROKEN} ADD CONSTRAINT no CHECK (id < {_REFUSED_FROM})")
    source.execute(f"INSERT INTO shop.{_BROKEN} VALUES ({_REFUSED_FROM}, 0, 'refused')")
    looked: list[float] = []

    def is_broken() -> bool:
        if looked and time.monotonic() < looked[-1] + 1:
            return False
        looked.append(time.monotonic())
        tables: list[Any] = cli.call("status")["tables"]
        return any(each["source"] == f"shop.{_BROKEN}" and each["error"] for each in tables)

    ticks.watch(until=is_broken)


def _fill(source: MySqlServer) -> None:
    source.execute("CREATE DATABASE shop")
    source.execute("CREATE DATABASE numbers")
    source.execute("CREATE TABLE numbers.n (i INT PRIMARY KEY)")
    values = ", ".join(f"({number})" for number in range(1, LARGE + 1))
    source.execute(f"INSERT INTO numbers.n VALUES {values}")
    source.execute("CREATE TABLE shop.ticks (id INT PRIMARY KEY)")
    for number in range(TABLES):
        name = f"shop.t{number:03}"
        rows = LARGE if name.endswith(_LARGE) else ROWS
        source.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, note VARCHAR(60))")
        source.execute(f"INSERT INTO {name} SELECT i, 0, 'a note' FROM numbers.n WHERE i <= {rows}")


class _Writer:
    """Changes rows of all tables at an even rate; a context manager."""

    def __init__(self, source: MySqlServer) -> None:
        self._source = source
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rng = random.Random(1)
        with closing(self._source.connect(autocommit=True)) as connection:
            cursor, began = connection.cursor(), time.monotonic()
            while not self._stop.is_set():
                table, key = rng.randrange(TABLES), rng.randrange(1, ROWS)
                cursor.execute(f"UPDATE shop.t{table:03} SET n = n + 1 WHERE id = {key}")
                self.changes += 1
                time.sleep(max(0.0, began + self.changes / _PER_S - time.monotonic()))
