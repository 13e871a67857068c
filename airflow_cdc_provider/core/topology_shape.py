"""Whether the edges of one topology are a tree, or a full mesh, and what each of them brings.

A tree has one way between any two nodes, whichever way its edges go. So what comes to a node over
an edge comes over no other one, and nothing comes back: an edge to X leaves out what came from X.
An edge without one back is a tree's, too: what its sink writes stays there.

`do_nodes` and `ignore_nodes` narrow what an edge brings. Changes of several origins that came over
one edge may be one transaction, so the next edge brings all of these origins, or none.

In a full mesh each node has an edge to each other one, and nothing goes over two of them.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.core.topology_edges import EdgeFile, EdgeProblem, Key, listed, nodes_of

Pair = tuple[str, str]
_DST: Key = ("topology", "dst_node")


def wrong_shape(edges: Sequence[EdgeFile]) -> tuple[EdgeProblem, ...]:
    """Return what keeps edges of one topology from being a tree or a full mesh."""
    if not edges:
        return ()
    found = [*_unknown_nodes(edges), *_twice(edges)]
    if edges[0].edge.is_mesh:
        return (*found, *_missing(edges))
    found += [*_loops(edges), *_apart(edges)]
    if not found:
        found += [*_narrowed(edges), *_one_way(edges)]
    return tuple(found)


def brought(edges: Sequence[EdgeFile]) -> Mapping[Pair, frozenset[str]]:
    """Return the nodes whose changes each edge brings; only for edges of a right shape."""
    by_pair = {each.pair: each.edge for each in edges}
    done: dict[Pair, frozenset[str]] = {}

    def of(pair: Pair) -> frozenset[str]:
        if pair not in done:
            edge = by_pair[pair]
            came = [{edge.src_node}]
            if not edge.is_mesh:
                came += [{*of(before)} for before in _before(edge, by_pair)]
            done[pair] = frozenset(node for nodes in came for node in nodes if _wants(edge, node))
        return done[pair]

    return {pair: of(pair) for pair in by_pair}


def _before(edge: Topology, pairs: Mapping[Pair, Topology]) -> list[Pair]:
    """Return the edges of a tree whose changes go on over `edge`."""
    return [pair for pair in pairs if pair[1] == edge.src_node and pair[0] != edge.dst_node]


def _wants(edge: Topology, origin: str) -> bool:
    """Tell whether an edge's own lists let an origin through."""
    return (not edge.do_nodes or origin in edge.do_nodes) and origin not in edge.ignore_nodes


def _unknown_nodes(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield nodes in `do_nodes` and `ignore_nodes` that no edge joins."""
    known = nodes_of(edges)
    for each in edges:
        for key in ("do_nodes", "ignore_nodes"):
            for number, node in enumerate(getattr(each.edge, key)):
                if node not in known:
                    near = difflib.get_close_matches(node, known, n=1)
                    meant = f"did you mean {near[0]}?" if near else f"nodes are {listed(known)}"
                    what = f"no edge of the topology {each.edge.name} joins a node {node}"
                    yield EdgeProblem(each.file, ("topology", key, number), what, meant)


def _twice(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges between nodes that another edge joins the same way."""
    first: dict[Pair, EdgeFile] = {}
    for each in edges:
        other = first.setdefault(each.pair, each)
        if other is not each:
            yield EdgeProblem(
                each.file,
                _DST,
                f"{other.file} goes from {each.edge.src_node} to {each.edge.dst_node}, too: each "
                "change would come twice",
                "keep one of them; one edge copies all tables between two nodes",
            )


def _loops(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges by which a tree has a second way between two nodes."""
    beside: dict[str, list[str]] = defaultdict(list)
    judged: set[frozenset[str]] = set()
    for each in edges:
        src, dst = each.pair
        if frozenset(each.pair) in judged:
            continue  # the edge back, or the same once more
        judged.add(frozenset(each.pair))
        way = _way(beside, src, dst)
        if way:
            yield EdgeProblem(
                each.file,
                _DST,
                f"there is another way between {src} and {dst}: {' - '.join((*way, src))} is a "
                "loop, and changes would come twice, or come back",
                "remove an edge of the loop, with the one back: in a tree there is one way between "
                "two nodes",
            )
            continue
        beside[src].append(dst)
        beside[dst].append(src)


def _way(beside: Mapping[str, Sequence[str]], start: str, end: str) -> tuple[str, ...]:
    """Return the nodes on the way from one node to another in a tree; empty if there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    for way in ways:
        if way[-1] == end:
            return way
        for node in beside.get(way[-1], ()):
            if node not in seen:
                seen.add(node)
                ways.append((*way, node))
    return ()


def _apart(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield the first edge of each part of a tree that no edge joins with the other parts."""
    beside: dict[str, list[str]] = defaultdict(list)
    for each in edges:
        src, dst = each.pair
        beside[src].append(dst)
        beside[dst].append(src)
    joined: set[str] = set()
    for each in edges:
        if each.edge.src_node in joined:
            continue
        part = {node for node in beside if _way(beside, each.edge.src_node, node)}
        if joined:
            yield EdgeProblem(
                each.file,
                ("topology", "name"),
                f"no edge joins {listed(sorted(part))} with {listed(sorted(joined))}",
                "add the edge that does, or give this one another topology's name",
            )
        joined |= part


def _missing(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield the edges that a full mesh lacks."""
    there = {each.pair for each in edges}
    nodes = nodes_of(edges)
    for src in nodes:
        beside = next(each for each in edges if src in each.pair)
        for dst in nodes:
            if src != dst and (src, dst) not in there:
                yield EdgeProblem(
                    beside.file,
                    ("topology", "shape"),
                    f"a mesh has an edge from each node to each other one, and none goes from "
                    f"{src} to {dst}",
                    "add it, or write shape: tree where there is one way between any two nodes",
                )


def _narrowed(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield edges of a tree whose lists of nodes split a transaction, or let nothing through."""
    brings = brought(edges)
    files = {each.pair: each for each in edges}
    by_pair = {each.pair: each.edge for each in edges}
    for each in edges:
        edge = each.edge
        key = ("topology", "do_nodes" if edge.do_nodes else "ignore_nodes")
        before = _before(edge, by_pair)
        if not brings[each.pair]:
            what = f"it brings nothing to {edge.dst_node}: no node whose changes come to "
            what += f"{edge.src_node} is let through"
            yield EdgeProblem(each.file, key, what, "name such a node, or remove the pipeline")
        for pair in before:
            some = sorted(brings[pair])
            wanted = [node for node in some if _wants(edge, node)]
            if wanted and wanted != some:
                yield EdgeProblem(
                    each.file,
                    key,
                    f"{files[pair].file} brings changes of {listed(some)} to {edge.src_node}, also "
                    f"in one transaction, and only those of {listed(wanted)} would go on to "
                    f"{edge.dst_node}",
                    f"let all of {listed(some)} through, or none of them",
                )
        came = {edge.src_node}.union(*(brings[pair] for pair in before))
        for number, node in enumerate(edge.do_nodes):
            if node not in came:
                what = f"changes of {node} do not come to {edge.src_node} by a way that goes on to "
                what += f"{edge.dst_node}"
                place = ("topology", "do_nodes", number)
                yield EdgeProblem(each.file, place, what, "remove it", is_warning=True)


def _one_way(edges: Sequence[EdgeFile]) -> Iterator[EdgeProblem]:
    """Yield a warning for each edge of a tree without one back."""
    there = {each.pair for each in edges}
    for each in edges:
        if each.pair[::-1] not in there:
            src, dst = each.pair
            yield EdgeProblem(
                each.file,
                _DST,
                f"no edge goes from {dst} to {src}: what is written at {dst} does not come back",
                f"add the pipeline from {dst} to {src}, unless nobody is to write at {dst}",
                is_warning=True,
            )
