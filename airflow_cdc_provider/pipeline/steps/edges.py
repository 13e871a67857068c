"""What an edge of a topology does not do: whatever reads rows again over those of a living node."""

from __future__ import annotations

from airflow_cdc_provider.pipeline.run import Run


def require_one_way(run: Run, what: str) -> None:
    """Refuse `what` if the pipeline is an edge of a topology."""
    if run.model.edge is not None:
        raise run.model.edge.refusal(what)
