"""The topologies of a folder as text and as JSON: nodes, edges, and what each edge brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_cdc_provider.core.topology_edges import EdgeFile, nodes_of
from airflow_cdc_provider.core.topology_shape import brought, wrong_shape
from airflow_cdc_provider.pipeline.topologies import FolderTopologies

Pair = tuple[str, str]
Form = dict[str, Any]


def topology_form(found: FolderTopologies, folder: str) -> Form:
    """Return a folder's topologies as JSON; later releases only add fields."""
    return {
        "folder": folder,
        "refused": bool(found.blocks),
        "topologies": [_form(found, edges) for _, edges in sorted(found.edges.items())],
        "problems": [problem.to_json() for problem in found.problems],
    }


def _form(found: FolderTopologies, edges: Sequence[EdgeFile]) -> Form:
    """Return one topology as JSON."""
    first, brings = edges[0].edge, brings_of(edges)
    return {
        "name": first.name,
        "shape": shape_name(edges),
        "marker": str(first.marker),
        "nodes": [
            {"name": node, "server": servers_of(edges).get(node, "")} for node in nodes_of(edges)
        ],
        "edges": [
            {
                "from": each.edge.src_node,
                "to": each.edge.dst_node,
                "file": each.file,
                "pipeline": found.pipelines[each.file],
                "brings": sorted(brings[each.pair]) if each.pair in brings else None,
            }
            for each in edges
        ],
    }


def check_lines(found: FolderTopologies) -> list[str]:
    """Return what `topology check` says: each problem, then a line for each topology."""
    lines = [f"[{'warn' if each.is_warning else 'block'}] {each}" for each in found.problems]
    for name, edges in sorted(found.edges.items()):
        of_it = [each for each in found.problems if each.topology == name]
        blocks = sum(not each.is_warning for each in of_it)
        verdict = _verdict(blocks, unread=sum(not each.topology for each in found.problems))
        lines.append(f"{headline(edges)}: {verdict}, {_count(len(of_it) - blocks, 'warning')}")
    return lines


def _verdict(blocks: int, *, unread: int) -> str:
    """Return whether a topology is right, as far as all files of its folder could be read."""
    if blocks:
        return f"refused, {_count(blocks, 'problem')}"
    if unread:
        return (
            f"cannot tell, {_count(unread, 'file')} of the folder may be of it and cannot be read"
        )
    return "right"


def picture_lines(found: FolderTopologies) -> list[str]:
    """Return what `topology show` says: a picture of each topology, its edges, the problems."""
    lines: list[str] = []
    for _, edges in sorted(found.edges.items()):
        lines += [headline(edges), *_picture(edges), "", *_edge_lines(found, edges), ""]
    return lines + [f"[{'warn' if e.is_warning else 'block'}] {e}" for e in found.problems]


def headline(edges: Sequence[EdgeFile]) -> str:
    """Return a topology's name, shape, size and marker as text."""
    nodes, first = nodes_of(edges), edges[0].edge
    return (
        f"topology {first.name}: {shape_name(edges)}, {_count(len(nodes), 'node')}, "
        f"{_count(len(edges), 'edge')}, marker {first.marker}"
    )


def _count(number: int, word: str) -> str:
    """Return a number with its word."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _picture(edges: Sequence[EdgeFile]) -> Iterator[str]:
    """Yield the lines of a picture: a tree from its middle, or the nodes alone."""
    servers = servers_of(edges)
    if not is_right_tree(edges):
        yield from (f"  {_node(node, servers)}" for node in nodes_of(edges))
        return
    yield f"  {_node(middle_of(edges), servers)}"
    yield from _below(middle_of(edges), "", edges, "  ", servers)


def _below(
    node: str, above: str, edges: Sequence[EdgeFile], indent: str, servers: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of the nodes below one of a tree."""
    nexts = [each for each in beside(node, edges) if each != above]
    for each in nexts:
        is_last = each == nexts[-1]
        yield f"{indent}{'`' if is_last else '|'}{_arrow(node, each, edges)} {_node(each, servers)}"
        deeper = f"{indent}{' ' if is_last else '|'}    "
        yield from _below(each, node, edges, deeper, servers)


def _arrow(node: str, other: str, edges: Sequence[EdgeFile]) -> str:
    """Return the edges between two nodes as an arrow."""
    pairs = {each.pair for each in edges}
    left = "<" if (other, node) in pairs else "-"
    return f"{left}-{'>' if (node, other) in pairs else '-'}"


def _node(node: str, servers: Mapping[str, str]) -> str:
    """Return a node with its server."""
    return f"{node} ({servers[node]})" if servers.get(node) else node


def _edge_lines(found: FolderTopologies, edges: Sequence[EdgeFile]) -> Iterator[str]:
    """Yield a line for each edge: its file, and whose changes it brings."""
    brings = brings_of(edges)
    for each in sorted(edges, key=lambda each: each.pair):
        line = f"  {each.edge.src_node} -> {each.edge.dst_node}: {found.pipelines[each.file]} "
        line += f"({each.file})"
        if each.pair in brings:
            line += f", brings changes of {', '.join(sorted(brings[each.pair]))}"
        yield line


def shape_name(edges: Sequence[EdgeFile]) -> str:
    """Return the shape that the first file of a topology says."""
    return "mesh" if edges[0].edge.is_mesh else "tree"


def brings_of(edges: Sequence[EdgeFile]) -> Mapping[Pair, frozenset[str]]:
    """Return whose changes each edge brings; nothing where the shape is wrong."""
    is_wrong = any(not problem.is_warning for problem in wrong_shape(edges))
    return {} if is_wrong else brought(edges)


def is_right_tree(edges: Sequence[EdgeFile]) -> bool:
    """Tell whether edges can be drawn as a tree."""
    return not edges[0].edge.is_mesh and bool(brings_of(edges))


def middle_of(edges: Sequence[EdgeFile]) -> str:
    """Return the node that has the most others beside it, the first by name."""
    return max(nodes_of(edges), key=lambda node: (len(beside(node, edges)), *_backwards(node)))


def _backwards(name: str) -> tuple[int, ...]:
    """Return a key that sorts names from last to first."""
    return tuple(-ord(letter) for letter in name)


def beside(node: str, edges: Sequence[EdgeFile]) -> list[str]:
    """Return the nodes that an edge joins with `node`, sorted."""
    found = {each.pair[node == each.pair[0]] for each in edges if node in each.pair}
    return sorted(found)


def servers_of(edges: Sequence[EdgeFile]) -> Mapping[str, str]:
    """Return the server of each node as its files name it."""
    servers: dict[str, str] = {}
    for each in edges:
        for node, server in zip(each.pair, (each.ends.source, each.ends.sink), strict=True):
            if server.address or not servers.get(node):
                servers[node] = str(server)
    return servers
