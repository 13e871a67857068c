"""Who may do what, and from where.

Each route asks Airflow's auth manager about the DAG that runs the pipeline: whoever may read its
tasks looks, whoever may run it writes wishes and requests. Airflow's cookie goes along with any
request of a browser, so a write must come from our own page: it needs a body of JSON, which no form
of another site can send, and browsers say from which site a request comes.

The form of a new pipeline makes the API server log in to databases with the passwords of
connections. So it is for those who may add connections, and each one must be readable to them.

Airflow's own dependency for an auth manager needs the main app's state, which a mounted app does
not have; so it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    ConnectionDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_connection,
    requires_access_dag,
    requires_access_view,
)
from airflow.api_fastapi.logging.decorators import action_logging
from airflow.models.connection import Connection  # noqa: TID251 - the API server's own tables
from airflow.models.dag import DagModel  # noqa: TID251
from fastapi import Depends, Header, HTTPException, status
from fastapi.params import Depends as DependsParameter

SEES_PLUGINS = Depends(requires_access_view(AccessView.PLUGINS))
READS_DAG = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE))
READS_LOGS = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))
RUNS_DAG = Depends(requires_access_dag(method="POST", access_entity=DagAccessEntity.RUN))
ADDS_CONNECTIONS = Depends(requires_access_connection(method="POST"))
_FROM_HERE = frozenset({"same-origin", "none"})


def require_own_page(
    content_type: Annotated[str, Header()] = "",
    sec_fetch_site: Annotated[str, Header()] = "none",
) -> None:
    """Refuse a request that a foreign site makes the browser send (CSRF)."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "send a body of JSON")
    if sec_fetch_site not in _FROM_HERE:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "not from another site")


def writes(event: str) -> list[DependsParameter]:
    """Return the dependencies of a route that writes: permission, own page, audit log."""
    return [RUNS_DAG, Depends(require_own_page), Depends(action_logging(event))]


def looks(event: str) -> list[DependsParameter]:
    """Return the dependencies of a route that queries servers: permission, own page, audit log."""
    return [ADDS_CONNECTIONS, Depends(require_own_page), Depends(action_logging(event))]


def may_add_connections(user: GetUserDep) -> bool:
    """Tell whether a user may add connections, and so may have servers queried."""
    manager = get_auth_manager()
    return manager.is_authorized_connection(method="POST", user=user, details=ConnectionDetails())


def readable_connections(user: GetUserDep) -> set[str]:
    """Return the ids of the connections in Airflow's database that a user may read."""
    return get_auth_manager().get_authorized_connections(user=user, method="GET")


def require_readable(user: GetUserDep, *conn_ids: str) -> None:
    """Refuse connections that a user may not read, wherever Airflow keeps them."""
    manager = get_auth_manager()
    for conn_id in conn_ids:
        details = ConnectionDetails(conn_id=conn_id, team_name=Connection.get_team_name(conn_id))
        if not manager.is_authorized_connection(method="GET", user=user, details=details):
            raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def readable_dags(user: GetUserDep) -> set[str]:
    """Return the ids of the DAGs that a user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def may_answer(user: GetUserDep, dag_id: str, *, method: ResourceMethod = "PUT") -> bool:
    """Tell whether a user may answer the approvals of a DAG; with GET, see them."""
    return _may(user, dag_id, method, DagAccessEntity.HITL_DETAIL)


def is_asked(user: GetUserDep, assignees: Collection[str]) -> bool:
    """Tell whether a task asks this user for approval; without assignees it asks all."""
    if not assignees:
        return True
    manager = get_auth_manager()
    return manager.is_authorized_hitl_task(assigned_users=set(assignees), user=user)


def may_read_logs(user: GetUserDep, dag_id: str) -> bool:
    """Tell whether a user may read the logs of a DAG's tasks."""
    return _may(user, dag_id, "GET", DagAccessEntity.TASK_LOGS)


def may_run(user: GetUserDep, dag_id: str) -> bool:
    """Tell whether a user may trigger a DAG."""
    return _may(user, dag_id, "POST", DagAccessEntity.RUN)


def _may(user: GetUserDep, dag_id: str, method: ResourceMethod, entity: DagAccessEntity) -> bool:
    """Ask Airflow's auth manager about a DAG."""
    return get_auth_manager().is_authorized_dag(
        method=method,
        access_entity=entity,
        details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)),
        user=user,
    )
