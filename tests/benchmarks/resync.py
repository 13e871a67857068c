"""What it costs to read a table again while it flows.

`make bench ONLY=resync`: a table of a million rows is copied (that is the first snapshot, whose
rows/s are the measure), then streams while one connection changes 2,000 of its rows a second, and
another commits a row now and then, of which it is watched when it is seen at the sink. Then the
whole table is read again. The delays before and during that are told side by side.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.throwaway import MySqlServer

FILE = """\
pipeline: resync
source: {dsn_env: RESYNC_SOURCE, tables: ["shop.*"]}
sink: {type: mysql, dsn_env: RESYNC_SINK, route: {"shop.*": "copy.*"}}
"""
ROWS = 1_000_000
_CHANGES, _PER_S = 20, 100
"""Changes in a transaction, and transactions a second."""
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """Rows a second, and milliseconds from a commit to its sight."""

    what: str
    rows_per_s: float
    changes_per_s: float
    p50_ms: float
    p99_ms: float
    load: float


def measured(rows: int = ROWS) -> Iterator[Found]:
    """Copy, stream, and read again."""
    with (
        MySqlServer() as source,
        MySqlServer() as sink,
        tempfile.TemporaryDirectory() as folder,
    ):
        _fill(source, rows)
        sink.execute("CREATE DATABASE copy")
        cli = Cli(source, sink, Path(folder))
        load = os.getloadavg()[0]
        copied = cli.call("run", "--until", "caught-up")["snapshot"]
        yield Found("first snapshot", copied["rows"] / copied["seconds"], 0, 0, 0, load)
        with cli.streaming(), _Writer(source, rows) as writer:
            ticks = Ticks(source, sink)
            ticks.watch(until=lambda: len(ticks.delays) > 3)
            before = len(ticks.delays)
            load, changed, began = os.getloadavg()[0], writer.changes, time.monotonic()
            ticks.watch(until=lambda: time.monotonic() > began + _SECONDS)
            seconds = time.monotonic() - began
            yield found("stream", 0, (writer.changes - changed) / seconds, ticks, before, load)
            before, changed, began = len(ticks.delays), writer.changes, time.monotonic()
            asked = subprocess.Popen(
                cli.command("resync", "--table", "shop.orders", "--yes", "--wait"),
                env=cli.environment,
                stdout=subprocess.PIPE,
            )
            ticks.watch(until=lambda: asked.poll() is not None)
            if asked.wait():
                raise RuntimeError("the resync failed")
            seconds = time.monotonic() - began
            changes = (writer.changes - changed) / seconds
            yield found("resync beside it", rows / seconds, changes, ticks, before, load)


def found(
    what: str, rows_per_s: float, changes: float, ticks: Ticks, since: int, load: float
) -> Found:
    cuts = statistics.quantiles(ticks.delays[since:], n=100, method="inclusive")
    return Found(what, rows_per_s, changes, cuts[49] * 1e3, cuts[98] * 1e3, load)


def _fill(source: MySqlServer, rows: int) -> None:
    for statement in (
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(60), amount DECIMAL(12,2), "
        "changed DATETIME(6))",
        "CREATE TABLE shop.ticks (id INT PRIMARY KEY)",
        "INSERT INTO shop.orders WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM n WHERE i < 1000) SELECT "
        "(a.i - 1) * 1000 + b.i, CONCAT('a note about order ', a.i, ' ', b.i), a.i / b.i, NOW(6) "
        f"FROM n a JOIN n b WHERE a.i <= {rows // 1000}",
    ):
        source.execute(statement)


class Cli:
    """The commands as a user starts them."""

    def __init__(
        self, source: MySqlServer, sink: MySqlServer, folder: Path, text: str = FILE
    ) -> None:
        self._file = folder / "resync.yaml"
        self._file.write_text(text, encoding="utf-8")
        self.environment = {
            **os.environ,
            "RESYNC_SOURCE": source.dsn(),
            "RESYNC_SINK": sink.dsn(),
            "XDG_STATE_HOME": str(folder),
        }

    def command(self, name: str, *options: str) -> list[str]:
        python = [sys.executable, "-m", "airflow_cdc_provider"]
        return [*python, name, str(self._file), *options]

    def call(self, name: str, *options: str) -> Any:
        done = subprocess.run(
            self.command(name, *options, "--json"),
            env=self.environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(done.stdout)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        with subprocess.Popen(self.command("run"), env=self.environment) as process:
            try:
                yield
            finally:
                process.terminate()


class _Writer:
    """Changes rows at an even rate; a context manager."""

    def __init__(self, source: MySqlServer, rows: int) -> None:
        self._source, self._rows = source, rows
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
            cursor, began, done = connection.cursor(), time.monotonic(), 0
            while not self._stop.is_set():
                keys = ", ".join(str(rng.randrange(1, self._rows)) for _ in range(_CHANGES))
                cursor.execute(
                    "UPDATE shop.orders SET changed = NOW(6), amount = amount + 1 "
                    f"WHERE id IN ({keys})"
                )
                self.changes += _CHANGES
                done += 1
                time.sleep(max(0.0, began + done / _PER_S - time.monotonic()))


class Ticks:
    """Rows that are committed one by one, each when the one before was seen."""

    def __init__(self, source: MySqlServer, sink: MySqlServer) -> None:
        self._source, self._sink = source, sink
        self.delays: list[float] = []

    def watch(self, *, until: Callable[[], bool]) -> None:
        """Commit and watch until a condition holds."""
        with (
            closing(self._source.connect(autocommit=True)) as writing,
            closing(self._sink.connect(autocommit=True)) as watching,
        ):
            writer, watcher = writing.cursor(), watching.cursor()
            while not until():
                number = len(self.delays) + 1
                writer.execute("INSERT INTO shop.ticks VALUES (%s)", (number,))
                committed = time.monotonic()
                while not watcher.execute("SELECT 1 FROM copy.ticks WHERE id = %s", (number,)):
                    time.sleep(0.002)
                self.delays.append(time.monotonic() - committed)
                time.sleep(0.01)


def lines(every: Iterator[Found]) -> Iterator[str]:
    """Write them as a table."""
    yield "| | rows/s | changes/s | p50 ms | p99 ms | load |"
    yield "|---|---:|---:|---:|---:|---:|"
    for each in every:
        yield (
            f"| {each.what} | {each.rows_per_s:,.0f} | {each.changes_per_s:,.0f} | "
            f"{each.p50_ms:.0f} | {each.p99_ms:.0f} | {each.load:.1f} |"
        )
