"""The topologies of a folder as an SVG picture, readable on light and on dark.

A tree is drawn from its middle to the right, one column for each step away from it; other shapes
have their nodes in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from airflow_cdc_provider.core.topology_edges import EdgeFile, listed, nodes_of
from airflow_cdc_provider.pipeline.topologies import FolderTopologies
from airflow_cdc_provider.views.topology import (
    beside,
    headline,
    is_right_tree,
    middle_of,
    servers_of,
)

Point = tuple[float, float]
_WIDTH, _HEIGHT = 220, 52
"""Of a node's box."""
_COLUMN, _ROW, _MARGIN, _TITLE = 320, 84, 24, 36
_MOST_LETTERS = 28
_STYLE = """\
  <style>
    .page { fill: #ffffff } .node { fill: #eef4f8; stroke: #4a7a96 }
    .edge { stroke: #4a7a96; stroke-width: 1.6 } .tip { fill: #4a7a96 } text { fill: #1d3442 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #14202a } .node { fill: #21384a; stroke: #8fc1dd }
      .edge { stroke: #8fc1dd } .tip { fill: #8fc1dd } text { fill: #e6f0f6 }
    }
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


def topology_svg(found: FolderTopologies) -> str:
    """Return the picture of a folder's topologies, one below the other."""
    parts: list[str] = []
    top, width = float(_MARGIN), 0.0
    for _, edges in sorted(found.edges.items()):
        places = _tree(edges) if is_right_tree(edges) else _circle(nodes_of(edges))
        parts += [
            f'  <g transform="translate({_MARGIN} {top:g})">',
            *_drawn(edges, places),
            "  </g>",
        ]
        width = max(width, max(x for x, _ in places.values()) + _WIDTH, 7.5 * len(headline(edges)))
        top += max(y for _, y in places.values()) + _HEIGHT + _MARGIN
    size = f"{width + 2 * _MARGIN:g} {top:g}"
    told = listed(sorted(found.edges))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            'aria-labelledby="t" font-family="system-ui, sans-serif" font-size="14">',
            f'  <title id="t">Nodes and edges of {escape(told)}</title>',
            _STYLE,
            '  <rect class="page" width="100%" height="100%"/>',
            *parts,
            "</svg>\n",
        )
    )


def _tree(edges: Sequence[EdgeFile]) -> Mapping[str, Point]:
    """Return the upper left corner of each node of a tree."""
    places: dict[str, Point] = {}
    rows = iter(range(len(nodes_of(edges))))

    def place(node: str, above: str, column: int) -> float:
        below = [place(each, node, column + 1) for each in beside(node, edges) if each != above]
        row = (below[0] + below[-1]) / 2 if below else float(next(rows))
        places[node] = column * _COLUMN, _TITLE + row * _ROW
        return row

    place(middle_of(edges), "", 0)
    return places


def _circle(nodes: Sequence[str]) -> Mapping[str, Point]:
    """Return the upper left corner of each node, in a circle."""
    radius = max(_COLUMN / 2, len(nodes) * _WIDTH / 5)
    turns = {node: 2 * math.pi * number / len(nodes) for number, node in enumerate(nodes)}
    return {
        node: (radius * (1 - math.cos(turn)), _TITLE + radius * (1 - math.sin(turn)))
        for node, turn in turns.items()
    }


def _drawn(edges: Sequence[EdgeFile], places: Mapping[str, Point]) -> Iterator[str]:
    """Yield the shapes of one topology: title, edges, nodes."""
    yield f'    <text x="0" y="12" font-weight="600">{escape(headline(edges))}</text>'
    pairs = {each.pair: each for each in edges}
    for one, other in sorted({(min(pair), max(pair)) for pair in pairs}):
        start, end = _line(places[one], places[other])
        tips = 'marker-end="url(#tip)" ' if (one, other) in pairs else ""
        tips += 'marker-start="url(#tip)"' if (other, one) in pairs else ""
        files = [pairs[pair].file for pair in ((one, other), (other, one)) if pair in pairs]
        yield (
            f'    <line class="edge" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" '
            f'y2="{end[1]:.1f}" {tips.strip()}><title>{escape(listed(files))}</title></line>'
        )
    for node, (x, y) in places.items():
        middle = x + _WIDTH / 2
        yield (
            f'    <rect class="node" x="{x:.1f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" '
            'rx="8"/>'
        )
        yield _text(node, middle, y + 22, 'font-weight="600"')
        yield _text(servers_of(edges).get(node, ""), middle, y + 40, 'font-size="12"')


def _text(text: str, x: float, y: float, style: str) -> str:
    """Return a text in the middle of a box, cut to its width."""
    short = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 3]}..."
    return f'    <text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {style}>{escape(short)}</text>'


def _line(one: Point, other: Point) -> tuple[Point, Point]:
    """Return where the line between two boxes leaves the one and reaches the other."""
    across, down = other[0] - one[0], other[1] - one[1]
    # the part of the way between the middles that is inside a box
    inside = min(
        _WIDTH / 2 / abs(across) if across else math.inf,
        _HEIGHT / 2 / abs(down) if down else math.inf,
        0.5,
    )
    start = one[0] + _WIDTH / 2 + across * inside, one[1] + _HEIGHT / 2 + down * inside
    end = other[0] + _WIDTH / 2 - across * inside, other[1] + _HEIGHT / 2 - down * inside
    return start, end
