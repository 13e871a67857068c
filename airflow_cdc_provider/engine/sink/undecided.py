"""The error for rows that both nodes changed, and whose conflict a person decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import UndecidedConflictError

if TYPE_CHECKING:
    from airflow_cdc_provider.core.topology import Topology
    from airflow_cdc_provider.engine.sink.settled import SettledTable

_MOST_NAMED = 5


def undecided(edge: Topology, settled: SettledTable) -> UndecidedConflictError:
    """Return the error for conflicts that no rule decides: keys, and positions of both changes."""
    table, conflicts = settled.work.plan.schema.table, settled.conflicts()
    named = [
        f"{json.dumps(each.key, ensure_ascii=False)}, by {edge.src_node} at {each.source.at} and "
        f"by {edge.dst_node} at {each.sink.at}"
        for each in conflicts[:_MOST_NAMED]
    ]
    others = len(conflicts) - len(named)
    more = f"; and {others} more" if others else ""
    return UndecidedConflictError(
        f"both nodes changed rows of {table} without knowing of the other's change: "
        f"{'; '.join(named)}{more}",
        where=f"edge from {edge.src_node} to {edge.dst_node} of {edge.name}, {table}",
        risk="neither change was written at the other node; the table stands still there on both "
        "edges, and the nodes differ from there on",
        remedy=f"give {table} alone a rule with a winner under topology.conflicts.tables, in the "
        "files of both edges; once it has stopped on both, end both, and `run` one, then the other",
    ).about(table)
