"""Why a task refused what a form of the page asked for: the form shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import Context

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.views.error_facts import facts_of


@contextmanager
def told_to_page(context: Context, pipeline: str) -> Iterator[None]:
    """Keep why the block was refused, by the key `refused` of the task's XCom."""
    try:
        yield
    except CdcError as error:
        context["ti"].xcom_push(key="refused", value=facts_of(error, pipeline=pipeline))
        raise
