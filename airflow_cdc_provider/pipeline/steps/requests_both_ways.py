"""Requests on edges of a topology: where they would undo what other nodes have written.

What a request writes is marked as come from its source, so the edge back leaves it out. Two that
read a row that differs, each before the other has written, would give each node the other's row.
And at a node that other edges write, too, it goes on to the nodes behind them as a change of this
node, which may win over a change there that has not come here yet.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.pipeline.steps.seeding import opposite_run
from airflow_cdc_provider.pipeline.steps.sink import open_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.pipeline.run import Run


def require_last_node(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse to read tables again into a node to which other edges write, too."""
    edge = run.model.edge
    if edge is None:
        return
    with closing(open_targets(run)) as targets:
        others = targets.sharers(plans)
    if others:
        raise RefusedError(
            f"{edge.dst_node} is joined to other nodes, too: {', '.join(others)} writes there",
            where=edge.where,
            risk="rows that are read again would go on to these nodes, and could take the place of "
            f"what they have written and {edge.dst_node} has not heard of yet; nothing was changed",
            remedy=f"if the rows at {edge.dst_node} are right, read them again by the edge from "
            f"there to {edge.src_node}; else correct them by hand at {edge.dst_node}",
        )


def require_not_read_there(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse to read tables again on an edge while the edge back has a request for one of them.

    Nothing is known of an edge back whose file is elsewhere.
    """
    if run.model.edge is None:
        return
    at_sink = {plan.sink_table for plan in plans}
    with opposite_run(run) as back:
        if back is None:
            return
        for request in back.store.requests(back.name, only_open=True):
            both = sorted({*request.scope.tables} & at_sink)
            if request.kind.reads_rows and both:
                raise RefusedError(
                    f"{back.name} is to read {both[0]} again: request {request.request_id}",
                    where=run.model.edge.where,
                    risk="rows that differ could be exchanged between the nodes; nothing was asked",
                    remedy=f"wait until that is done, or `cancel` it for {back.name}; then ask "
                    "again",
                )
