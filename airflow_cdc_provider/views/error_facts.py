"""Errors and remarks as plain values, with what to do in Airflow where a remedy names commands."""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.stopped_tables import with_way_back
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.views.in_airflow import way_in_airflow

Form = dict[str, Any]


def facts_of(error: CdcError, table: str = "", *, pipeline: str = "") -> Form:
    """Return an error as JSON, with what to do in Airflow."""
    told = (error.remedy, error.where, error.what)
    way = way_in_airflow(*told, table=table, pipeline=pipeline)
    return {**error.to_json(), "in_airflow": way}


def stored_facts(error: StoredError, table: str = "", *, pipeline: str = "") -> Form:
    """Return a stored error as JSON, with what to do in Airflow."""
    return facts_of(error.read(), table, pipeline=pipeline)


def stopped_facts(error: StoredError, table: str, *, is_streamed: bool, pipeline: str = "") -> Form:
    """Return a table's error as JSON; if it is streamed, with how the table comes back."""
    told = with_way_back(error, table) if is_streamed else error.read()
    return facts_of(told, table, pipeline=pipeline)


def remark(table: str, what: str, remedy: str, *, pipeline: str = "") -> Form:
    """Return a warning as JSON, with what to do in Airflow."""
    way = way_in_airflow(remedy, pipeline=pipeline)
    facts = {"what": what, "remedy": remedy, "in_airflow": way}
    return {"table": table, "level": "warning", **facts}
