"""Nodes that follow each other, each edge a process of its own that may be killed, under load."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pymysql

from tests.servers.given import SqlServer

DATABASE = "shared"
TABLES = ("items", "moves")
_FILE = """\
pipeline: {topology}_{src}_{dst}
source: {{dsn_env: AT_{src}, tables: ["{database}.*"]}}
sink: {{type: mysql, dsn_env: AT_{dst}}}
state: {{dsn_env: STATE_{src}_{dst}}}
snapshot: {{split_rows: 300, max_connections: 4}}
topology: {{name: {topology}, src_node: {src}, dst_node: {dst}{conflicts}}}
"""
_BY_COLUMN = "column, column: at, tables: {{{database}.items: {{policy: column, column: n}}}}"
_KEYS = 1000
"""Each node's writers change their own keys only: first its number times this, then so many."""
_LEAVES_ALONE = 0.5
"""How often between two kills a table is left alone, or taken back."""
_SHARED_KEYS = 60
"""Where conflicts are settled, all writers change the same keys."""


@dataclass
class Edge:
    """The pipeline from one node to another, as a process."""

    src: str
    dst: str
    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.folder / f"{self.src}_{self.dst}.yaml"

    @property
    def told(self) -> Path:
        return self.folder / f"{self.src}_{self.dst}.txt"

    def begin(self, *options: str) -> None:
        words = [sys.executable, "-m", "airflow_cdc_provider", "run", str(self.file), *options]
        words += ["--master", "local[1]"]
        with self.told.open("ab") as told:
            self.process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told
            )

    def keep(self) -> None:
        """Begin again if it has ended: it was killed, or its server was."""
        if self.process is None or self.process.poll() is not None:
            self.begin()

    def kill(self) -> None:
        """Kill it with all it has started."""
        process, self.process = self.process, None
        if process is None:
            return
        with suppress(psutil.Error):
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    each.kill()
        process.kill()
        process.wait()

    def say(self, *words: str) -> str:
        """Run a command about it to its end; returns what it has written."""
        command, *options = words
        said = subprocess.run(
            [sys.executable, "-m", "airflow_cdc_provider", command, str(self.file), *options],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout

    def read_again(self) -> None:
        """Ask for all rows again; whoever is at work, now or later, reads them."""
        assert "asked" in self.say("resync", "--yes")

    def leave_alone(self, table: str) -> None:
        """Ask that the stream leave a table alone, or take it back if it does."""
        name = f"{DATABASE}.{table}"
        if "asked" not in self.say("pause", "--table", name):
            self.take_back(table)

    def take_back(self, table: str) -> None:
        """Ask that the stream take a table back, if it leaves it alone."""
        self.say("resume", "--table", f"{DATABASE}.{table}")

    @property
    def has_requests(self) -> bool:
        """Tell whether it has requests that are not done."""
        requests = json.loads(self.say("requests", "--json"))["requests"]
        assert not [each for each in requests if each["status"] == "failed"]
        return any(each["status"] in {"asked", "reading"} for each in requests)

    @property
    def last_words(self) -> str:
        return self.told.read_text(errors="replace")[-3000:] if self.told.exists() else ""


@dataclass
class Nodes:
    """Servers by the names that a topology gives them, and the edges between them."""

    servers: dict[str, SqlServer]
    edges: list[Edge]
    seed: int
    has_conflicts: bool = False
    """All writers change the same rows."""
    writers: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    written: int = 0

    @property
    def last_edges(self) -> list[Edge]:
        """Return the edges to nodes that no other edge writes: these read rows again."""
        targets = [edge.dst for edge in self.edges]
        return [edge for edge in self.edges if targets.count(edge.dst) == 1]

    def begin(self) -> None:
        """Copy from the first node to the next, and on, and begin each way back with its rows."""
        for there, back in zip(self.edges[::2], self.edges[1::2], strict=True):
            there.begin()
            back.begin("--seeded-from", str(there.file))
            self.wait_until(lambda back=back: is_streaming(back), f"{back.file.name} streams")

    def wait_until(self, condition, what: str, timeout_s: float = 120.0) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + timeout_s
        while not condition():
            words = "\n".join(f"{edge.file.name}: {edge.last_words}" for edge in self.edges)
            assert time.monotonic() < deadline, f"{what}, seed {self.seed}\n{words}"
            time.sleep(0.2)

    def dumps(self) -> list[dict[str, object]]:
        """Return all rows of each node."""
        return [
            {
                name: server.execute(f"SELECT * FROM {name} ORDER BY id", database=DATABASE)
                for name in TABLES
            }
            for server in self.servers.values()
        ]

    def are_equal(self) -> bool:
        first, *others = self.dumps()
        return all(other == first for other in others)

    def conflicts(self) -> list[int]:
        """Return how many conflicts are stored at each node."""
        count = "SELECT COUNT(*) FROM airflow_cdc.conflict"
        return [int(str(server.execute(count)[0][0])) for server in self.servers.values()]

    def log_ends(self) -> list[tuple[object, ...]]:
        return [log_end(server) for server in self.servers.values()]

    @contextmanager
    def load(self, writers: int) -> Iterator[None]:
        """Have so many threads write at each node within the block, all to rows of their own."""
        self.over.clear()
        self.writers = [
            threading.Thread(target=self._write, args=(place, number), daemon=True)
            for place in range(len(self.servers))
            for number in range(writers)
        ]
        for writer in self.writers:
            writer.start()
        try:
            yield
        finally:
            self.over.set()
            for writer in self.writers:
                writer.join(30)
            assert not any(writer.is_alive() for writer in self.writers)

    def _write(self, place: int, number: int) -> None:
        rng = random.Random(f"{self.seed} {place} {number}")
        server, first = [*self.servers.values()][place], (place + 1) * _KEYS + number * 100

        def key() -> int:
            return rng.randrange(_SHARED_KEYS) if self.has_conflicts else first + rng.randrange(100)

        while not self.over.is_set():
            with (
                suppress(pymysql.err.Error),
                server.connect(DATABASE, autocommit=False) as connection,
            ):
                while not self.over.wait(rng.random() * 0.05):
                    with connection.cursor() as cursor:
                        for _ in range(rng.randrange(1, 5)):
                            cursor.execute(_statement(rng, key, place))
                    connection.commit()
                    self.written += 1
            self.over.wait(0.2)

    def kill(self) -> None:
        for edge in self.edges:
            edge.kill()


def _statement(rng: random.Random, key, place: int) -> str:  # type: ignore[no-untyped-def]
    """Return a statement that changes rows of one writer's keys."""
    return rng.choice(
        (
            f"REPLACE INTO items VALUES ({key()}, 'at {place}', {rng.randrange(10**6)}.25)",
            f"UPDATE items SET n = n + 1, v = 'by {place}' WHERE id = {key()}",
            f"DELETE FROM items WHERE id = {key()}",
            f"UPDATE IGNORE items SET id = {key()} WHERE id = {key()}",
            f"INSERT IGNORE INTO moves VALUES ({key()}, NOW(6), {place})",
            f"UPDATE moves SET at = NOW(6) WHERE id BETWEEN {key()} AND {key()} + 2 "
            f"AND by_node = {place}",
            f"DELETE FROM moves WHERE id = {key()}",
        )
    )


def log_end(server: SqlServer) -> tuple[object, ...]:
    """Return file and offset at the end of a server's log."""
    for query in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        with suppress(pymysql.err.Error):
            return tuple(server.execute(query)[0][:2])
    raise AssertionError("neither statement shows the log's end")


def is_streaming(edge: Edge) -> bool:
    """Tell whether an edge's last words are that it streams."""
    return '"streaming"' in edge.say("show", "--json")


@contextmanager
def nodes_of(
    servers: Sequence[SqlServer],
    pairs: Sequence[tuple[int, int]],
    folder: Path,
    seed: int,
    *,
    winners: Sequence[int] = (),
    by_column: bool = False,
) -> Iterator[Nodes]:
    """Make the shared tables at the first node, rows of every node in them, and each pair's edges.

    The first of a pair is copied to the second. Of each pair one of the `winners` wins conflicts,
    or only those where a column that grows, falls and is NULL is the same.
    """
    named = {f"node{number}": server for number, server in enumerate(servers)}
    names, topology = [*named], f"soak{seed}"
    for server in servers:
        server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    first = servers[0]
    first.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    first.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(20), n DECIMAL(20,2))", database=DATABASE
    )
    first.execute(
        "CREATE TABLE moves (id INT PRIMARY KEY, at DATETIME(6), by_node INT)", database=DATABASE
    )
    rows = ", ".join(f"({number}, 'first', {number}.5)" for number in range(4 * _KEYS))
    first.execute(f"INSERT INTO items VALUES {rows}", database=DATABASE)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    for name, server in named.items():
        environment[f"AT_{name}"] = server.dsn()
    edges = []
    for number, (one, two) in enumerate(pairs):
        conflicts = ""
        if winners:
            policy = _BY_COLUMN.format(database=DATABASE) if by_column else "priority"
            conflicts = f", conflicts: {{policy: {policy}, winner: {names[winners[number]]}}}"
        for src, dst in ((names[one], names[two]), (names[two], names[one])):
            edge = Edge(src, dst, folder, environment)
            environment[f"STATE_{src}_{dst}"] = f"sqlite:///{folder / f'{src}_{dst}.db'}"
            edge.file.write_text(
                _FILE.format(
                    topology=topology, src=src, dst=dst, database=DATABASE, conflicts=conflicts
                )
            )
            edges.append(edge)
    made = Nodes(named, edges, seed, has_conflicts=bool(winners))
    try:
        yield made
    finally:
        made.kill()


def wait_until_logs_stand(nodes: Nodes) -> None:
    """Wait until no log has grown for 15 seconds; edges that were killed begin meanwhile."""
    until_s = time.monotonic() + 60
    ends, since_s = nodes.log_ends(), time.monotonic()
    while time.monotonic() - since_s < 15:
        assert time.monotonic() < until_s, f"a log grows by itself, seed {nodes.seed}"
        time.sleep(0.5)
        if (now := nodes.log_ends()) != ends:
            ends, since_s = now, time.monotonic()


def under_load(nodes: Nodes, *, seconds: float, kill_every_s: float, writers: int) -> None:
    """Write at all nodes while edges are killed, then require equal nodes and logs that stand.

    Where conflicts are settled, edges are to read all rows again all the time, and streams to leave
    a table alone and to take it back.
    """
    rng = random.Random(nodes.seed)
    nodes.begin()
    ends_s = time.monotonic() + seconds
    with nodes.load(writers):
        while time.monotonic() < ends_s:
            time.sleep(min(kill_every_s, max(0.0, ends_s - time.monotonic())))
            edge = rng.choice(nodes.edges)
            if nodes.has_conflicts and not any(each.has_requests for each in nodes.edges):
                rng.choice(nodes.last_edges).read_again()
                time.sleep(rng.random())
            if nodes.has_conflicts and rng.random() < _LEAVES_ALONE:
                rng.choice(nodes.edges).leave_alone(TABLES[0])
            edge.kill()
            time.sleep(rng.random())
            for each in nodes.edges:
                each.keep()
    for each in nodes.edges:
        each.keep()
        each.take_back(TABLES[0])
    for each in nodes.edges:
        nodes.wait_until(lambda each=each: not each.has_requests, "all requests are done")
    nodes.wait_until(nodes.are_equal, "all nodes are equal")
    wait_until_logs_stand(nodes)
    assert nodes.are_equal(), f"seed {nodes.seed}"
    assert nodes.written > 0
    conflicts = nodes.conflicts()
    assert min(conflicts) > 0 or not nodes.has_conflicts, f"nothing clashed, seed {nodes.seed}"
    print(f"seed {nodes.seed}: {nodes.written} transactions, conflicts {conflicts}, nodes equal")
