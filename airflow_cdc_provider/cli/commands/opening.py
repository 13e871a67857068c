"""Opening a pipeline for a command, to look at it or to work on it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, give_back, open_run, open_to_look
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.status import PipelineStatus
from airflow_cdc_provider.views.status import status as status_step

Options = argparse.Namespace


@contextmanager
def opened(options: Options, lookup: Lookup, screen: Screen) -> Iterator[Run]:
    """Open the pipeline for a command that may own it, and give the lease back at the end."""
    with open_run(load_pipeline(options.file), lookup.dsn_of, in_airflow=lookup.in_airflow) as run:
        _say_state(run, screen)
        try:
            yield run
        finally:
            give_back(run)


def looked_at(options: Options, lookup: Lookup, screen: Screen) -> Run:
    """Open the pipeline for a command that only reads."""
    run = open_to_look(load_pipeline(options.file), lookup.dsn_of, in_airflow=lookup.in_airflow)
    _say_state(run, screen)
    return run


def status_of(run: Run) -> PipelineStatus:
    """Return the pipeline's status from the state store."""
    target_s = run.model.freshness.target_s
    return status_step(
        run.store,
        run.name,
        now_us=run.store.now_us(),
        freshness_s=target_s,
        is_continuous=run.model.stream.is_continuous,
    )


def confirm(options: Options, screen: Screen, question: str) -> None:
    """Raise `RefusedError` unless --yes is given or a person answers yes."""
    if options.yes or screen.ask(question):
        return
    raise RefusedError(
        "this was not confirmed",
        risk=NOTHING_CHANGED,
        remedy="give --yes, or answer yes on a terminal",
    )


def table_of(text: str) -> TableId:
    """Return the table that a `--table` option names."""
    try:
        return TableId.parse(text)
    except ValueError as error:
        raise RefusedError(str(error), where="--table", remedy="write database.table") from None


def say_done(name: PipelineName, screen: Screen, text: str) -> bool:
    """Show a command's result as one line, or as JSON."""
    form: dict[str, Any] = {"pipeline": str(name), "done": text}
    screen.result(form, [text])
    return True


def _say_state(run: Run, screen: Screen) -> None:
    """Show where the state is, if the file does not name it."""
    if run.servers.default_state is not None:
        screen.say(f"state: {run.servers.default_state} (the file names no state)")
