"""Two nodes that follow each other in a real Airflow, with accounts as the docs give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.operators.dags import cdc_dags, pair_group
from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.state.store import open_store
from tests.airflow.shop import known
from tests.airflow.sync_dag import MONDAY, TUESDAY, WEDNESDAY, Run
from tests.docs.pages import page
from tests.pipeline.pairs import Node
from tests.servers.accounts import Account, least_privileged, sink_account, source_account
from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    pytest.mark.filterwarnings("default"),  # tasks run in this process
    pytest.mark.timeout(600),
]
FILE = """\
pipeline: {topology}_{src}_{dst}
source: {{conn_id: {src}_reads, tables: ["{source}.*"]}}
sink: {{conn_id: {dst}_writes, route: {{"{source}.*": "{sink}.*"}}}}
state: {{conn_id: pair_state}}
stream: {{mode: bounded}}
topology:
  name: {topology}
  src_node: {src}
  dst_node: {dst}
  conflicts: {{policy: priority, winner: berlin}}
"""
FIRST, SECOND = Path("berlin_to_paris.yaml"), Path("paris_to_berlin.yaml")
ONCE = {"retries": 0}


class Pair:
    """Two nodes, the files of both edges, and the connections in Airflow's environment."""

    def __init__(self, berlin: Node, paris: Node, folder: Path) -> None:
        self.nodes = berlin, paris
        self.topology = f"t_{berlin.database}"
        self.folder = folder
        for src, dst, file in ((berlin, paris, FIRST), (paris, berlin, SECOND)):
            text = FILE.format(
                topology=self.topology,
                src=src.name,
                dst=dst.name,
                source=src.database,
                sink=dst.database,
            )
            (folder / file).write_text(text, encoding="utf-8")

    @property
    def files(self) -> tuple[Path, Path]:
        return self.folder / FIRST, self.folder / SECOND

    @property
    def state(self) -> str:
        return f"sqlite:///{self.folder}/state.db"

    def want(self, pipeline: str, wanted: Wanted) -> None:
        with closing(open_store(self.state)) as store:
            store.want(PipelineName(pipeline), wanted)

    @property
    def is_equal(self) -> bool:
        return self.nodes[0].dump() == self.nodes[1].dump()


def accounts_of(node: Node) -> tuple[Account, Account]:
    """Make the accounts of a node: one that reads, and one that writes and reads the log, too."""
    reads, writes = (
        source_account(node.server, node.database),
        sink_account(node.server, node.database),
    )
    for right in reads.rights:
        if right.level == "*.*":
            writes.grant(right)
    return reads, writes


@pytest.fixture
def pair(
    mysql_server: SqlServer,
    mariadb_server: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    berlin = Node("berlin", mysql_server, fresh_database(mysql_server))
    paris = Node("paris", mariadb_server, fresh_database(mariadb_server))
    accounts = {node.name: accounts_of(node) for node in (berlin, paris)}
    with least_privileged(*(each for both in accounts.values() for each in both)):
        for name, (reads, writes) in accounts.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}_READS", reads.dsn)
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}_WRITES", writes.dsn)
        monkeypatch.setenv("AIRFLOW_CONN_PAIR_STATE", f"sqlite:///{tmp_path}/state.db")
        berlin.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(9), code INT, UNIQUE KEY (code))"
        )
        rows = ", ".join(f"({n}, 'first', {n})" for n in range(1, 301))
        berlin.execute(f"INSERT INTO orders VALUES {rows}")
        yield Pair(berlin, paris, tmp_path)


def group_dag(pair: Pair, **options: Any) -> DAG:
    """Make a DAG of the pair's group, as a person would."""
    first, second = pair.files
    with new_dag(Parts.of(first), "pair", schedule=None, default_args=ONCE, tags=()) as dag:
        pair_group(first, second, verify="always", **options)
    return known(dag)


def test_one_run_lets_both_nodes_follow_each_other_and_later_ones_catch_up(pair: Pair) -> None:
    dag = group_dag(pair)
    berlin, paris = pair.nodes
    first = Run(dag, MONDAY)
    assert first.state == "success", first.states
    assert pair.is_equal
    berlin.execute("UPDATE orders SET note = 'by berlin' WHERE id <= 100")
    paris.execute("UPDATE orders SET note = 'by paris' WHERE id > 90")
    paris.execute("INSERT INTO orders VALUES (1001, 'new', 1001)")
    assert Run(dag, TUESDAY).state == "success"
    third = Run(dag, WEDNESDAY)
    assert third.state == "success", third.states
    assert pair.is_equal
    notes = set(berlin.execute("SELECT note, COUNT(*) FROM orders GROUP BY note"))
    assert notes == {("by berlin", 100), ("by paris", 200), ("new", 1)}
    back = f"{pair.topology}.{pair.topology}_paris_berlin"
    assert third.returned(f"{back}.verify")["equal"] is True
    assert "streams already" in third.returned(f"{back}.seed")["done"]


def test_the_way_back_is_begun_by_a_dag_of_its_own_that_finds_the_other_file(pair: Pair) -> None:
    made = cdc_dags(pair.folder, {}, default_args=ONCE)
    there, back = (f"{pair.topology}_{ends}" for ends in ("berlin_paris", "paris_berlin"))
    dags = {
        name: known(made[name]) for name in (f"{there}__sync", f"{back}__seed", f"{back}__sync")
    }
    refused = Run(dags[f"{back}__sync"], MONDAY)
    assert refused.states["preflight"] == "failed"
    assert Run(dags[f"{there}__sync"], MONDAY).state == "success"
    seeded = Run(dags[f"{back}__seed"], MONDAY)
    assert "1 table" in seeded.returned("seed")["done"]
    streams = Run(dags[f"{back}__sync"], TUESDAY)
    assert (streams.state, streams.returned("snapshot")["ran"]) == ("success", False)
    assert pair.is_equal


def test_an_edge_that_is_paused_or_fails_does_not_hold_up_the_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = group_dag(pair)
    berlin, paris = pair.nodes
    there, back = (f"{pair.topology}_{ends}" for ends in ("berlin_paris", "paris_berlin"))
    assert Run(dag, MONDAY).state == "success"
    pair.want(there, Wanted.STOP)
    paris.execute("UPDATE orders SET note = 'by paris' WHERE id = 1")
    paused = Run(dag, TUESDAY)
    group = f"{pair.topology}."
    assert paused.states[f"{group}{there}.finish"] == "skipped"
    assert paused.states[f"{group}{back}.stream"] == "success"
    assert berlin.execute("SELECT note FROM orders WHERE id = 1") == [("by paris",)]

    pair.want(there, Wanted.RUN)
    monkeypatch.setenv("AIRFLOW_CONN_BERLIN_READS", berlin.server.dsn(password="wrong"))
    paris.execute("UPDATE orders SET note = 'by paris' WHERE id = 2")
    failed = Run(dag, WEDNESDAY)
    assert failed.states[f"{group}{there}.preflight"] == "failed"
    assert failed.states[f"{group}{back}.stream"] == "success"
    assert berlin.execute("SELECT note FROM orders WHERE id = 2") == [("by paris",)]


def test_a_way_back_waits_for_no_copy_that_has_failed_or_is_paused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = group_dag(pair)
    berlin, _ = pair.nodes
    there, back = (f"{pair.topology}_{ends}" for ends in ("berlin_paris", "paris_berlin"))
    pair.want(there, Wanted.STOP)
    paused = Run(dag, MONDAY)
    assert set(paused.states.values()) == {"skipped"}
    pair.want(there, Wanted.RUN)
    right = berlin.server.dsn()
    monkeypatch.setenv("AIRFLOW_CONN_BERLIN_READS", berlin.server.dsn(password="wrong"))
    failed = Run(dag, TUESDAY)
    assert failed.states[f"{pair.topology}.{back}.seed"] == "failed"
    monkeypatch.setenv("AIRFLOW_CONN_BERLIN_READS", right)
    assert Run(dag, WEDNESDAY).state == "success"
    assert pair.is_equal


def test_the_dag_file_of_the_page_makes_a_dag_with_both_edges(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dags = tmp_path_factory.mktemp("dags")
    (dags / "pair").mkdir()
    for file in pair.files:
        (dags / "pair" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page("two_nodes.md"), re.DOTALL)
    (dags / "shops.py").write_text(source, encoding="utf-8")
    bag = DagBag(str(dags))
    assert bag.import_errors == {}
    order = {task.task_id: task.upstream_task_ids for task in bag.dags["shops"].tasks}
    there, back = (
        f"{pair.topology}.{pair.topology}_{ends}" for ends in ("berlin_paris", "paris_berlin")
    )
    assert order[f"{back}.seed"] == {f"{there}.finish"}
    assert order[f"{back}.preflight"] == {f"{back}.seed"}
    assert [task for task in order if task.endswith(".verify")] == [f"{back}.verify"]


def test_a_pair_of_files_that_are_no_pair_is_an_import_error(pair: Pair) -> None:
    first, _ = pair.files
    with (
        pytest.raises(PipelineFileError, match="not the two edges of a pair"),
        DAG("pair", schedule=None),
    ):
        pair_group(first, first)
