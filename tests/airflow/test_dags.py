"""DAGs of pipeline files: what Airflow finds when it parses them, with no network in reach."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.operators.dags import cdc_dags, sync_dag, sync_group

ROOT = Path(__file__).parents[2]
BOUNDED = """
pipeline: shop
source: {conn_id: shop_source, tables: ["shop.orders", "shop.old_*", "shop.old_ones"]}
sink: {conn_id: shop_sink, route: {"shop.*": "copy.*"}}
state: {conn_id: shop_state}
stream: {mode: bounded}
"""
CONTINUOUS = BOUNDED.replace("bounded", "continuous")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a parse opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def dag_of(tmp_path: Path, text: str) -> DAG:
    path = tmp_path / "shop.yaml"
    path.write_text(text, encoding="utf-8")
    return sync_dag(path)


def order_of(dag: DAG) -> list[tuple[str, list[str]]]:
    return [(task.task_id, sorted(task.downstream_task_ids)) for task in dag.tasks]


@pytest.mark.usefixtures("no_network")
def test_the_dags_that_come_with_the_provider_import_without_a_network() -> None:
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    assert "demo__sync" in bag.dags


@pytest.mark.usefixtures("no_network")
def test_each_yaml_file_of_a_folder_becomes_a_dag(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    folder.joinpath("shop.yaml").write_text(BOUNDED, encoding="utf-8")
    other = CONTINUOUS.replace("pipeline: shop", "pipeline: other").replace(
        "source: {", "source: {server_id: 6400-6499, "
    )
    folder.joinpath("other.yaml").write_text(other, encoding="utf-8")
    module: dict[str, Any] = {"__file__": str(tmp_path / "cdc.py")}
    made = cdc_dags("pipelines/", module)
    assert set(made) == {"shop__sync", "other__sync"} == set(module) - {"__file__"}


def test_a_wrong_pipeline_file_is_an_import_error_that_names_line_and_fix(tmp_path: Path) -> None:
    tmp_path.joinpath("shop.yaml").write_text(BOUNDED + "retention: 3\n", encoding="utf-8")
    with pytest.raises(PipelineFileError, match=r"(?s)shop\.yaml.*line 7.*retention"):
        cdc_dags(tmp_path, {})


def test_a_bounded_pipeline_catches_up_finishes_and_verifies(tmp_path: Path) -> None:
    assert order_of(dag_of(tmp_path, BOUNDED)) == [
        ("stream", ["finish"]),
        ("finish", ["verify"]),
        ("preflight", ["plan"]),
        ("plan", ["snapshot"]),
        ("snapshot", ["hand_off"]),
        ("hand_off", ["stream"]),
        ("verify", []),
    ]


def test_a_continuous_pipeline_is_followed_while_it_is_finished_and_verified(
    tmp_path: Path,
) -> None:
    after = dict(order_of(dag_of(tmp_path, CONTINUOUS)))
    assert after["stream"] == ["consistent"]
    assert after["consistent"] == ["finish", "follow"]
    assert after["finish"] == ["verify"]


def test_a_bounded_pipeline_is_scheduled_and_a_continuous_one_is_not(tmp_path: Path) -> None:
    tmp_path.joinpath("shop.yaml").write_text(BOUNDED, encoding="utf-8")
    assert str(cdc_dags(tmp_path, {})["shop__sync"].schedule) == "*/15 * * * *"
    tmp_path.joinpath("shop.yaml").write_text(CONTINUOUS, encoding="utf-8")
    assert cdc_dags(tmp_path, {})["shop__sync"].schedule is None


def test_a_pipeline_never_runs_twice_at_once_and_never_catches_up(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, BOUNDED)
    assert (dag.max_active_runs, dag.catchup) == (1, False)


@pytest.mark.parametrize("text", [BOUNDED, CONTINUOUS], ids=["bounded", "continuous"])
def test_a_dag_survives_airflows_serialization(tmp_path: Path, text: str) -> None:
    dag = dag_of(tmp_path, text)
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert set(stored.task_dict) == set(dag.task_dict)
    assert stored.params.dump() == {"verify": True}


def test_target_tables_are_assets_of_the_one_task_that_knows_them_consistent(
    tmp_path: Path,
) -> None:
    dag = dag_of(tmp_path, BOUNDED)
    assert {task.task_id for task in dag.tasks if task.outlets} == {"finish"}
    assets = [outlet for outlet in dag.task_dict["finish"].outlets if isinstance(outlet, Asset)]
    assert [asset.uri for asset in assets] == [
        "cdc://shop_sink/copy/orders",
        "cdc://shop_sink/copy/old_ones",
    ]


def test_tables_of_a_pattern_go_through_the_pipelines_alias(tmp_path: Path) -> None:
    outlets = dag_of(tmp_path, BOUNDED).task_dict["finish"].outlets
    assert [outlet.name for outlet in outlets if isinstance(outlet, AssetAlias)] == ["cdc/shop"]


def test_the_group_can_stand_in_a_dag_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(BOUNDED, encoding="utf-8")
    with DAG("mine", schedule=None) as dag:
        sync_group(path, verify=False)
    assert "shop.hand_off" in dag.task_ids


def test_no_task_holds_a_secret_or_a_server(tmp_path: Path) -> None:
    stored = str(DagSerialization.to_dict(dag_of(tmp_path, BOUNDED)))
    assert "mysql://" not in stored
    assert "password" not in stored
