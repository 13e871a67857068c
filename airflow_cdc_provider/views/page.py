"""Pipelines as the CDC page shows them: plain values, from the state store alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.overview import PipelineOverview, TableOverview
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.records import NoteKind, PipelineEvent, PipelineState, Sample
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.stopped_tables import with_way_back
from airflow_cdc_provider.state.reader import SqlStateReader
from airflow_cdc_provider.views.in_airflow import way_in_airflow
from airflow_cdc_provider.views.outages import driver_is_gone, outage_error, outages_of
from airflow_cdc_provider.views.remarks import refusal_of
from airflow_cdc_provider.views.requests import in_order, request_form
from airflow_cdc_provider.views.status import SILENT_S, PipelineStatus

Form = dict[str, Any]
_RESUME = "`resume` with --table {table} brings it back"
_ADD = "`add` with --table {table} copies it from now on"
_RUN_AGAIN = "if it was killed, the next `run` goes on where it was"
_REQUESTS_SHOWN = 50
_TROUBLES_SHOWN = 20


def unseen_row(name: str, error: CdcError) -> Form:
    """Return the row of a pipeline whose state cannot be looked at."""
    return {"pipeline": name, "summary": "cannot be looked at", "problem": error.to_json()}


def list_row(name: str, found: PipelineOverview | None, now_us: int) -> Form:
    """Return a pipeline's row; one that the store does not know has not run yet."""
    fresh = PipelineState(PipelineName(name), Wanted.RUN, Phase.NEW, 0)
    return _row(found or PipelineOverview(fresh), now_us)


def _row(seen: PipelineOverview, now_us: int) -> Form:
    state = seen.state
    status = PipelineStatus(
        state,
        (),
        seen.stream,
        (),
        now_us,
        owner_gone=is_gone(state.owner) or driver_is_gone(seen.outages, state.generation),
        noted_outages=outages_of(seen.outages, state.generation),
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
        "heartbeat_age_s": age_s,
        "stale": _is_stale(status),
        "held_up": bool(status.outages),
        **_rates_of(status, seen.samples, now_us),
        "tables": sum(seen.tables.values()),
        "consistent": seen.tables.get(TablePhase.CONSISTENT, 0),
        "stopped": sum(seen.tables.get(phase, 0) for phase in LEFT_ALONE),
        "open_requests": sum(seen.requests.values()),
        "waiting_requests": seen.requests.get(RequestStatus.WAITING, 0),
        "problem": None,
        "problems": [*_doubts(status), *_outages(status), *_problems(seen)],
    }


def _is_stale(status: PipelineStatus) -> bool:
    """Tell whether the state says that somebody is at work who is not heard of."""
    age_s = status.heartbeat_age_s
    is_silent = age_s is None or age_s > SILENT_S
    return bool(status.doubt) or (status.state.phase is Phase.STREAMING and is_silent)


def _doubts(status: PipelineStatus) -> list[Form]:
    what = f"nobody may be at work: {status.doubt}"
    return [_remark("", what, _RUN_AGAIN)] if status.doubt else []


def _outages(status: PipelineStatus) -> list[Form]:
    return [
        {"table": "", "level": "error", **_facts(outage_error(outage, status.at_us), "")}
        for outage in status.outages
    ]


def _problems(seen: PipelineOverview) -> list[Form]:
    refusal = refusal_of(seen.last_try)
    found = [] if refusal is None else [{"table": "", "level": "error", **_facts(refusal, "")}]
    found += (
        [{"table": "", "level": "error", **_told(seen.state.error, "")}] if seen.state.error else []
    )
    troubles = seen.troubles[:_TROUBLES_SHOWN]
    is_streamed = seen.stream is not None
    found += [
        {"table": table, "level": "error", **_stopped(error, table, is_streamed=is_streamed)}
        for table, error in troubles
        if error
    ]
    found += [
        _remark(table, "a person paused it", _RESUME) for table, error in troubles if not error
    ]
    found += [
        _remark(table, "it came after the plan and is not copied", _ADD)
        for table in seen.not_copied[:_TROUBLES_SHOWN]
    ]
    return found


def _remark(table: str, what: str, remedy: str) -> Form:
    """Return what is no error, and that people should know of."""
    told = remedy.format(table=table)
    facts = {"what": what, "remedy": told, "in_airflow": way_in_airflow(told)}
    return {"table": table, "level": "warning", **facts}


def _stopped(text: str, table: str, *, is_streamed: bool) -> Form:
    """Return a table's error; of one that is streamed with the way back."""
    return _facts(with_way_back(text, table), table) if is_streamed else _told(text, table)


def _told(text: str, table: str) -> Form:
    """Return an error's facts, and what to do in Airflow where its remedy names commands."""
    return _facts(CdcError.parse(text), table)


def _facts(error: CdcError, table: str) -> Form:
    way = way_in_airflow(error.remedy, error.where, error.what, table=table)
    return {**error.to_json(), "in_airflow": way}


def _rates_of(status: PipelineStatus, samples: Sequence[Sample], now_us: int) -> Form:
    """Return the rates of who is at work; of a stream that is not, nobody knows any."""
    found = rates(samples if status.is_owned and not status.doubt else (), now_us)
    return found if status.is_streaming else {**found, "changes_per_s": None}


def rates(samples: Sequence[Sample], now_us: int) -> Form:
    """Return changes and rows a second over the last minutes, None where nothing was told."""
    told = [each for each in samples if each.changes is not None]
    changes = None
    if len(told) > 1:
        first, last = told[0], told[-1]
        grown = (last.changes or 0) - (first.changes or 0)
        changes = max(0, grown) / ((last.at_us - first.at_us) / 1e6)
    seconds = (now_us - samples[0].at_us) / 1e6 if samples else 0.0
    rows = sum(each.rows for each in samples) / seconds if seconds > 0 else None
    return {"changes_per_s": changes, "rows_per_s": rows}


def pipeline_form(store: SqlStateReader, name: PipelineName, *, now_us: int, events: int) -> Form:
    """Return one pipeline: its row, tables, stream, requests and events."""
    found = store.overviews([name], now_us)
    seen = found[0] if found else None
    is_streamed = seen is not None and seen.stream is not None
    requests = in_order(store.requests(name))
    reading = [each for each in requests if each.status is RequestStatus.READING]
    return {
        **list_row(str(name), seen, now_us),
        "at_us": now_us,
        "generation": 0 if seen is None else seen.state.generation,
        "stream": _stream_form(seen),
        "log_reach": _noted(store, name, NoteKind.LOG_REACH),
        "preflight": _preflight_form(store, name),
        "table_list": [
            _table_form(table, reading, is_streamed=is_streamed)
            for table in store.table_overviews(name, now_us)
        ],
        "not_copied": [] if seen is None else list(seen.not_copied[:_TROUBLES_SHOWN]),
        "is_handed_off": store.is_handed_off(name),
        "requests": [request_form(each) for each in requests[:_REQUESTS_SHOWN]],
        "events": _event_forms(store.events(name, events)),
    }


def _stream_form(seen: PipelineOverview | None) -> Form | None:
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
    found = store.note(name, kind)
    return None if found is None else {**found.form, "at_us": found.at_us}


def _preflight_form(store: SqlStateReader, name: PipelineName) -> Form | None:
    """Return what preflight found last, each with its way in Airflow where its fix is a command."""
    form = _noted(store, name, NoteKind.PREFLIGHT)
    if form is None:
        return None
    findings = [{**found, "in_airflow": way_in_airflow(found["fix"])} for found in form["findings"]]
    return {**form, "findings": findings}


def _table_form(table: TableOverview, reading: Iterable[Request], *, is_streamed: bool) -> Form:
    return {
        "source": table.source,
        "sink": table.sink,
        "phase": table.phase.value,
        "planning_done": table.planning_done,
        "estimated_rows": table.estimated_rows,
        "rows": table.rows,
        "bytes": table.bytes,
        "inserts": table.inserts,
        "updates": table.updates,
        "deletes": table.deletes,
        "changed_us": table.changed_us,
        "finished": table.splits.get(SplitStatus.FINISHED, 0),
        "splits": sum(table.splits.values()),
        "by_request": table.planning_done and not table.splits,
        "strip": "".join(_cell(cell) * len([*same]) for cell, same in groupby(table.cells)),
        "error": _stopped(table.error, table.source, is_streamed=is_streamed)
        if table.error
        else None,
        "requests": [
            each.request_id
            for each in reading
            if table.source in {str(one) for one in each.scope.tables}
        ],
    }


def _cell(counts: Mapping[SplitStatus, int]) -> str:
    """Return one cell of a strip: x failed, r being read, else how much is read, 0 to 9."""
    if counts.get(SplitStatus.FAILED):
        return "x"
    if counts.get(SplitStatus.READING):
        return "r"
    return str(9 * counts.get(SplitStatus.FINISHED, 0) // max(1, sum(counts.values())))


def _event_forms(events: Iterable[PipelineEvent]) -> list[Form]:
    return [{"at_us": each.at_us, "level": each.level, "text": each.text} for each in events]


def sample_forms(samples: Iterable[Sample]) -> list[list[int | None]]:
    """Return samples as lists, for a plot: when, for how long, lag, changes, rows."""
    return [[each.at_us, each.step_s, each.lag_us, each.changes, each.rows] for each in samples]
