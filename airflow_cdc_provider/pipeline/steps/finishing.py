"""After the consistent point: secondary unique and foreign keys of the sink's tables.

Before it the sink is not the source at any one position, and a unique or foreign key could refuse
rows that are right. So a pipeline without a stream never adds any. Adding a key that is there is
harmless, so the step may be repeated.
"""

from __future__ import annotations

import logging
from contextlib import closing

from airflow_cdc_provider.core.errors import NotConsistentError
from airflow_cdc_provider.core.history import held_by_stream, names_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.lease import KeptLease
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_table_builder

log = logging.getLogger(__name__)


def finish_tables(run: Run) -> tuple[TableId, ...]:
    """Add keys to the sink's tables if all are consistent; return those that are not yet."""
    stream, stopped = _stream_and_stopped(run)
    if not run.model.stream.has_stream:
        return () if stream is not None else _waiting(run, stream)
    waiting = _waiting(run, stream)
    if not waiting:
        # of those that are stopped the rows are of another position, or the targets gone
        plans = [each.plan for each in run.store.tables(run.name) if each.table not in stopped]
        with KeptLease(run), closing(open_table_builder(run)) as builder:
            remarks = builder.finish(plans)
        for remark in remarks:
            log.warning("%s", remark)
            run.store.tell(run.name, remark, level="warning")
    return waiting


def inconsistent_tables(run: Run) -> tuple[TableId, ...]:
    """Return the tables that are not yet consistent; all of them before the hand-off."""
    return _waiting(run, _stream_and_stopped(run)[0])


def not_consistent(run: Run, *, stopped: bool) -> NotConsistentError:
    """Return the error that names the tables not yet consistent, and what they wait for."""
    stream, _ = _stream_and_stopped(run)
    if stream is None:
        return NotConsistentError(f"pipeline {run.name} is not handed off")
    if stream.unread:
        return _unread(run, stream)
    held = held_by_stream(stream)
    tables = ", ".join(str(table) for table in stream.inconsistent)
    still = f"{names_of(held)} reach to {held[0].position}" if held else "nothing is known to wait"
    why = "the stream was asked to stop" if stopped else "all of the source's log is applied"
    return NotConsistentError(
        f"not consistent: {tables}; {why} at {stream.start}, and {still}",
        where=f"pipeline {run.name}",
        risk="the tables may hold rows of several moments; no keys were added",
        remedy="resume it and run again"
        if stopped
        else "run again; if it stays, `reset`: the next run reads all tables again",
    )


def _unread(run: Run, stream: StreamSplit) -> NotConsistentError:
    """Return the error for added tables that are not read yet, with the reason."""
    tables = set(stream.unread)
    ended = [each for each in run.store.requests(run.name) if tables & set(each.scope.tables)]
    why = next((each.error for each in reversed(ended) if each.error), "nobody has read them yet")
    return NotConsistentError(
        f"not read yet: {', '.join(map(str, sorted(tables)))}; {why}",
        where=f"pipeline {run.name}",
        risk="these tables lack rows; the others are as they should be, and no keys were added",
        remedy="mend what that says and run again: their rows are asked for again",
    )


def _waiting(run: Run, stream: StreamSplit | None) -> tuple[TableId, ...]:
    """Return the tables that are not yet consistent, by the stream."""
    if stream is None:
        return tuple(state.table for state in run.store.tables(run.name))
    return stream.inconsistent


def _stream_and_stopped(run: Run) -> tuple[StreamSplit | None, frozenset[TableId]]:
    """Return the ledger's stream, None before the hand-off, and the isolated tables."""
    with closing(open_ledger(run)) as ledger:
        stream, stopped = ledger.stream(), ledger.stopped()
    passed = None if stream is None else stream.passed(stream.start)
    return passed, frozenset(each.table for each in stopped)
