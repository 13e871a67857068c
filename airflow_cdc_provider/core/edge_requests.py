"""Which requests about single tables an edge of a topology refuses, whoever asks for them."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.topology import Topology

_BEGINS = {RequestKind.FOLLOW: "adds no tables", RequestKind.RESET: "begins no table again"}
_LEAVES_ALONE = frozenset({RequestKind.PAUSE, RequestKind.RESUME})


def refused_by(edge: Topology | None, kind: RequestKind) -> RefusedError | None:
    """Return the error for what a pipeline refuses as an edge, None for what it does."""
    if edge is None:
        return None
    return refused_on_edge(kind, is_guarded=edge.is_guarded, where=edge.where)


def refused_on_edge(kind: RequestKind, *, is_guarded: bool, where: str) -> RefusedError | None:
    """Return the error for what an edge refuses, None for what it does.

    `is_guarded`: conflicts are looked for. `where` names the edge.
    """
    if kind in _BEGINS:
        return RefusedError(
            f"an edge of a topology {_BEGINS[kind]}",
            where=where,
            risk="what is written to the table meanwhile would be at one node only; nothing was "
            "changed",
            remedy="follow a new table by a topology of its own, or copy one node anew: the page "
            "'Two nodes' says how",
        )
    if is_guarded and kind in _LEAVES_ALONE:
        return RefusedError(
            "an edge whose conflicts are settled leaves no table alone",
            where=where,
            risk="the other edge could not tell what this node knew of the table; nothing was "
            "changed",
            remedy="`pause` the pipeline, without tables",
        )
    return None
