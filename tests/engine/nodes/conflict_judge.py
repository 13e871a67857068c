"""Which conflicts there must be at an edge, by the logs of both nodes alone.

A change of the source is in conflict with each change of the same key at the sink that is before
its own arrival there, and that the source had not heard of. Nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.topology import Topology
from tests.engine.counter_log import CounterPosition
from tests.engine.nodes.edges import Edge
from tests.engine.nodes.node import Committed

RowName = tuple[TableId, int]


def wrong_conflicts(edge: Edge) -> list[str]:
    """Return what is wrong with the conflicts that an edge has stored."""
    stored = [
        ((each.table, int(each.key["id"])), _place(each.source.at), _place(each.sink.at))
        for each in edge.ledger.conflicts
    ]
    found = [
        f"{edge.name}: the conflict of {row[1]} at {source} and {sink} is none"
        for row, source, sink in stored
        if not _known_at(edge, source, row[0]) < sink
    ]
    theirs = dict(_kept(edge.topology.opposite(), edge.dst.log))
    for place, rows in _kept(edge.topology, edge.src.log):
        for row in rows:
            arrival, end = _arrival(edge, place, row[0])
            known = _known_at(edge, place, row[0])
            met = [at for at, others in theirs.items() if known < at < arrival and row in others]
            if met and not any(row == name and place <= at <= end for name, at, _ in stored):
                found.append(f"{edge.name}: {row[1]} at {place} has no conflict with {met}")
    return found


def _place(text: str) -> int:
    return int(text.rpartition(" ")[2])


def _number(position: object) -> int:
    assert isinstance(position, CounterPosition)
    return position.number


def _known_at(edge: Edge, place: int, table: TableId) -> int:
    """Return how much of the sink's log the source had heard of, of a table, at a place."""
    back, found = edge.topology.opposite().name_in_ledger, edge.known.number
    for each in edge.src.log[:place]:
        if each.moved is not None and each.moved[0] == back:
            found = _number(each.moved[1].of(table))
    return found


def _arrival(edge: Edge, place: int, table: TableId) -> tuple[int, int]:
    """Return where in the sink's log a place in the source's arrived, and what came with it."""
    for number, each in enumerate(edge.dst.log, 1):
        if each.moved is not None and each.moved[0] == edge.name:
            end = _number(each.moved[1].of(table))
            if end >= place:
                return number, end
    return 0, 0


def _kept(edge: Topology, log: list[Committed]) -> Iterator[tuple[int, set[RowName]]]:
    """Yield the transactions of a log that are for an edge, and the rows that they change."""
    origins = edge.origins()
    for number, each in enumerate(log, 1):
        if each.changes and not any(map(origins.leaves_out, each.marks or (None,))):
            yield number, {(change.table, key) for change in each.changes for key in change.keys}
