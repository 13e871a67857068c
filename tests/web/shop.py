"""A shop's pipelines as Airflow knows them, with a state that is made by hand, and who asks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.pipeline.job_logs import default_folder
from airflow_cdc_provider.state.store import SqlStateStore
from tests.behaviours.state_behaviours import at, plan_of

if TYPE_CHECKING:
    from fastapi.testclient import TestClient
    from httpx2 import Response

SHOP = PipelineName("web_shop")
SHOP_DAG = "web_shop__sync"
ROLES = ("VIEWER", "USER", "OP", "ADMIN")
PIPELINE = """
pipeline: {name}
source: {{conn_id: web_source, tables: ["shop.*"], server_id: {server_id}}}
sink: {{conn_id: web_sink, route: {{"shop.*": "copy.*"}}}}
state: {{{state}}}
stream: {{mode: {mode}}}
"""


def server_ids(name: str) -> str:
    """Return ids that no other pipeline of the tests has."""
    first = 1000 + 100 * (crc32(name.encode()) % 1_000_000)
    return f"{first}-{first + 99}"


def know_dags(dags: Iterable[Any]) -> None:
    """Have Airflow know DAGs, as its DAG processor would."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: PLC0415
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db  # noqa: PLC0415

    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(os.devnull)
    for dag in dags:
        bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)


def pipeline_dags(
    folder: Path,
    names: Sequence[str],
    *,
    state: str = "conn_id: web_state",
    only_sync: bool = False,
    mode: str = "continuous",
    more: str = "",
) -> None:
    """Have Airflow know the DAGs of pipelines, as its DAG processor would."""
    from airflow_cdc_provider.operators.dags import cdc_dags  # noqa: PLC0415

    for name in names:
        path = folder / f"{name}.yaml"
        text = PIPELINE.format(name=name, state=state, server_id=server_ids(name), mode=mode)
        path.write_text(f"{text}{more}", encoding="utf-8")
    made = cdc_dags(folder, {})
    if only_sync:
        made = {dag_id: dag for dag_id, dag in made.items() if dag_id.endswith("__sync")}
    know_dags(made.values())


@dataclass
class Page:
    """The app, asked as somebody."""

    client: TestClient
    tokens: dict[str, str]

    def ask(self, method: str, path: str, *, role: str | None = "ADMIN", **more: Any) -> Response:
        """Send a request; a role of None is nobody."""
        headers = dict(more.pop("headers", {}))
        if role is not None:
            headers["Authorization"] = f"Bearer {self.tokens[role]}"
        self.client.cookies.clear()
        answer: Response = self.client.request(method, f"/cdc{path}", headers=headers, **more)
        return answer

    def get(self, path: str, *, role: str | None = "ADMIN", **more: Any) -> Response:
        return self.ask("GET", path, role=role, **more)

    def post(self, path: str, body: Any, *, role: str | None = "ADMIN", **more: Any) -> Response:
        return self.ask("POST", path, role=role, json=body, **more)

    def airflow(self, method: str, path: str, body: Any = None) -> Response:
        """Ask Airflow's own API, as an administrator."""
        headers = {"Authorization": f"Bearer {self.tokens['ADMIN']}"}
        self.client.cookies.clear()
        answer: Response = self.client.request(method, path, json=body, headers=headers)
        return answer

    def row(self, name: str) -> dict[str, Any]:
        """Return a pipeline's row of the list."""
        rows = self.get("/api/pipelines").json()["pipelines"]
        (found,) = [row for row in rows if row["pipeline"] == name]
        return dict(found)


def streaming(store: SqlStateStore, name: PipelineName = SHOP, **told: Any) -> int:
    """Bring a pipeline of one table to where its stream runs; returns the generation."""
    generation = store.take_over(name, "the test").generation
    store.start_plan(name, generation, "plan-1", [plan_of()])
    phase = store.ensure(name).phase
    for to in (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING):
        store.move(name, generation, expected=phase, to=to)
        phase = to
    beat: dict[str, Any] = {"position": at(4), "heartbeat_us": store.now_us(), **told}
    store.beat(name, generation, StreamState(**beat))
    return generation


def job_log_of(store: SqlStateStore, generation: int, text: str) -> Path:
    """Leave the log of a job of the shop's pipeline where this machine's jobs have theirs."""
    folder = default_folder() / str(SHOP)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{SHOP}-stream-{generation}-0a1b2c3d.log"
    log.write_text(text)
    told_job_log(store, generation, log)
    return log


def told_job_log(store: SqlStateStore, generation: int, log: Path, host: str = "worker-7") -> None:
    """Note in the events that a job was started whose log is somewhere."""
    started = f"stream job started under generation {generation} on local[*], log {log}"
    store.tell(SHOP, f"{started} on host {host}" if host else started)


ESTIMATE = """Rows of the pipeline **web_shop** are read again while its tables flow on.

- ` shop.orders `: about 98,720 rows at the source, about 98,000 rows at the sink"""


def asking_run(page: Page, dag_id: str, *, assignees: Sequence[str] = ()) -> str:
    """Begin a run of a DAG and bring it to where its task `approve` waits for a person."""
    from airflow.models.hitl import HITLDetail  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415, TID251
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    runs = f"/api/v2/dags/{dag_id}/dagRuns"
    run_id = str(page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"])
    with create_session() as session:
        task = (
            session.query(TaskInstance)
            .filter_by(dag_id=dag_id, run_id=run_id, task_id="approve")
            .one()
        )
        task.state = "awaiting_input"
        task.next_method = "execute_complete"
        asked = HITLDetail(
            ti_id=task.id,
            options=["Approve", "Reject"],
            subject="Read rows of web_shop again?",
            body=ESTIMATE,
            multiple=False,
            params={},
            assignees=[{"id": each, "name": each} for each in assignees],
        )
        session.add(asked)
    return run_id


def answer_of(dag_id: str, run_id: str) -> list[str] | None:
    """Return what was answered to the task that asks."""
    from airflow.models.hitl import HITLDetail  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415, TID251
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    with create_session() as session:
        task = session.query(TaskInstance).filter_by(
            dag_id=dag_id, run_id=run_id, task_id="approve"
        )
        asked = session.get(HITLDetail, task.one().id)
        assert asked is not None
        return asked.chosen_options


def end_run(page: Page, dag_id: str, run_id: str) -> None:
    """Take a run away, so that no other test sees it."""
    page.airflow("DELETE", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
