"""`<pipeline>__sync` from its first task to its last, in a real Airflow and on real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.utils.state import DagRunState  # noqa: TID251 - what `dag.test` answers with

from tests.airflow.shop import Shop, known_dag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import DAG

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def shop(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shop]:
    shop = Shop(
        mysql_server,
        mysql_sink,
        "airflow_shop",
        "airflow_copy",
        tmp_path_factory.mktemp("shop"),
        "shop",
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in shop.connections().items():
            patch.setenv(name, value)
        mysql_server.execute(f"CREATE DATABASE {shop.source_database}")
        shop.fill()
        yield shop
    mysql_server.execute(f"DROP DATABASE {shop.source_database}")
    mysql_sink.execute(f"DROP DATABASE IF EXISTS {shop.sink_database}")


@pytest.fixture(scope="module")
def dag(shop: Shop, airflow_db: None) -> DAG:
    return known_dag(shop.write_pipeline())


class Run:
    """One run of the DAG, and what its tasks returned."""

    def __init__(self, dag: DAG) -> None:
        run = dag.test()
        self.state = run.state
        self.tasks = {task.task_id: task for task in run.get_task_instances()}

    def returned(self, task_id: str) -> dict[str, Any]:
        value = self.tasks[task_id].xcom_pull(task_ids=task_id)
        assert isinstance(value, dict)
        return value

    def states(self) -> dict[str, str]:
        return {name: str(task.state) for name, task in self.tasks.items()}


@pytest.fixture(scope="module")
def first(dag: DAG) -> Run:
    return Run(dag)


def test_the_first_run_copies_catches_up_and_proves_it(shop: Shop, first: Run) -> None:
    assert set(first.states().values()) == {"success"}
    assert first.state == DagRunState.SUCCESS
    assert first.returned("verify")["equal"] is True
    assert shop.is_equal()
