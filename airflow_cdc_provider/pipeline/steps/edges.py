"""What an edge of a topology does not do, or only where its conflicts are settled."""

from __future__ import annotations

from airflow_cdc_provider.core.edge_requests import refused_by
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.pipeline.run import Run


def require_edge_does(run: Run, kind: RequestKind) -> None:
    """Refuse a kind of request about single tables if the pipeline is an edge that refuses it."""
    refused = refused_by(run.model.edge, kind)
    if refused is not None:
        raise refused


def require_one_way(run: Run, what: str) -> None:
    """Refuse `what` if the pipeline is an edge of a topology."""
    if run.model.edge is not None:
        raise run.model.edge.refusal(what)


def require_rows_can_be_read_again(run: Run) -> None:
    """Refuse an edge of a topology that does not look at what its sink's node changes."""
    edge = run.model.edge
    if not (edge is None or edge.reads_rows_again):
        raise edge.refusal_to_read_again()
