"""The source's log around a position, for a person who wants to know why a stream stops there."""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.columns.source_port import ShowsLog, offered
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, source_of


def log_view(run: Run, *, at: str = "", count: int = 20, values: bool = False) -> LogView:
    """Return log events around a place, else the stream's position, else the log's end."""
    position = None if at else _stream_position(run)
    return offered(source_of(run), ShowsLog).look_at_log(at, position, count=count, values=values)


def _stream_position(run: Run) -> LogPosition | None:
    """Return the stream's position by the sink's ledger, None before there is a stream.

    If the sink does not answer, the state store's last known position has to do.
    """
    if not run.store.is_handed_off(run.name):
        return None
    told = run.store.stream(run.name)
    try:
        with closing(open_ledger(run)) as ledger:
            stream = ledger.stream()
    except SinkUnreachableError:
        return None if told is None else told.position
    return None if stream is None else stream.start
