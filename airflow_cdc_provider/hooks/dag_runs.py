"""Beginning a run of the DAG that runs a pipeline, by Airflow's own database.

For Airflow's command line, which may use that database; tasks may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from getpass import getuser
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError

_STREAMING = "CdcStreamOperator"
_UNENDED = ("queued", "running")


def begin_run(name: str, path: Path) -> str:
    """Begin a run of the DAG that runs a pipeline, unless one is under way; return what came of it.

    It is the DAG whose stream task has the pipeline's file.
    """
    found = _dags_of(name, path)
    if not found:
        return (
            f"Airflow knows no DAG that runs {path}, so no run begins: make one by cdc_dags, or "
            "wait until the DAG processor has read it."
        )
    if len(found) > 1:
        return f"Several DAGs run it, so none is begun: trigger one of {', '.join(sorted(found))}."
    ((dag_id, is_paused),) = found.items()
    if is_paused:
        return (
            f"Its DAG {dag_id} is off, so no run begins: `airflow dags unpause {dag_id}`, then "
            f"`airflow dags trigger {dag_id}`."
        )
    run_id = _unended(dag_id)
    if run_id is not None:
        return f"Run {run_id} of {dag_id} is under way."
    return f"Run {_trigger(dag_id)} of {dag_id} begins."


def _dags_of(name: str, path: Path) -> dict[str, bool]:
    """Return the DAGs whose stream task has the file, and whether each is off."""
    from airflow.models.dag import DagModel, DagTag  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.models.serialized_dag import SerializedDagModel  # noqa: PLC0415, TID251
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    with create_session() as session:
        tagged = session.query(DagTag.dag_id).filter(DagTag.name == name)
        known = session.query(DagModel.dag_id, DagModel.is_paused).filter(
            DagModel.dag_id.in_(tagged), DagModel.is_stale.is_(False)
        )
        paused = {dag_id: bool(is_paused) for dag_id, is_paused in known}
        dags = SerializedDagModel.get_latest_serialized_dags(dag_ids=[*paused], session=session)
        return {dag.dag_id: paused[dag.dag_id] for dag in dags if _runs(dag.data or {}, path)}


def _runs(data: dict[str, Any], path: Path) -> bool:
    return any(Path(file).resolve() == path.resolve() for file in _files(_tasks(data)))


def _tasks(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for encoded in data.get("dag", {}).get("tasks", ()):
        yield encoded.get("__var", encoded)


def _files(tasks: Iterable[dict[str, Any]]) -> Iterator[str]:
    for task in tasks:
        if task.get("task_type") == _STREAMING:
            yield str(task.get("pipeline", ""))


def _unended(dag_id: str) -> str | None:
    from airflow.models.dagrun import DagRun  # noqa: PLC0415, TID251 - Airflow's own table
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    with create_session() as session:
        mine = session.query(DagRun.run_id).filter(DagRun.dag_id == dag_id)
        found = mine.filter(DagRun.state.in_(_UNENDED)).first()
        return None if found is None else str(found[0])


def _trigger(dag_id: str) -> str:
    from airflow.api.client import get_current_api_client  # noqa: PLC0415
    from airflow.sdk.exceptions import AirflowException  # noqa: PLC0415

    try:
        made = get_current_api_client().trigger_dag(dag_id=dag_id, triggering_user_name=getuser())
    except AirflowException as error:
        raise CdcError(
            f"Airflow did not begin a run of {dag_id}: {error}",
            where=f"DAG {dag_id}",
            risk=NOTHING_CHANGED,
            remedy="trigger it in Airflow",
        ) from error
    return str((made or {}).get("dag_run_id", ""))
