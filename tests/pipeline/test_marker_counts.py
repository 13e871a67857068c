"""What edges write into the marker where nodes insert one row a transaction, in batches of 100."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.pipeline.pairs import Edge, Node, edge_between
from tests.servers.given import SqlServer

ROWS, BATCHES = 250, 3
"""Each node's rows, and in how many batches of 100 changes they come."""


def insert(node: Node, first: int) -> None:
    """Insert rows, a transaction each."""
    connection = node.server.connect(node.database)
    with connection, connection.cursor() as cursor:
        for number in range(first, first + ROWS):
            cursor.execute(f"INSERT INTO items VALUES ({number}, '{node.name}')")


def marks(node: Node, topology: str) -> dict[tuple[object, ...], object]:
    """Return how often a node's marker was written: by origin, source and sink."""
    found = node.server.execute(
        f"SELECT data_origin_node, src_node, dst_node, n FROM airflow_cdc.{topology}"
    )
    return {tuple(row[:3]): row[3] for row in found}


def in_batches(edge: Edge) -> Edge:
    text = edge.path.read_text()
    edge.path.write_text(text + "stream: {max_batch: {changes: 100, seconds: 60}}\n")
    return edge


def test_each_batch_of_a_star_is_marked_once_on_each_way_and_never_comes_back(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    mariadb_server: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> None:
    servers = {"hub": mysql_server, "two": mysql_sink, "three": mariadb_server}
    hub, two, three = (Node(name, each, fresh_database(each)) for name, each in servers.items())
    topology = f"t_{hub.database}"
    hub.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(20))")
    edges = []
    for leaf in (two, three):
        there, back = (
            in_batches(edge_between(*ends, tmp_path, topology))
            for ends in ((hub, leaf), (leaf, hub))
        )
        there.catch_up()
        back.seed_from(there)
        edges += [back, there]
    before = {node.name: marks(node, topology) for node in (hub, two, three)}
    for number, node in enumerate((hub, two, three)):
        insert(node, number * 1000)
        for _ in range(3):  # from the leaves to the hub first, then on
            for edge in edges:
                edge.catch_up()
    assert len(hub.execute("SELECT id FROM items")) == 3 * ROWS
    assert hub.dump() == two.dump() == three.dump()
    expected = {
        "hub": {("two", "two", "hub"): BATCHES, ("three", "three", "hub"): BATCHES},
        "two": {("hub", "hub", "two"): BATCHES, ("three", "hub", "two"): BATCHES},
        "three": {("hub", "hub", "three"): BATCHES, ("two", "hub", "three"): BATCHES},
    }
    for node in (hub, two, three):
        grown = {
            way: int(str(count)) - int(str(before[node.name].get(way, 0)))
            for way, count in marks(node, topology).items()
        }
        assert {way: count for way, count in grown.items() if count} == expected[node.name]
