"""A copy whose every part is killed at random moments ends equal to its source.

Faults come while the source is written to: the Spark job alone, the command alone (its job goes
on and is fenced by the next), both, the source, the sink. Each kind comes at least once, in an
order and at moments that the printed seed decides, as it decides how changes are applied. Between
them only the same command is run again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.compare import differences
from tests.end_to_end.crashes import Writing, fill
from tests.servers.accounts import sink_account, source_account
from tests.servers.throwaway import MySqlServer, ThrowawayServer

PIPELINE = """
pipeline: crashes
source: {dsn_env: CRASH_SOURCE, tables: ["crash.*"], server_id: 5600-5619}
sink: {type: mysql, dsn_env: CRASH_SINK}
state: {dsn_env: CRASH_STATE}
snapshot: {split_rows: 300, max_connections: 4}
stream: {mode: bounded, apply: %s}
spark: {always: true, conf: {spark.master: "local[2]"}}
"""
TABLES = {f"crash.{name}": f"crash.{name}" for name in ("items", "codes", "pairs")}
FAULTS_S = 80.0
"""No fault begins later than this."""


class Command:
    """The command that is run again and again, and the job it starts."""

    def __init__(
        self, folder: Path, source: ThrowawayServer, sink: ThrowawayServer, *, apply: str
    ) -> None:
        self._file = folder / "crashes.yaml"
        self._file.write_text(PIPELINE % apply, encoding="utf-8")
        self._told = folder / "told.txt"
        self._environment = {
            **os.environ,
            "CRASH_SOURCE": source_account(source, "crash").dsn,
            "CRASH_SINK": sink_account(sink, "crash").dsn,
            "CRASH_STATE": f"sqlite:///{folder}/state.db",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs: set[psutil.Process] = set()
        self.started = 0

    def start(self) -> None:
        """Start it if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        self.started += 1
        words = [sys.executable, "-m", "airflow_cdc_provider", "run", "--until", "caught-up"]
        with self._told.open("ab") as told:
            self._process = subprocess.Popen(
                [*words, str(self._file)], env=self._environment, stdout=told, stderr=told
            )

    def wait(self, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kill the command alone."""
        if self._process is not None:
            self._see_jobs()
            self._process.kill()
            self._process.wait()

    def kill_jobs(self) -> None:
        """Kill the jobs with all they have started: Spark's JVM and its Python workers."""
        self._see_jobs()
        for job in self._jobs:
            with suppress(psutil.Error):
                for process in [job, *job.children(recursive=True)]:
                    with suppress(psutil.Error):
                        process.kill()

    def kill_all(self) -> None:
        """Kill the command and its jobs."""
        self.kill()
        self.kill_jobs()

    @property
    def told(self) -> str:
        return self._told.read_text(errors="replace")[-6000:]

    def _see_jobs(self) -> None:
        with suppress(psutil.Error):
            if self._process is not None:
                self._jobs.update(psutil.Process(self._process.pid).children())


def bounce(server: ThrowawayServer, rng: random.Random) -> None:
    """Kill a server, and start it again a moment later."""
    server.kill()
    time.sleep(rng.uniform(0, 2))
    server.start()


@contextmanager
def ending(command: Command) -> Iterator[Command]:
    try:
        yield command
    finally:
        command.kill_all()


@pytest.mark.timeout(600)
@pytest.mark.spark
@pytest.mark.mysql
@pytest.mark.sample(1, of="whole copies")
def test_a_copy_whose_every_part_is_killed_ends_equal(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    rng = random.Random(seed)
    apply = rng.choice(["transactions", "merged"])
    print(f"crashes: seed {seed}, apply {apply}")
    with MySqlServer() as source, MySqlServer() as sink:
        fill(source)
        with ending(Command(tmp_path, source, sink, apply=apply)) as command:
            faults: dict[str, Callable[[], None]] = {
                "job": command.kill_jobs,
                "command": command.kill,
                "both": command.kill_all,
                "source": lambda: bounce(source, rng),
                "sink": lambda: bounce(sink, rng),
            }
            came: Counter[str] = Counter()
            with Writing(source, seed) as writer:
                began = time.monotonic()
                order = [*rng.sample(sorted(faults), 5), *rng.sample(sorted(faults), 5)]
                for kind in order:
                    command.start()
                    time.sleep(rng.uniform(2, 14))
                    if time.monotonic() - began > FAULTS_S and len(came) == len(faults):
                        break
                    print(f"{time.monotonic() - began:.1f} s: {kind}")
                    faults[kind]()
                    came[kind] += 1
            command.start()
            command.wait(180)
            command.start()  # what was running may have begun before the last change
            code = command.wait(180)
            print(f"{dict(came)}, {command.started} starts, {writer.transactions} transactions")
            assert code == 0, f"seed {seed}: {command.told}"
            assert differences(source, sink, TABLES) == [], f"seed {seed}"
