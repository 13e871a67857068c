"""In which of few states a pipeline is, by its state store, its DAG and its DAG's newest run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.web.known import KnownDag
from airflow_cdc_provider.web.runs import DagRuns

Form = dict[str, Any]
_READS = frozenset({Phase.PLANNING.value, Phase.SNAPSHOT.value})
_LAST_RUN_FAILED = "the last run of its DAG failed"


class Standing(StrEnum):
    """The overall state of a pipeline, in few words."""

    UNREADABLE = "cannot be looked at"
    BROKEN = "broken file"
    FAILED = "failed"
    HELD_UP = "held up"
    SILENT = "not heard of"
    PAUSED = "paused"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    SNAPSHOT = "snapshot"
    STREAMING = "streaming"
    RUNNING = "running"
    NEVER_RUN = "never run"
    TO_START = "to be started"
    CAUGHT_UP = "caught up"
    ENDED = "ended"


def standing_of(row: Form, dag: KnownDag, runs: DagRuns) -> Standing:
    """Return the overall state of a pipeline by its row, DAG and runs."""
    if row["phase"] == Phase.FAILED.value:
        return Standing.FAILED
    if row["wanted"] == Wanted.STOP.value:
        return Standing.STOPPING if row["owner"] else Standing.PAUSED
    if row["held_up"]:
        return Standing.HELD_UP
    if row["stale"]:
        return Standing.SILENT
    if row["owner"]:
        return _at_work(row)
    return _at_rest(row, dag, runs)


def _at_work(row: Form) -> Standing:
    """Return the overall state of a pipeline that a process runs."""
    if row["wanted"] == Wanted.RESTART.value:
        return Standing.RESTARTING
    if row["phase"] in _READS:
        return Standing.SNAPSHOT
    return Standing.STREAMING if row["phase"] == Phase.STREAMING.value else Standing.RUNNING


def _at_rest(row: Form, dag: KnownDag, runs: DagRuns) -> Standing:
    """Return the overall state of a pipeline that no process runs."""
    if dag.has_run:
        return Standing.RUNNING
    if runs.state == "failed":
        return Standing.FAILED
    if row["ended"] is not None:
        return Standing.ENDED
    if row["phase"] == Phase.NEW.value:
        return Standing.NEVER_RUN
    if dag.over_in or dag.is_paused or not dag.begins_alone or row["phase"] in _READS:
        return Standing.TO_START
    return Standing.CAUGHT_UP


def with_failed_run(row: Form, runs: DagRuns) -> Form:
    """Return a row, with a problem added if its last run failed without another error."""
    is_at_rest = not row["owner"] and not row["dag_has_run"] and row["wanted"] != "stop"
    has_error = any(each["level"] == "error" for each in row["problems"])
    if runs.state != "failed" or not is_at_rest or has_error:
        return row
    problem = {
        "table": "",
        "level": "error",
        "what": _LAST_RUN_FAILED,
        "where": f"run {runs.run_id}",
        "remedy": "look at the log of the task that failed, then begin a run again",
    }
    return {**row, "problems": [problem, *row["problems"]]}
