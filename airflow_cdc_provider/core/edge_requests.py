"""Which requests about single tables an edge of a topology refuses, whoever asks for them."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.topology import Topology

_BEGINS = {RequestKind.FOLLOW: "adds no tables", RequestKind.RESET: "begins no table again"}


def refused_by(edge: Topology | None, kind: RequestKind) -> RefusedError | None:
    """Return the error for what a pipeline refuses as an edge, None for what it does."""
    if edge is None:
        return None
    return refused_on_edge(kind, where=edge.where)


def refused_on_edge(kind: RequestKind, *, where: str) -> RefusedError | None:
    """Return the error for what an edge refuses, None for what it does. `where` names the edge."""
    if kind not in _BEGINS:
        return None
    return RefusedError(
        f"an edge of a topology {_BEGINS[kind]}",
        where=where,
        risk="what is written to the table meanwhile would be at one node only; nothing was "
        "changed",
        remedy="follow a new table by a topology of its own, or copy one node anew: the page "
        "'Two nodes' says how",
    )
