"""A pipeline's problems as the CDC page shows them: what was refused is first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import NOT_ADDABLE
from airflow_cdc_provider.core.identifiers import table_option
from airflow_cdc_provider.core.overview import PipelineOverview
from airflow_cdc_provider.views.error_facts import facts_of, remark, stopped_facts
from airflow_cdc_provider.views.freshness import late_error
from airflow_cdc_provider.views.outages import outage_error
from airflow_cdc_provider.views.remarks import refusal_of
from airflow_cdc_provider.views.status import PipelineStatus

Form = dict[str, Any]
REFUSED = "refused"
"""The field of a problem that ended the last try to begin."""
TROUBLES_SHOWN = 20
_RESUME = "`resume` with {option} brings it back"
_ADD = "`add` with {option} copies it from now on"
_VERIFY = "`verify` with {option} compares it again, and with `--repair` asks for what differs"
_RUN_AGAIN = "if it was killed, the next `run` goes on where it was"


def problems_of(status: PipelineStatus, seen: PipelineOverview) -> list[Form]:
    """Return a pipeline's problems, the most urgent first."""
    name = str(seen.name)
    return [
        *_refused(seen, name),
        *_doubts(status, name),
        *_outages(status, name),
        *_late(status, name),
        *_stored(seen, name),
        *_of_tables(seen, name),
        *_differing(seen, name),
        *_not_copied(seen, name),
    ]


def _error(error: CdcError, pipeline: str) -> Form:
    """Return an error of all of a pipeline as a problem of the page."""
    return {"table": "", "level": "error", **facts_of(error, pipeline=pipeline)}


def _refused(seen: PipelineOverview, name: str) -> Iterator[Form]:
    """Yield the error that ended the last try to begin."""
    refusal = refusal_of(seen.last_try)
    if refusal is not None:
        yield {**_error(refusal, name), REFUSED: True}


def _doubts(status: PipelineStatus, name: str) -> Iterator[Form]:
    """Yield a warning if the owner may be gone."""
    if status.doubt:
        what = f"nobody may be at work: {status.doubt}"
        yield remark("", what, _RUN_AGAIN, pipeline=name)


def _outages(status: PipelineStatus, name: str) -> Iterator[Form]:
    """Yield a pipeline's outages."""
    for outage in status.outages:
        yield _error(outage_error(outage, status.at_us), name)


def _late(status: PipelineStatus, name: str) -> Iterator[Form]:
    """Yield the error that the copy is too old, if it is."""
    error = late_error(status)
    if error is not None:
        yield _error(error, name)


def _stored(seen: PipelineOverview, name: str) -> Iterator[Form]:
    """Yield the error that ended the pipeline."""
    if seen.state.error:
        yield _error(seen.state.error.read(), name)


def _of_tables(seen: PipelineOverview, name: str) -> Iterator[Form]:
    """Yield the errors of single tables, then the tables that a person paused."""
    troubles, is_streamed = seen.troubles[:TROUBLES_SHOWN], seen.stream is not None
    for table, error in troubles:
        if error:
            facts = stopped_facts(error, table, is_streamed=is_streamed, pipeline=name)
            yield {"table": table, "level": "error", **facts}
    for table, error in troubles:
        if not error:
            what, remedy = "a person paused it", _RESUME.format(option=table_option(table))
            yield remark(table, what, remedy, pipeline=name)


def _differing(seen: PipelineOverview, name: str) -> Iterator[Form]:
    """Yield a warning for each table that had other rows at the sink when it was compared last."""
    for table in seen.differing[:TROUBLES_SHOWN]:
        what = "the last `verify` found other rows at the sink than at the source"
        yield remark(table, what, _VERIFY.format(option=table_option(table)), pipeline=name)


def _not_copied(seen: PipelineOverview, name: str) -> Iterator[Form]:
    """Yield a warning for each table that came after the plan, with what speaks against it."""
    refused = _not_addable(seen)
    for table in seen.not_copied[:TROUBLES_SHOWN]:
        what = "it came after the plan and is not copied"
        remedy = _ADD.format(option=table_option(table))
        found = refused.get(table)
        if found is not None:
            what += f", and `add` would be refused: {found['observed']}"
            remedy = f"{found['fix']}; then {remedy}" if found["fix"] else remedy
        yield remark(table, what, remedy, pipeline=name)


def _not_addable(seen: PipelineOverview) -> dict[str, Form]:
    """Return preflight's first finding against each table that came after the plan."""
    refused: dict[str, Form] = {}
    for found in () if seen.preflight is None else seen.preflight.form["findings"]:
        if found["why"].startswith(NOT_ADDABLE):
            refused.setdefault(found.get("only") or found["subject"], found)
    return refused
