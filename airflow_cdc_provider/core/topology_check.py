"""Whether the pipelines of a folder make right topologies: all that their files say together.

Of each topology: its files agree on marker and shape, its edges are a tree or a full mesh
(`topology_shape`), each node is one server, and two edges between the same nodes copy the same
tables (`topology_tables`). And no other pipeline brings these tables from node to node: what it
writes has no marker, so it would go round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import Route, sink_table
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.core.topology_edges import (
    EdgeFile,
    EdgeProblem,
    Key,
    PipelineEnds,
    ServerName,
)
from airflow_cdc_provider.core.topology_shape import wrong_shape
from airflow_cdc_provider.core.topology_tables import brought_past, no_way_back

_NAME: Key = ("topology", "name")
Placed = tuple[EdgeFile, str, str, ServerName]
"""An edge, `source` or `sink`, the node that it is, and its server."""


def check_topologies(
    edges: Sequence[EdgeFile], others: Sequence[PipelineEnds] = ()
) -> tuple[EdgeProblem, ...]:
    """Return what is wrong with the topologies of a folder; `others` are in none."""
    topologies = by_topology(edges)
    names = {each.file: each.edge.name for each in edges}
    found = [
        replace(problem, topology=names[problem.file])
        for problem in (*_spellings(edges), *_shared_markers(topologies))
    ]
    for name, own in topologies.items():
        outside = [*others, *(each.ends for each in edges if each.edge.name != name)]
        found += [replace(problem, topology=name) for problem in _of_topology(own, outside)]
    return tuple(found)


def _of_topology(own: Sequence[EdgeFile], outside: Sequence[PipelineEnds]) -> Iterator[EdgeProblem]:
    """Yield what is wrong with one topology."""
    disagree = (*_disagreeing(own), *_respelled_nodes(own), *_disagreeing_rules(own))
    yield from disagree or wrong_shape(own)
    yield from _disagreeing_definitions(own)
    yield from _no_mesh_yet(own)
    yield from _servers(own)
    yield from _unlike_tables(own)
    yield from _brought_past(own, outside)


def by_topology(edges: Sequence[EdgeFile]) -> Mapping[str, list[EdgeFile]]:
    """Return the edges of each topology, by its name."""
    topologies: dict[str, list[EdgeFile]] = defaultdict(list)
    for each in edges:
        topologies[each.edge.name].append(each)
    return topologies


def _spellings(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield names of topologies that differ by case alone."""
    first: dict[str, EdgeFile] = {}
    for each in edges:
        other = first.setdefault(each.edge.name.casefold(), each)
        if other.edge.name != each.edge.name:
            yield EdgeProblem(
                each.file,
                _NAME,
                f"{other.file} writes {other.edge.name}: names that differ by case alone",
                f"write {other.edge.name} if that one is meant, or another name",
            )


def _respelled_nodes(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield a problem for each node whose name differs by case alone from one in another file."""
    first: dict[str, tuple[str, str]] = {}
    for each in edges:
        for key in ("src_node", "dst_node"):
            node = getattr(each.edge, key)
            spelled, file = first.setdefault(node.casefold(), (node, each.file))
            if spelled != node:
                yield EdgeProblem(
                    each.file,
                    ("topology", key),
                    f"{file} writes {spelled}: a marker may not tell names apart that differ by "
                    "case alone",
                    f"write {spelled} if that node is meant, or another name",
                )


def _disagreeing(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges whose marker or shape is not that of the first edge of their topology."""
    first = edges[0]
    for each in edges[1:]:
        if each.edge.marker != first.edge.marker:
            yield EdgeProblem(
                each.file,
                ("topology", "marker"),
                f"its marker is {each.edge.marker}, and that of {first.file} is "
                f"{first.edge.marker}: neither edge would see what the other one marked",
                f"write marker: {first.edge.marker} in all files of the topology",
            )
        if each.edge.is_mesh != first.edge.is_mesh:
            yield EdgeProblem(
                each.file,
                ("topology", "shape"),
                f"its shape is {_shape(each)}, and that of {first.file} is {_shape(first)}",
                "write the same shape in all files of the topology",
            )


def _disagreeing_rules(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges back that settle conflicts in another way than the edge there."""
    by_pair = {each.pair: each for each in edges}
    for (src, dst), there in by_pair.items():
        back = by_pair.get((dst, src))
        if back is None or src > dst:
            continue
        says = [each.edge.settles or "no conflict is settled" for each in (there, back)]
        if _default(there.edge) != _default(back.edge):
            yield EdgeProblem(
                back.file,
                ("topology", "conflicts"),
                f"here {says[1]}, and in {there.file} {says[0]}: the nodes would keep different "
                "rows",
                "write the same conflicts in the files of both edges",
            )
        elif _rules(there, there.ends.tables.routes) != _rules(back, ()):
            yield EdgeProblem(
                back.file,
                ("topology", "conflicts", "tables"),
                f"they are not those of {there.file}, by the names that tables have there: the "
                "nodes would keep different rows",
                "write the same tables with the same rules in the files of both edges",
            )


def _disagreeing_definitions(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges back that expect changes of definitions from another node than the edge there."""
    by_pair = {each.pair: each for each in edges}
    for (src, dst), there in by_pair.items():
        back = by_pair.get((dst, src))
        if back is None or src > dst or back.definitions_from == there.definitions_from:
            continue
        says = [each.definitions_from or "both nodes" for each in (there, back)]
        yield EdgeProblem(
            back.file,
            ("schema_changes", "from_node"),
            f"here definitions are changed at {says[1]}, and in {there.file} at {says[0]}",
            "write the same from_node in the files of both edges, or in none",
        )


def _default(edge: Topology) -> tuple[bool, ConflictRule]:
    """Return whether an edge looks for conflicts, and its rule for tables without their own."""
    return edge.is_guarded, ConflictRule(edge.winner, edge.column)


def _rules(each: EdgeFile, routes: Sequence[Route]) -> list[tuple[str, ConflictRule]]:
    """Return an edge's rules for tables, by the names that routes give these: single ones first."""
    single: list[tuple[str, ConflictRule]] = []
    patterns: list[tuple[str, ConflictRule]] = []
    for own in each.edge.rules:
        named = sink_table(TableId(own.tables.database.text, own.tables.table.text), routes)
        (single if own.tables.is_exact else patterns).append((str(named), own.rule))
    return [*sorted(single, key=str), *patterns]


def _shape(each: EdgeFile) -> str:
    """Return an edge's shape as its file writes it."""
    return "mesh" if each.edge.is_mesh else "tree"


def _shared_markers(topologies: Mapping[str, Sequence[EdgeFile]]) -> Iterator[EdgeProblem]:
    """Yield topologies that have the marker of another one."""
    first: dict[str, EdgeFile] = {}
    for own in topologies.values():
        other = first.setdefault(str(own[0].edge.marker).casefold(), own[0])
        if other.edge.name != own[0].edge.name:
            yield EdgeProblem(
                own[0].file,
                ("topology", "marker"),
                f"{own[0].edge.marker} is the marker of the topology {other.edge.name} "
                f"({other.file}), too",
                "give each topology a marker of its own; without the key it is airflow_cdc.<name>",
            )


def _no_mesh_yet(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Refuse meshes, whose conflicts nothing settles yet."""
    for each in edges:
        if each.edge.is_mesh:
            yield EdgeProblem(
                each.file,
                ("topology", "shape"),
                "a mesh is not in this release: its nodes get changes of one row in different "
                "orders, and conflicts are settled between two nodes only",
                "write shape: tree, with one way between any two nodes, as a star",
            )


def _servers(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield nodes that are two servers, servers that are two nodes, and servers not known here."""
    nodes: dict[str, tuple[str, str]] = {}
    servers: dict[str, tuple[str, str]] = {}
    for each, key, node, server in _placed(edges):
        at = server.address or server.reference
        if server.address:
            known, file = servers.setdefault(node, (at, each.file))
            if known != at:
                yield EdgeProblem(
                    each.file,
                    (key,),
                    f"node {node} is {at} here, and {known} in {file}: a node is one server",
                    "correct the connection or the node's name; of a server with several names or "
                    "addresses, write the same one everywhere",
                )
        other, file = nodes.setdefault(at, (node, each.file))
        if at and other != node:
            yield EdgeProblem(
                each.file,
                (key,),
                f"{at} is node {node} here, and node {other} in {file}: a server is one node, also "
                "with several databases, because it has one log and one marker",
                "correct the connection or the node's name",
            )
    yield from _not_known(edges)


def _placed(edges: Sequence[EdgeFile]) -> Iterator[Placed]:
    """Yield both ends of each edge that have a name."""
    for each in edges:
        yield each, "source", each.edge.src_node, each.ends.source
        yield each, "sink", each.edge.dst_node, each.ends.sink


def _not_known(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield a warning for each reference whose server is not known here."""
    told: set[str] = set()
    for each, key, node, server in _placed(edges):
        if server.reference and not server.address and server.reference not in told:
            told.add(server.reference)
            yield EdgeProblem(
                each.file,
                (key,),
                f"{server.reference} is not known here, so whether node {node} is one server was "
                "not looked at",
                "run this where the connections of all files are known",
                is_warning=True,
            )


def _unlike_tables(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield pairs of edges, there and back, that do not copy the same tables."""
    by_pair = {each.pair: each for each in edges}
    for (src, dst), there in by_pair.items():
        back = by_pair.get((dst, src))
        if back is None or src > dst:
            continue
        for one, other in permutations((there, back)):
            lost = no_way_back(one.ends.tables, other.ends.tables)
            if lost is not None:
                table, target = lost
                yield EdgeProblem(
                    one.file,
                    ("source", "tables"),
                    f"a table such as {table} goes to {target}, and {other.file} does not bring "
                    f"{target} back as {table}",
                    "give both files the same tables and exclude, and routes that undo each other",
                )
                break


def _brought_past(
    edges: Sequence[EdgeFile], outside: Sequence[PipelineEnds]
) -> Iterator[EdgeProblem]:
    """Yield pipelines outside a topology that copy its tables between its nodes."""
    name = edges[0].edge.name
    at: dict[ServerName, str] = {}
    for _, _, node, server in _placed(edges):
        at.setdefault(_only_where(server), node)
    read, written = defaultdict(list), defaultdict(list)
    for own in edges:
        read[own.edge.src_node].append(own.ends.tables)
        written[own.edge.dst_node].append(own.ends.tables)
    for each in outside:
        src, dst = (at.get(_only_where(server), "") for server in (each.source, each.sink))
        if not src or not dst or src == dst:
            continue
        table = brought_past(
            each.tables,
            read_there=read[src],
            written_there=written[src],
            read_here=read[dst],
        )
        if table is not None:
            yield EdgeProblem(
                each.file,
                ("source", "tables"),
                f"it copies tables of the topology {name}, such as {table}, from node {src} to "
                f"node {dst}, and is no edge of it: what it writes has no marker, and would go "
                "round for ever",
                f"make it an edge of {name}, leave these tables out, or remove it",
            )


def _only_where(server: ServerName) -> ServerName:
    """Return a server by what it is compared by: its address, or else its reference."""
    return ServerName("", server.address) if server.address else server
