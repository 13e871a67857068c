"""A person who answers what a task asks: over Airflow's REST API, as the UI does."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.testclient import TestClient

_PATIENCE_S = 120.0


@contextmanager
def answering(dag_id: str, task_id: str, option: str) -> Iterator[dict[str, Any]]:
    """Answer one question of a DAG that runs meanwhile; what was asked is in the given dict."""
    asked: dict[str, Any] = {}
    person = threading.Thread(target=_answer, args=(dag_id, task_id, option, asked))
    person.start()
    try:
        yield asked
    finally:
        person.join()


def _answer(dag_id: str, task_id: str, option: str, asked: dict[str, Any]) -> None:
    with _client() as client:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            path = f"/api/v2/dags/{dag_id}/dagRuns/~/hitlDetails"
            waiting = client.get(path, params={"response_received": False}).json()["hitl_details"]
            mine = [each for each in waiting if each["task_instance"]["task_id"] == task_id]
            if mine and mine[0]["task_instance"]["state"] == "awaiting_input":
                run_id = mine[0]["task_instance"]["dag_run_id"]
                path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1"
                body = {"chosen_options": [option], "params_input": {}}
                answer = client.patch(f"{path}/hitlDetails", json=body)
                assert answer.status_code == 200, answer.text
                asked |= mine[0]
                return
            time.sleep(0.5)


@contextmanager
def _client() -> Iterator[TestClient]:
    from airflow.api_fastapi.app import create_app, get_auth_manager  # noqa: PLC0415 - slow
    from airflow.api_fastapi.auth.managers.simple.user import (  # noqa: PLC0415
        SimpleAuthManagerUser,
    )
    from fastapi.testclient import TestClient  # noqa: PLC0415

    with TestClient(create_app(apps="core"), base_url="http://testserver") as client:
        person = SimpleAuthManagerUser(username="ann", role="ADMIN")
        token = get_auth_manager().generate_jwt(person)
        client.headers["Authorization"] = f"Bearer {token}"
        yield client
