"""After the consistent point: secondary unique and foreign keys of the sink's tables.

Before it the sink is not the source at any one position, and a unique or foreign key could refuse
rows that are right. Adding a key that is there is harmless, so the step may be repeated.
"""

from __future__ import annotations

import logging
from contextlib import closing

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.lease import KeptLease
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_table_builder

log = logging.getLogger(__name__)


def finish_tables(run: Run) -> tuple[TableId, ...]:
    """Add the keys if all tables are consistent; return those that are not, none if it is done."""
    waiting = inconsistent_tables(run)
    if not waiting:
        plans = [state.plan for state in run.store.tables(run.name)]
        with KeptLease(run), closing(open_table_builder(run)) as builder:
            remarks = builder.finish(plans)
        for remark in remarks:
            log.warning("%s", remark)
            run.store.tell(run.name, remark, level="warning")
    return waiting


def inconsistent_tables(run: Run) -> tuple[TableId, ...]:
    """Return the tables whose consistent point has not passed, all of them before hand-off."""
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    if stream is None:
        return tuple(state.table for state in run.store.tables(run.name))
    return stream.passed(stream.start).inconsistent
