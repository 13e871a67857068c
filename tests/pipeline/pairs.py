"""Two databases that follow each other: two pipelines, each the other's way back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, give_back, open_run
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.seeding import seed
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer

FILE = """\
pipeline: {name}
source:
  dsn_env: {src}_DSN
  tables: ["{source}.*"]
sink:
  dsn_env: {dst}_DSN
  route: {{"{source}.*": "{sink}.*"}}
topology: {{name: {topology}, src_node: {src}, dst_node: {dst}{conflicts}}}
"""


STOP = "stop"
"""In the place of a winner: a conflict stops the table."""


@dataclass(frozen=True)
class Node:
    """A database on a server, by the name that a topology gives it."""

    name: str
    server: SqlServer
    database: str

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        return self.server.execute(sql, database=self.database)

    def dump(self) -> dict[str, object]:
        """Return all rows of all tables."""
        tables = [str(row[0]) for row in self.execute("SHOW TABLES")]
        return {name: self.execute(f"SELECT * FROM {name} ORDER BY 1") for name in sorted(tables)}


@dataclass(frozen=True)
class Edge:
    """The pipeline from one node to another."""

    src: Node
    dst: Node
    path: Path
    environment: dict[str, str]

    @contextmanager
    def opened(self) -> Iterator[Run]:
        dsns = EnvironmentDsns(self.environment)
        with open_run(load_pipeline(self.path), dsns, owner="test") as run:
            try:
                yield run
            finally:
                give_back(run)

    def seed_from(self, there: Edge) -> str:
        with self.opened() as run, there.opened() as other:
            return seed(run, other)

    def catch_up(self, master: str = NO_SPARK) -> None:
        with self.opened() as run:
            run_until_caught_up(run, SparkOptions(master, log_folder=self.path.parent / "logs"))


def edge_between(
    src: Node, dst: Node, folder: Path, topology: str, *, winner: str = "", column: str = ""
) -> Edge:
    """Write the file of an edge; conflicts are settled if it names a winner, or the word stop."""
    policy = f"column, column: {column}" if column else "priority"
    rule = "policy: stop" if winner == STOP else f"policy: {policy}, winner: {winner}"
    path = folder / f"{src.name}_to_{dst.name}.yaml"
    name = f"{topology}_{src.name}_{dst.name}"
    text = FILE.format(
        name=name,
        src=src.name,
        dst=dst.name,
        source=src.database,
        sink=dst.database,
        topology=topology,
        conflicts=f", conflicts: {{{rule}}}" if winner else "",
    )
    path.write_text(text)
    environment = {f"{node.name}_DSN": node.server.dsn() for node in (src, dst)}
    return Edge(src, dst, path, environment)


@dataclass(frozen=True)
class Pair:
    """Two nodes, and the edge each way."""

    one: Node
    two: Node
    there: Edge
    back: Edge

    def begin(self) -> None:
        """Copy all of the first node's tables, and begin the way back."""
        self.there.catch_up()
        self.back.seed_from(self.there)

    def catch_up(self) -> None:
        """Catch up both ways, until what one brings has come back as nothing."""
        for edge in (self.there, self.back, self.there, self.back):
            edge.catch_up()

    @property
    def is_equal(self) -> bool:
        return self.one.dump() == self.two.dump()


MakePair = Callable[..., Pair]
"""`pair_of` in a test's own databases and folder: the fixture `make_pair`."""


def pair_of(
    one: SqlServer,
    two: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    folder: Path,
    *,
    winner: str = "",
    column: str = "",
) -> Pair:
    """Make two empty databases and the files of the two edges."""
    first = Node("one", one, fresh_database(one))
    second = Node("two", two, fresh_database(two))
    topology = f"t_{first.database}"
    there = edge_between(first, second, folder, topology, winner=winner, column=column)
    back = edge_between(second, first, folder, topology, winner=winner, column=column)
    return Pair(first, second, there, back)


def with_winner(pair: Pair, winner: str) -> None:
    """Write a rule with a winner in the files of both edges."""
    for edge in (pair.there, pair.back):
        text = edge.path.read_text()
        assert "policy: stop" in text
        edge.path.write_text(text.replace("policy: stop", f"policy: priority, winner: {winner}"))


def conflicts_of(edge: Edge) -> list[tuple[object, ...]]:
    """Return the rows that an edge has stored of its conflicts."""
    with edge.opened() as run:
        name = str(run.name)
    return edge.dst.server.execute(
        "SELECT row_key, kept, source_change, sink_change FROM airflow_cdc.conflict "
        f"WHERE pipeline = '{name}' ORDER BY number"
    )


def change_in_any_order(
    pair: Pair, change: Callable[[Callable[[str], object], random.Random, str], None]
) -> None:
    """Change rows at both nodes, and have the edges catch up now and then, and at the end."""
    seed_of_test = random.randrange(1 << 30)
    print(f"seed {seed_of_test}")
    choose = random.Random(seed_of_test)
    for _ in range(25):
        for node in choose.sample([pair.one, pair.two], 2):
            for _ in range(choose.randrange(4)):
                change(node.execute, choose, node.name)
        for edge in choose.sample([pair.there, pair.back], choose.randrange(3)):
            edge.catch_up()
    pair.catch_up()
