"""Pipelines as the CDC page shows them: plain values, from the state store alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.job_log import JobLog
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, Phase, TablePhase, Wanted
from airflow_cdc_provider.core.overview import PipelineOverview
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.records import NoteKind, PipelineEvent, PipelineState, Sample
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.spark_place import SparkPlace
from airflow_cdc_provider.state.reader import SqlStateReader
from airflow_cdc_provider.views.ended import ended_of
from airflow_cdc_provider.views.event_forms import event_forms
from airflow_cdc_provider.views.in_airflow import way_in_airflow
from airflow_cdc_provider.views.outages import driver_is_gone, outages_of
from airflow_cdc_provider.views.page_problems import TROUBLES_SHOWN, problems_of
from airflow_cdc_provider.views.page_tables import snapshot_form, table_forms, with_waiting
from airflow_cdc_provider.views.remarks import conflicts_of, published_of
from airflow_cdc_provider.views.request_text import in_order, request_form
from airflow_cdc_provider.views.started import started_of
from airflow_cdc_provider.views.status import SILENT_S, PipelineStatus
from airflow_cdc_provider.views.throttle import throttle_of

Form = dict[str, Any]
UNSEEN = "cannot be looked at"
_REQUESTS_SHOWN = 50


def unseen_row(name: str, error: CdcError) -> Form:
    """Return the page's row of a pipeline whose state cannot be read."""
    problem = error.to_json()
    return {"pipeline": name, "summary": UNSEEN, "problem": problem, "problems": []}


def list_row(
    name: str, found: PipelineOverview | None, now_us: int, freshness_s: int | None = None
) -> Form:
    """Return the page's row of a pipeline; one that the store does not know has not run yet."""
    fresh = PipelineState(PipelineName(name), Wanted.RUN, Phase.NEW, 0)
    return _row(found or PipelineOverview(fresh), now_us, freshness_s)


def _row(seen: PipelineOverview, now_us: int, freshness_s: int | None) -> Form:
    """Return a row of the page by a pipeline's overview."""
    state = seen.state
    status = PipelineStatus(
        state,
        (),
        seen.stream,
        (),
        now_us,
        owner_gone=is_gone(state.owner) or driver_is_gone(seen.outages, state.generation),
        noted_outages=outages_of(seen.outages, state.generation),
        freshness_s=freshness_s,
        ended=ended_of(seen.ended, state),
        started=started_of(seen.started),
        published_us=published_of(seen.published),
    )
    age_s = status.heartbeat_age_s
    return {
        "pipeline": str(state.name),
        "summary": status.summary,
        "phase": state.phase.value,
        "wanted": state.wanted.value,
        "owner": state.owner if status.is_owned else "",
        "lag_s": status.lag_s,
        "last_lag_s": status.last_lag_s,
        "copy_age_s": status.copy_age_s,
        "published_age_s": status.published_age_s,
        "freshness_s": freshness_s,
        "late": status.is_late,
        "ended": None if status.ended is None else status.ended.to_json(),
        "started": None if status.started is None else status.started.to_json(),
        "heartbeat_age_s": age_s,
        "stale": _is_stale(status),
        "held_up": bool(status.outages),
        "waiting_tables": sorted(status.waiting_tables),
        **_rates_of(status, seen.samples, now_us),
        "tables": sum(seen.tables.values()),
        "consistent": seen.tables.get(TablePhase.CONSISTENT, 0),
        "stopped": sum(seen.tables.get(phase, 0) for phase in LEFT_ALONE),
        "open_requests": sum(seen.requests.values()),
        "waiting_requests": seen.requests.get(RequestStatus.WAITING, 0),
        "conflicts": conflicts_of(seen.conflicts),
        "problem": None,
        "problems": problems_of(status, seen),
    }


def _is_stale(status: PipelineStatus) -> bool:
    """Tell whether a process should own the pipeline but has not been heard from."""
    age_s = status.heartbeat_age_s
    is_silent = age_s is None or age_s > SILENT_S
    return bool(status.doubt) or (status.state.phase is Phase.STREAMING and is_silent)


def _rates_of(status: PipelineStatus, samples: Sequence[Sample], now_us: int) -> Form:
    """Return the rates of a pipeline that a process runs; None without one."""
    found = rates(samples if status.is_owned and not status.doubt else (), now_us)
    return found if status.is_streaming else {**found, "changes_per_s": None}


def rates(samples: Sequence[Sample], now_us: int) -> Form:
    """Return changes and rows a second over the last minutes, None where not known."""
    told = [each for each in samples if each.changes is not None]
    changes = None
    if len(told) > 1:
        first, last = told[0], told[-1]
        grown = (last.changes or 0) - (first.changes or 0)
        changes = max(0, grown) / ((last.at_us - first.at_us) / 1e6)
    seconds = (now_us - samples[0].at_us) / 1e6 if samples else 0.0
    rows = sum(each.rows for each in samples) / seconds if seconds > 0 else None
    return {"changes_per_s": changes, "rows_per_s": rows}


def pipeline_form(
    store: SqlStateReader,
    name: PipelineName,
    *,
    now_us: int,
    events: int,
    freshness_s: int | None = None,
) -> Form:
    """Return all that the page shows of one pipeline: row, tables, stream, requests, events."""
    found = store.overviews([name], now_us)
    seen = found[0] if found else None
    is_streamed = seen is not None and seen.stream is not None
    requests = in_order(store.requests(name))
    tables = store.table_overviews(name, now_us)
    row = list_row(str(name), seen, now_us, freshness_s)
    generation = 0 if seen is None else seen.state.generation
    of_jobs = store.job_events(name, generation)
    throttle = throttle_of(
        store.note(name, NoteKind.THROTTLED),
        store.note(name, NoteKind.THROTTLE),
        generation,
        is_owned=bool(row["owner"]),
    )
    is_throttled = throttle is not None and bool(throttle.closed_by)
    forms = table_forms(
        tables,
        requests,
        store.note(name, NoteKind.VERIFIED),
        is_streamed=is_streamed,
        pipeline=str(name),
        started=None if seen is None else started_of(seen.started, requests),
    )
    return {
        **row,
        "throttle": None if throttle is None else throttle.to_json(),
        "at_us": now_us,
        "generation": generation,
        "spark": _spark_form(of_jobs, generation),
        "job_log": job_log_form(of_jobs, generation),
        "stream": _stream_form(seen),
        "log_reach": _noted(store, name, NoteKind.LOG_REACH),
        "preflight": _preflight_form(store, name),
        "table_list": with_waiting(forms, row["waiting_tables"]),
        "snapshot": snapshot_form(
            row["phase"],
            tables,
            () if seen is None else seen.samples,
            now_us,
            is_throttled=is_throttled,
        ),
        "not_copied": [] if seen is None else list(seen.not_copied[:TROUBLES_SHOWN]),
        "is_handed_off": store.is_handed_off(name),
        "requests": [request_form(each) for each in requests[:_REQUESTS_SHOWN]],
        "events": event_forms(store.events(name, events)),
    }


def _stream_form(seen: PipelineOverview | None) -> Form | None:
    """Return the stream's state as JSON, None before there is one."""
    stream = None if seen is None else seen.stream
    if stream is None:
        return None
    return {
        "position": str(stream.position),
        "source_end": None if stream.source_end is None else str(stream.source_end),
        "at_end": stream.source_end is not None and stream.position.reaches(stream.source_end),
        "changes": stream.changes,
        "transactions": stream.transactions,
        "inconsistent": [str(table) for table in stream.inconsistent],
    }


def _noted(store: SqlStateReader, name: PipelineName, kind: NoteKind) -> Form | None:
    """Return a note of a pipeline as JSON, None if there is none."""
    found = store.note(name, kind)
    return None if found is None else {**found.form, "at_us": found.at_us}


def _preflight_form(store: SqlStateReader, name: PipelineName) -> Form | None:
    """Return preflight's last findings as JSON, with what to do in Airflow."""
    form = _noted(store, name, NoteKind.PREFLIGHT)
    if form is None:
        return None
    findings = [
        {**found, "in_airflow": way_in_airflow(found["fix"], pipeline=str(name))}
        for found in form["findings"]
    ]
    return {**form, "findings": findings}


def _spark_form(events: Sequence[PipelineEvent], generation: int) -> Form | None:
    """Return the Spark application of a generation as JSON, None if there is none."""
    place = SparkPlace.find(events, generation)
    if place is None:
        return None
    return {"application": place.application, "generation": generation, "ui": place.ui}


def job_log_form(events: Sequence[PipelineEvent], generation: int) -> Form | None:
    """Return where the log of a generation's newest job is as JSON, None if it is not known."""
    found = JobLog.find(events, generation)
    return None if found is None else {"path": found.path, "host": found.host}


def sample_forms(samples: Iterable[Sample]) -> list[list[int | None]]:
    """Return samples as lists for a plot: time, seconds, lag, changes, rows."""
    return [[each.at_us, each.step_s, each.lag_us, each.changes, each.rows] for each in samples]
