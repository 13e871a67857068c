"""Pause, resume, restart: what the owners of pipelines are asked, through the state store alone."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.each import for_each
from airflow_cdc_provider.cli.commands.opening import Options, status_of
from airflow_cdc_provider.cli.commands.tables import tables_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.pipeline.run import Run, lease_is_live
from airflow_cdc_provider.pipeline.steps import pausing
from airflow_cdc_provider.pipeline.steps.table_stops import (
    outcome_of,
    pause_tables,
    resume_tables,
)
from airflow_cdc_provider.views.display import Screen


def pause(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Ask the owners to stop, or to leave tables alone."""
    tables = tables_of(options)

    def ask(run: Run) -> str:
        if tables:
            return _outcome(options, run, screen, pause_tables(run, tables))
        return pausing.pause(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
        )

    return for_each(options, lookup, screen, ask)


def resume(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Allow pipelines to run again, or bring tables back."""
    tables = tables_of(options)

    def ask(run: Run) -> str:
        if tables:
            return _outcome(options, run, screen, resume_tables(run, tables))
        return _begun(pausing.resume(run), run, lookup)

    return for_each(options, lookup, screen, ask)


def start(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Allow pipelines to run, and begin runs of their DAGs."""
    return for_each(options, lookup, screen, lambda run: _begun(pausing.resume(run), run, lookup))


def restart(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """Have the owners begin again from the ledger."""

    def ask(run: Run) -> str:
        done = pausing.restart(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
        )
        return _begun(done, run, lookup)

    return for_each(options, lookup, screen, ask)


def _begun(done: str, run: Run, lookup: Lookup) -> str:
    """Begin a run where the pipeline is wanted to run and no process does; say so after `done`."""
    state = run.store.ensure(run.name)
    if state.wanted is not Wanted.RUN or lease_is_live(run, state):
        return done
    if lookup.begin_run is not None:
        return f"{done} {lookup.begin_run(str(run.name), run.loaded.path)}"
    return f"{done} No process runs it now: `run {run.loaded.path}` does, or a run of its DAG."


def _outcome(options: Options, run: Run, screen: Screen, request: Request) -> str:
    return outcome_of(
        run, request, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
    )
