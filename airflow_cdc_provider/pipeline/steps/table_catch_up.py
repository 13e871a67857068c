"""Catching up with the log without the tables that are to be added or reset.

They have left the stream by then. What was asked of their rows is void, for all of them are read
again. Other tables that fail meanwhile do not stand in the way: they are isolated, and stay failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.engine.stream.isolation import stopped_text
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.last_try import scrubbed
from airflow_cdc_provider.pipeline.steps.sink import isolates_tables, open_ledger, sink_of

CatchUp = Callable[[Run], object]
"""Brings the sink to the end of the source's log."""


def catch_up_without(run: Run, reach: CatchUp) -> None:
    """Catch up with the log; other tables that fail meanwhile are isolated, even the last one.

    A stream without tables copies nothing, but the tables in question join it next. One that is
    brought back by the log and fails again, as where others closed it at the sink, is left so.
    """
    failed = set[str]()
    while True:
        try:
            reach(run)
        except TablesStoppedError:
            return
        except CdcError as error:
            if not _isolated(run, error):
                raise
            if failed.issuperset(error.tables):
                return
            failed.update(error.tables)
        else:
            return


def _isolated(run: Run, error: CdcError) -> bool:
    """Isolate the stream's tables that an error concerns alone, or did; False if it has others."""
    if isinstance(error, (RetryableError, FencedError)) or not isolates_tables(run):
        return False
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        stream = ledger.stream()
        flowing = () if stream is None else tuple(each.table for each in stream.tables)
        failed = [table for table in flowing if str(table) in error.tables]
        known = {*map(str, failed), *(str(each.table) for each in ledger.stopped())}
        if not error.tables or not known.issuperset(error.tables):
            return False
        if not failed:
            return True
        error = scrubbed(run, error)
        ledger.stop_tables(failed, StoredError.of(error))
    for table in failed:
        run.store.mark_table(run.name, generation, table, TablePhase.FAILED, StoredError.of(error))
    run.store.tell(run.name, stopped_text(failed, error), level="error")
    return True


def void_requests(run: Run, tables: Collection[TableId]) -> None:
    """Cancel the open requests to read rows of these tables only: all their rows are read again."""
    generation = run.held.generation
    for request in run.store.requests(run.name, only_open=True):
        if not request.kind.reads_rows or not set(request.scope.tables) <= set(tables):
            continue
        names = ", ".join(map(str, request.scope.tables))
        why = f"cancelled by the reset of {names}: all rows are read again"
        run.store.move_request(
            run.name,
            generation,
            request.request_id,
            expected=request.status,
            to=RequestStatus.CANCELLED,
            error=StoredError.saying(why),
        )
        with closing(sink_of(run, generation).open_joins()) as joins:
            joins.forget(request.ledger_key)
        run.store.tell(run.name, f"{request.kind.value} {request.request_id} {why}")
