"""Pause, resume, restart: what the owners of pipelines are asked, through the state store alone."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.each_pipeline import for_each
from airflow_cdc_provider.cli.commands.opening import Options, status_of
from airflow_cdc_provider.cli.commands.tables import tables_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_STARTED, CdcError, RefusedError
from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import pausing
from airflow_cdc_provider.pipeline.steps.pause_tables import (
    outcome_of,
    pause_tables,
    resume_tables,
)
from airflow_cdc_provider.pipeline.steps.pausing import Before
from airflow_cdc_provider.views.display import Screen


def pause(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `pause`: pause pipelines, or single tables."""
    tables = tables_of(options)

    def ask(run: Run) -> str:
        if tables:
            return _outcome(options, run, screen, pause_tables(run, tables))
        return pausing.pause(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
        )

    return for_each(options, lookup, screen, ask)


def start(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `start`: start runs of pipelines' DAGs in Airflow."""

    def ask(run: Run) -> str:
        if lookup.begin_run is None:
            raise RefusedError(
                "there is no Airflow here that could begin a run",
                where=f"pipeline {run.name}",
                risk=NOTHING_STARTED,
                remedy="`run` it in this process, or `start` it by the command line of Airflow",
            )
        pausing.require_wanted(run)
        if pausing.runs_now(run):
            return _begun(run, lookup, Before.WANTED)
        return lookup.begin_run(str(run.name), is_stopped=pausing.before(run) is not Before.WANTED)

    return for_each(options, lookup, screen, ask)


def resume(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `resume`: allow pipelines to run again, or bring tables back."""
    tables = tables_of(options)

    def ask(run: Run) -> str:
        if tables:
            return _outcome(options, run, screen, resume_tables(run, tables))
        was = pausing.before(run)
        return f"{pausing.resume(run)} {_begun(run, lookup, was)}"

    return for_each(options, lookup, screen, ask)


def restart(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `restart`: have owners begin again from the ledger, or start a run."""

    def ask(run: Run) -> str:
        was = pausing.before(run)
        done = pausing.restart(
            run, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
        )
        if pausing.runs_on(run, was):
            return done
        return f"{done} {_begun(run, lookup, was)}"

    return for_each(options, lookup, screen, ask)


def _begun(run: Run, lookup: Lookup, was: Before) -> str:
    """Start a DAG run if no process goes on with the pipeline; describe that, or why not."""
    if pausing.runs_on(run, was):
        return f"{run.store.ensure(run.name).owner} runs it."
    if lookup.begin_run is None:
        ending = f"{run.store.ensure(run.name).owner} is about to end, and nothing runs it then"
        return (
            f"{ending if pausing.runs_now(run) else 'Nothing runs it now'}: "
            f"`run {run.loaded.path}` does, or a run of its DAG in Airflow, "
            f"which `airflow cdc start {run.loaded.path}` begins."
        )
    try:
        return lookup.begin_run(str(run.name), is_stopped=was is not Before.WANTED)
    except CdcError as error:  # what was asked is done, whatever Airflow says
        return f"No run begins, because {error.what}; {error.remedy}."


def _outcome(options: Options, run: Run, screen: Screen, request: Request) -> str:
    """Wait for a request about tables, and describe its result."""
    return outcome_of(
        run, request, wait_s=options.wait_s, on_tick=lambda: screen.progress(lambda: status_of(run))
    )
