"""A pipeline that is wanted to run while nothing runs it, and nothing will."""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.views.page_problems import REFUSED
from airflow_cdc_provider.web.known import KnownDag

Form = dict[str, Any]
_RUN_NOW = "Run now on the pipeline's page, or a run of the DAG {dag_id}"
_SWITCH_ON = "switch the DAG {dag_id} on, or pause the pipeline"
_CLEAR = (
    "clear the tasks of the group {group} in the run {run_id} of the DAG {dag_id}; a new run would "
    "wait until that one ends"
)


def with_nobody(row: Form, dag: KnownDag) -> Form:
    """Return a pipeline's row, with a problem if it should run and no process will.

    It is behind what was refused, which says why none does, and before all else.
    One that never ran waits for its first run, and one that failed says why it does not run.
    """
    is_silent = bool(dag.over_in) and row.get("stale", False)
    is_wanted = row.get("wanted") == Wanted.RUN.value and (not row["owner"] or is_silent)
    is_wanted = is_wanted and row.get("ended") is None
    if not is_wanted or row["phase"] in {Phase.NEW.value, Phase.FAILED.value} or dag.has_run:
        return row
    if dag.is_paused:
        why, remedy = "its DAG is paused", _SWITCH_ON
    elif dag.over_in:
        why = "its tasks in the run of its DAG have ended, and those of other pipelines have not"
        remedy = _CLEAR
    elif not dag.begins_alone:
        why, remedy = "its DAG has no schedule, and no run of it is under way", _RUN_NOW
    else:
        return row
    problem = {
        "table": "",
        "level": "error",
        "what": f"it is wanted to run, and nothing runs it: {why}",
        "remedy": remedy.format(dag_id=dag.dag_id, group=dag.group, run_id=dag.over_in),
    }
    refused = [each for each in row["problems"] if REFUSED in each]
    others = [each for each in row["problems"] if REFUSED not in each]
    return {**row, "problems": [*refused, problem, *others]}
