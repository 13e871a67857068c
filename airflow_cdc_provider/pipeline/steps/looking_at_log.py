"""The source's log around a position, for a person who wants to know why a stream stops there."""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.logged_events import LogView
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, source_of


def log_view(run: Run, *, at: str = "", count: int = 20, values: bool = False) -> LogView:
    """Return events around a place, else around the stream's position, else at the log's end."""
    position = None if at else _stream_position(run)
    return source_of(run).look_at_log(at, position, count=count, values=values)


def _stream_position(run: Run) -> LogPosition | None:
    """Return up to where the sink holds the source, None before there is a stream.

    The state store was told of it a while ago, which has to do if the sink does not answer.
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
