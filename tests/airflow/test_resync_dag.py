"""`<pipeline>__resync` from its form to the rows, in a real Airflow and on real servers."""

from __future__ import annotations

import itertools
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.operators.resync_dag import resync_dag
from tests.airflow.asking import Copied, copied, task_context
from tests.airflow.shop import known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import DAG

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]
_days = itertools.count()


class Ran:
    """One run of the DAG, and what its tasks returned."""

    def __init__(self, dag: DAG, **conf: Any) -> None:
        day = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=next(_days))
        run = dag.test(logical_date=day, run_conf=conf)
        self.state = str(run.state)
        tasks = run.get_task_instances()
        self.states = {task.task_id: str(task.state) for task in tasks}
        self.xcom = {task.task_id: task.xcom_pull(task_ids=task.task_id) for task in tasks}


@pytest.fixture(scope="module")
def shop(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    airflow_db: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    with copied(mysql_server, mysql_sink, tmp_path_factory.mktemp("resync"), "resync") as made:
        yield made


@pytest.fixture(scope="module")
def stored(shop: Copied) -> None:
    known(made(shop))


@pytest.fixture
def dag(shop: Copied, stored: None) -> DAG:
    """A fresh one: a run in this process leaves its parameters in the DAG it was made with."""
    return made(shop)


def made(shop: Copied) -> DAG:
    return resync_dag(shop.path, default_args={"retry_delay": 0, "retries": 1})


def requests_of(shop: Copied) -> tuple[Request, ...]:
    with shop.opened() as run:
        return run.store.requests(run.name)


def test_a_dry_run_ends_after_the_estimate_and_asks_nothing(shop: Copied, dag: DAG) -> None:
    shop.drift()
    before = requests_of(shop)
    ran = Ran(dag, tables=[shop.table])
    assert ran.states == {
        "check": "success",
        "estimate": "success",
        "approve": "skipped",
        "resync": "skipped",
    }
    (told,) = ran.xcom["estimate"]["tables"]
    ((rows,),) = shop.shop.sink.execute(
        "SELECT COUNT(*) FROM orders", database=shop.shop.sink_database
    )
    assert (told["table"], told["source_rows"], told["sink_rows"]) == (shop.table, 3000, rows)
    assert told["bytes"] > 0
    assert requests_of(shop) == before
    assert not shop.is_equal


def test_rows_that_are_wrong_are_right_after_a_run(shop: Copied, dag: DAG) -> None:
    shop.drift()
    ran = Ran(dag, tables=[shop.table], dry_run=False)
    assert set(ran.states.values()) == {"success"}
    assert ran.xcom["resync"]["rows"] == 3000
    assert shop.is_equal


def test_a_range_of_keys_is_all_that_is_read(shop: Copied, dag: DAG) -> None:
    Ran(made(shop), tables=[shop.table], dry_run=False)
    shop.shop.sink.execute(
        "UPDATE orders SET total = -1 WHERE id IN (5, 99, 100)", database=shop.shop.sink_database
    )
    ran = Ran(dag, tables=[shop.table], from_key="50", to_key="100", dry_run=False)
    assert ran.xcom["resync"]["rows"] == 50
    wrong = shop.shop.sink.execute(
        "SELECT id FROM orders WHERE total = -1 ORDER BY id", database=shop.shop.sink_database
    )
    assert [row[0] for row in wrong] == [5, 100]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"table": ["x"], "all_tables": True}, "'table', which is not known: did you mean 'tables'"),
    ({"nothing_like_it": 1, "all_tables": True}, "known are: tables, more_tables"),
    ({}, "no table is chosen"),
    ({"all_tables": True, "from_key": "1"}, "a range of keys is one table's"),
    ({"more_tables": ["{table}x"]}, "did you mean {table}"),
    ({"tables": ["{table}"], "from_key": "x"}, "'x' is no int for id"),
    ({"tables": ["{table}"], "where": "total = RAND()"}, "RAND"),
]


@pytest.mark.parametrize(("conf", "why"), WRONG)
def test_a_form_that_cannot_be_carried_out_is_refused_with_what_to_do(
    conf: dict[str, Any], why: str, shop: Copied
) -> None:
    filled = json.loads(json.dumps(conf).replace("{table}", shop.table))
    dag = made(shop)
    run = SimpleNamespace(conf=filled)
    context: Any = {**task_context("check"), "dag_run": run, "params": filled, "dag": dag}
    check: Any = dag.task_dict["check"]
    with pytest.raises(AirflowFailException, match=rf"(?s){why.replace('{table}', shop.table)}"):
        check.execute(context)


def test_a_run_with_an_unknown_field_asks_nothing(shop: Copied, dag: DAG) -> None:
    before = requests_of(shop)
    ran = Ran(dag, table=[shop.table], all_tables=True, dry_run=False)
    assert ran.states["check"] == "failed"
    assert set(ran.states.values()) == {"failed", "upstream_failed"}
    assert requests_of(shop) == before


class Person:
    """Somebody who answers what a run asks, over the REST API."""

    def __init__(self, client: Any, token: str) -> None:
        self.client = client
        self.headers = {"Authorization": f"Bearer {token}"}
        self.seen: dict[str, Any] = {}
        self.states: set[str] = set()

    def answer(self, dag_id: str, option: str) -> None:
        """Wait until a run of the DAG asks, look at the question, and answer."""
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            told = self._get(f"/api/v2/dags/{dag_id}/dagRuns/~/hitlDetails?response_received=false")
            if told["hitl_details"]:
                (self.seen,) = told["hitl_details"]
                task = self.seen["task_instance"]
                self.states.add(task["state"])
                if task["state"] == "awaiting_input":
                    self._answer(task, option)
                    return
            time.sleep(0.5)
        raise AssertionError("nothing was asked")

    def _get(self, path: str) -> Any:
        answered = self.client.get(path, headers=self.headers)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def _answer(self, task: dict[str, Any], option: str) -> None:
        answered = self.client.patch(
            f"/api/v2/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}"
            f"/taskInstances/{task['task_id']}/{task['map_index']}/hitlDetails",
            json={"chosen_options": [option], "params_input": {}},
            headers=self.headers,
        )
        assert answered.status_code == 200, answered.text


@pytest.fixture(scope="module")
def person(airflow_db: None) -> Iterator[Person]:
    # here, because what these load warns of its own age
    from airflow.api_fastapi.app import create_app, get_auth_manager  # noqa: PLC0415
    from airflow.api_fastapi.auth.managers.simple.user import (  # noqa: PLC0415
        SimpleAuthManagerUser,
    )
    from fastapi.testclient import TestClient  # noqa: PLC0415

    with TestClient(create_app(apps="core"), base_url="http://testserver") as client:
        user = SimpleAuthManagerUser(username="lea", role="ADMIN")
        yield Person(client, get_auth_manager().generate_jwt(user))


def answering(person: Person, dag: DAG, option: str, run: Callable[[], Ran]) -> Ran:
    """Make a run while somebody answers what it asks."""
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            person.answer(dag.dag_id, option)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    ran = run()
    thread.join()
    if errors:
        raise errors[0]
    return ran


def test_more_rows_than_may_be_read_unasked_wait_for_a_person(
    shop: Copied, dag: DAG, person: Person
) -> None:
    shop.drift()
    ran = answering(
        person,
        dag,
        "Approve",
        lambda: Ran(dag, tables=[shop.table], ask_above_rows=2999, dry_run=False),
    )
    assert set(ran.states.values()) == {"success"}
    assert "about 3,000 rows at the source" in person.seen["body"]
    assert ran.xcom["approve"]["approved"] is True
    assert ran.xcom["approve"]["by"]
    assert shop.is_equal


def test_what_a_person_rejects_is_never_asked(shop: Copied, dag: DAG, person: Person) -> None:
    shop.drift()
    before = requests_of(shop)
    ran = answering(
        person,
        dag,
        "Reject",
        lambda: Ran(dag, all_tables=True, ask_above_rows=0, dry_run=False),
    )
    assert ran.states["resync"] == "skipped"
    assert requests_of(shop) == before
    assert not shop.is_equal


def test_what_was_approved_in_airflow_begins_although_the_file_asks_too(
    shop: Copied, dag: DAG, person: Person
) -> None:
    shop.drift()
    text = shop.path.read_text()
    shop.path.write_text(f"{text}requests: {{approve_above_rows: 100}}\n")
    try:
        ran = answering(
            person, dag, "Approve", lambda: Ran(dag, tables=[shop.table], dry_run=False)
        )
    finally:
        shop.path.write_text(text)
    assert set(ran.states.values()) == {"success"}
    assert shop.is_equal


def test_a_run_whose_pipeline_is_paused_goes_on_once_it_is_resumed(shop: Copied, dag: DAG) -> None:
    shop.drift()
    store = shop.store()
    store.want(shop.name, Wanted.STOP)

    def resume_when_it_waits() -> None:
        deadline = time.monotonic() + 180
        while not store.to_do(shop.name) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1)
        store.want(shop.name, Wanted.RUN)

    thread = threading.Thread(target=resume_when_it_waits)
    thread.start()
    ran = Ran(dag, tables=[shop.table], dry_run=False)
    thread.join()
    store.close()
    assert ran.states["resync"] == "success"
    assert shop.is_equal


def test_no_request_is_left_open_by_any_of_these_runs(shop: Copied, dag: DAG) -> None:
    Ran(dag, tables=[shop.table], dry_run=False)
    assert {request.status for request in requests_of(shop)} == {RequestStatus.DONE}


class TestFromMariaDb:
    """The same from a server of the other family."""

    def test_rows_that_are_wrong_are_right_after_a_run(
        self,
        mariadb_server: SqlServer,
        mysql_sink: SqlServer,
        airflow_db: None,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        folder = tmp_path_factory.mktemp("resync")
        with copied(mariadb_server, mysql_sink, folder, "resync_mariadb") as shop:
            dag = known(made(shop))
            shop.drift()
            ran = Ran(dag, tables=[shop.table], dry_run=False)
            assert set(ran.states.values()) == {"success"}
            assert shop.is_equal
