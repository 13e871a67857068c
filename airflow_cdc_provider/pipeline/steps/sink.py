"""The sink and the source of a run, and what the steps open of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import (
    Owner,
    Sink,
    SinkSettings,
    TableBuilder,
    Targets,
)
from airflow_cdc_provider.pipeline.run import Run, require_folder
from airflow_cdc_provider.systems.registry import open_sink, open_source


def source_of(run: Run) -> Source:
    """Return the run's source; no connection is opened yet."""
    return open_source(run.servers.source, run.model.source_options)


def require_log_goes_on(run: Run, stream: StreamSplit) -> None:
    """Require that the source's log has all from the stream's position on, for its tables."""
    tables = [progress.table for progress in stream.tables]
    source_of(run).require_same_log(stream.start, held_by_stream(stream), tables)


def secure_log(run: Run) -> None:
    """Have the source keep its log for the pipeline, where it has to be asked."""
    with closing(source_of(run).hold(run.name)) as hold:
        hold.secure()


def release_log(run: Run) -> None:
    """Have the source keep no log for the pipeline any more."""
    with closing(source_of(run).hold(run.name)) as hold:
        hold.release()


def sink_of(run: Run, generation: int = 0, plans: Sequence[TablePlan] = ()) -> Sink:
    """Return the run's sink; it may write only under a generation that owns the pipeline."""
    owner = Owner(run.name, generation)
    settings = SinkSettings(source_options=run.model.source_options, edge=run.model.edge)
    return open_sink(run.model.sink.type, run.servers.sink, owner, plans, settings)


def isolates_tables(run: Run) -> bool:
    """Tell whether one table may be isolated while the others flow."""
    return run.model.isolates_tables and sink_of(run).abilities.isolates_tables


def open_ledger(run: Run) -> Ledger:
    """Open the sink's ledger; it may write after a take-over."""
    return sink_of(run).open_ledger()


def require_sinks_folder(run: Run) -> None:
    """Refuse a sink's folder that has nothing of the rows that were copied to it."""
    if isinstance(run.servers.sink, Folder):
        with closing(open_ledger(run)) as ledger:
            require_folder(run, ledger)


def open_table_builder(run: Run, plans: Sequence[TablePlan] | None = None) -> TableBuilder:
    """Open the part that creates and changes the sink's tables.

    `plans` are those of a new plan; without them the tables are those of the stored one.
    """
    if plans is None:
        plans = tuple(state.plan for state in run.store.tables(run.name))
    return sink_of(run, plans=plans).open_tables()


def open_targets(run: Run, generation: int = 0) -> Targets:
    """Open the claims of the sink's tables; they may be changed only under a generation."""
    return sink_of(run, generation).open_targets()
