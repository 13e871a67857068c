"""How long the small commands take, from outside: `make bench ONLY=start`.

Every command is a process as a user starts it. The wall clock and the CPU of its whole process tree
are taken, and the machine's load before it, because beside other work the wall clock says little.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.servers.throwaway import MySqlServer

_FILE = """\
pipeline: start
source: {dsn_env: START_SOURCE, tables: ["shop.*"]}
sink: {type: mysql, dsn_env: START_SINK, route: {"shop.*": "copy.*"}}
stream: {mode: bounded}
"""
_PARSE = """\
import sys, time
import airflow.sdk
before = time.perf_counter()
from airflow_cdc_provider.operators.dags import cdc_dags
made = cdc_dags(sys.argv[1], {"__file__": __file__})
print(len(made), time.perf_counter() - before)
"""
_DAGS = 100


@dataclass(frozen=True, slots=True)
class Timing:
    """One run of one command."""

    wall_s: float
    cpu_s: float
    load: float
    """Of the machine, before it."""

    def __str__(self) -> str:
        return f"{self.wall_s:6.2f} s, {self.cpu_s:6.2f} CPU s, load {self.load:.1f}"


def timed(command: Sequence[str], environment: dict[str, str]) -> Timing:
    """Run a command and measure it and all that it starts."""
    load, began = os.getloadavg()[0], time.perf_counter()
    with (
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
        _Cpu(process.pid) as cpu,
    ):
        out, _ = process.communicate()
        wall_s = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{out.decode()}")
    return Timing(wall_s, cpu.seconds, load)


class _Cpu:
    """Adds up the CPU of a process tree, whose members come and go; looks 20 times a second."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._used: dict[tuple[int, float], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Cpu:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return sum(self._used.values())

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            try:
                root = psutil.Process(self._root)
                members = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for member in members:
                try:
                    times = member.cpu_times()
                    self._used[member.pid, member.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    continue


class _Shop:
    """A small pipeline, and commands on it."""

    def __init__(self, source: MySqlServer, sink: MySqlServer, folder: Path) -> None:
        self._source, self._sink = source, sink
        self._folder = folder
        self._environment = {
            **os.environ,
            "START_SOURCE": source.dsn(),
            "START_SINK": sink.dsn(),
            "XDG_STATE_HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.always(spark=False)
        self._source.execute("CREATE DATABASE shop")
        self._source.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
        self._source.execute("INSERT INTO shop.orders VALUES (1, 'one'), (2, 'two')")

    def __call__(self, *words: str) -> Timing:
        file = [] if "--help" in words else [str(self._folder / "start.yaml")]
        command = [sys.executable, "-m", "airflow_cdc_provider", *words, *file]
        return timed(command, self._environment)

    def always(self, *, spark: bool) -> None:
        """Have Spark do little work too, or not."""
        text = _FILE + f"spark: {{always: {str(spark).lower()}}}\n"
        (self._folder / "start.yaml").write_text(text, encoding="utf-8")

    def change(self) -> None:
        """Commit a few changes."""
        self._source.execute("UPDATE shop.orders SET note = CONCAT(note, '.')")

    def forget(self) -> None:
        """Let the next run be the first one."""
        for database in ("copy", "airflow_cdc"):
            self._sink.execute(f"DROP DATABASE IF EXISTS {database}")
        self._sink.execute("CREATE DATABASE copy")
        (self._folder / "start.state.db").unlink(missing_ok=True)

    def parse(self) -> Timing:
        """Parse a folder of pipeline files as a DAG file does."""
        pipelines = self._folder / "pipelines"
        pipelines.mkdir(exist_ok=True)
        for number in range(_DAGS):
            text = _FILE.replace("start", f"start_{number}", 1).replace("shop", f"shop{number}")
            (pipelines / f"{number}.yaml").write_text(text, encoding="utf-8")
        script = self._folder / "parse.py"
        script.write_text(_PARSE, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script), str(pipelines)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        made, seconds = done.stdout.split()[-2:]
        if int(made) != _DAGS:
            raise RuntimeError(f"{made} DAGs of {_DAGS} files")
        return Timing(float(seconds), float(seconds), os.getloadavg()[0])


def timings(runs: int) -> dict[str, list[Timing]]:
    """Measure every command some times, in turn."""
    found: dict[str, list[Timing]] = {}

    def note(name: str, timing: Timing) -> None:
        found.setdefault(name, []).append(timing)
        print(
            f"{name:34} {timing.wall_s:6.2f} s, {timing.cpu_s:6.2f} CPU s, load {timing.load:.1f}"
        )

    with (
        MySqlServer() as source,
        MySqlServer() as sink,
        tempfile.TemporaryDirectory() as folder,
    ):
        shop = _Shop(source, sink, Path(folder))
        run = ("run", "--until", "caught-up")
        for _ in range(runs):
            shop.forget()
            note("first run, a table of two rows", shop(*run))
            shop.change()
            note("run, a few changes", shop(*run))
            note("run, nothing to do", shop(*run))
            shop.change()
            shop.always(spark=True)
            note("run, a few changes, by Spark", shop(*run))
            shop.always(spark=False)
            note("check", shop("check"))
            note("status", shop("status"))
            note("--help", shop("--help"))
            note(f"parse of {_DAGS} pipeline files", shop.parse())
    return found


def lines(found: dict[str, list[Timing]]) -> Iterator[str]:
    """Write the medians as a table."""
    yield "| command | wall s | CPU s | load | n |"
    yield "|---|---:|---:|---:|---:|"
    for name, samples in found.items():
        wall_s, cpu_s, load = (
            statistics.median(getattr(sample, what) for sample in samples)
            for what in ("wall_s", "cpu_s", "load")
        )
        yield f"| {name} | {wall_s:.2f} | {cpu_s:.2f} | {load:.1f} | {len(samples)} |"
