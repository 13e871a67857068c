"""What an edge of a topology does not do: whatever reads rows again over those of a living node."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.pipeline.run import Run


def require_one_way(run: Run, what: str) -> None:
    """Refuse `what` if the pipeline is an edge of a topology."""
    edge = run.model.edge
    if edge is None:
        return
    raise RefusedError(
        f"an edge of a topology {what}",
        where=f"edge from {edge.src_node} to {edge.dst_node} of {edge.name}",
        risk=f"rows that are read again would take the place of what was written at "
        f"{edge.dst_node} and has not come to {edge.src_node} yet; nothing was changed",
        remedy="compare both nodes with `verify`, and correct by hand, at one of them, the rows "
        "that differ; the page 'Two nodes' says how a node is copied anew",
    )
