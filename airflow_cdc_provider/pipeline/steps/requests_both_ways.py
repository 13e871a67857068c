"""Requests on the two edges of a pair: one of them at a time reads a table's rows again.

What a request writes is marked as come from its source, so the edge back leaves it out. Two that
read a row that differs, each before the other has written, would give each node the other's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.pipeline.steps.seeding import opposite_run

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.pipeline.run import Run


def require_not_read_there(run: Run, sink_tables: Collection[TableId]) -> None:
    """Refuse to read tables again on an edge while the edge back has a request for one of them.

    Nothing is known of an edge back whose file is elsewhere.
    """
    if run.model.edge is None:
        return
    with opposite_run(run) as back:
        if back is None:
            return
        for request in back.store.requests(back.name, only_open=True):
            both = sorted({*request.scope.tables} & {*sink_tables})
            if request.kind.reads_rows and both:
                raise RefusedError(
                    f"{back.name} is to read {both[0]} again: request {request.request_id}",
                    where=run.model.edge.where,
                    risk="rows that differ could be exchanged between the nodes; nothing was asked",
                    remedy=f"wait until that is done, or `cancel` it for {back.name}; then ask "
                    "again",
                )
