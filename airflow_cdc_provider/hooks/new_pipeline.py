"""What a new pipeline's form asks of servers, by Airflow's connections.

Servers' libraries are loaded with the first look: the API server may never need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.hooks.bounded_looks import BoundedLooks
from airflow_cdc_provider.hooks.dsn import AirflowDsns
from airflow_cdc_provider.views.in_airflow import way_in_airflow

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.drafting import Lookup

Form = dict[str, Any]
LOOKS = BoundedLooks(most=6, limit_s=60.0)


def tables_of(source: str) -> Form:
    """Return the facts about a source and its tables, as JSON."""
    from airflow_cdc_provider.pipeline.steps.drafting import tables_form  # noqa: PLC0415

    return LOOKS.make(lambda: tables_form(source, _lookup()), where=f"connection {source}")


def file_of(answers: Form) -> Form:
    """Return the drafted pipeline file of a person's answers, and what it picks, as JSON."""
    from airflow_cdc_provider.pipeline.steps.drafting import Answers, file_form  # noqa: PLC0415

    asked = Answers(**answers)
    return LOOKS.make(lambda: file_form(asked, _lookup()), where=f"connection {asked.source}")


def rights_of(conn_id: str, part: Part, databases: Sequence[str]) -> Form:
    """Return the GRANT statements that a connection's account needs, as JSON."""
    from airflow_cdc_provider.pipeline.steps.drafting import rights_form  # noqa: PLC0415

    return LOOKS.make(
        lambda: rights_form(conn_id, part, databases, _lookup()), where=f"connection {conn_id}"
    )


def check_of(answers: Form, in_use_by: Sequence[str] = ()) -> Form:
    """Return what `check` finds in the drafted file, with what to do in Airflow, as JSON.

    `in_use_by` are the pipelines that have its name, in words.
    """
    from airflow_cdc_provider.pipeline.steps.drafting import Answers, check_form  # noqa: PLC0415

    asked = Answers(**answers)
    form = LOOKS.make(
        lambda: check_form(asked, _lookup(), in_use_by), where=f"check of {asked.name}"
    )
    findings = [{**each, "in_airflow": way_in_airflow(each["fix"])} for each in form["findings"]]
    return {**form, "findings": findings}


def _lookup() -> Lookup:
    """Return the finder of DSNs in Airflow's connections."""
    from airflow_cdc_provider.pipeline.steps.drafting import Lookup  # noqa: PLC0415

    return Lookup(AirflowDsns())
