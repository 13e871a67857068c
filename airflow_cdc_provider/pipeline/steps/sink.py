"""The sink and the source of a run, and what the steps open of them."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.columns.sink_port import (
    Owner,
    Sink,
    SinkLedger,
    SinkSettings,
    TableBuilder,
    Targets,
)
from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.registry import open_sink, open_source


def source_of(run: Run) -> Source:
    """Return the source; nothing is connected yet."""
    return open_source(run.servers.source)


def require_log_goes_on(run: Run, stream: StreamSplit) -> None:
    """Require that the source's log goes on from where a stream is, for all of its tables."""
    tables = [progress.table for progress in stream.tables]
    source_of(run).require_same_log(stream.start, held_by_stream(stream), tables)


def sink_of(run: Run, generation: int = 0, plans: Sequence[TablePlan] = ()) -> Sink:
    """Return the sink; only under a generation that owns may it write."""
    owner = Owner(run.name, generation)
    settings = SinkSettings(zero_dates=run.model.source.zero_dates)
    return open_sink(run.model.sink.type, run.servers.sink, owner, plans, settings)


def isolates_tables(run: Run) -> bool:
    """Tell whether one table of the stream may stop while the others flow."""
    is_wanted = run.model.stream.table_errors == "isolate"
    return is_wanted and sink_of(run).abilities.isolates_tables


def open_ledger(run: Run) -> SinkLedger:
    """Open the ledger; it may write once it has been taken over."""
    return sink_of(run).open_ledger()


def open_table_builder(run: Run) -> TableBuilder:
    """Open what makes the sink's tables."""
    plans = tuple(state.plan for state in run.store.tables(run.name))
    return sink_of(run, plans=plans).open_tables()


def open_targets(run: Run, generation: int = 0) -> Targets:
    """Open what tells whose the tables are; only under a generation that owns may it write."""
    return sink_of(run, generation).open_targets()
