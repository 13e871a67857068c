"""Carrying out what was asked of a pipeline that nobody runs just now.

A continuous stream does it by itself. Else whoever asked, or the next bounded run, takes the
pipeline over, follows the log in its own process while the requests are carried out beside, catches
up with the log, and ends.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.jobs import JobEnd
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up


def carry_out(run: Run, *, on_tick: Callable[[], None] = lambda: None) -> JobEnd | None:
    """Catch up with the log and carry out every open request; None if there is none."""
    if not run.store.to_do(run.name):
        return None
    return catch_up(run, on_tick=on_tick)
