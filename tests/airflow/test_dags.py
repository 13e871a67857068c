"""DAGs of pipeline files: what Airflow finds when it parses them, with no network in reach."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset, AssetAlias, TaskGroup
from airflow.sdk.exceptions import AirflowFailException
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


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def syncs(dags: Iterable[str]) -> set[str]:
    """Return the ids of the DAGs that keep tables in step; others stand beside them."""
    return {dag_id for dag_id in dags if dag_id.endswith("__sync")}


def order_of(dag: DAG) -> list[tuple[str, list[str]]]:
    return [(task.task_id, sorted(task.downstream_task_ids)) for task in dag.tasks]


@pytest.mark.usefixtures("no_network")
def test_the_dags_that_come_with_the_provider_import_without_a_network() -> None:
    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    assert {"demo__sync", "demo_health", "orders_changed"} <= set(bag.dags)


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
    assert syncs(made) == {"shop__sync", "other__sync"}
    assert set(made) == set(module) - {"__file__"}


def test_a_wrong_file_of_a_dag_of_ones_own_is_an_import_error_that_names_line_and_fix(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(BOUNDED + "retention: 3\n", encoding="utf-8")
    with pytest.raises(PipelineFileError, match=r"(?s)shop\.yaml.*line 7.*retention"):
        sync_dag(path)


def folder_of_dags(tmp_path: Path, **files: str) -> DagBag:
    """Let Airflow read a folder of pipeline files."""
    (tmp_path / "pipelines").mkdir()
    for name, text in files.items():
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "cdc.py").write_text((ROOT / "dags" / "cdc.py").read_text())
    return DagBag(str(tmp_path))


def renamed(text: str, name: str, ids: str) -> str:
    text = text.replace("pipeline: shop", f"pipeline: {name}")
    return text.replace("source: {", f"source: {{server_id: {ids}, ")


def failure_of(dag: Any, task_id: str) -> str:
    """Run a task, which has to fail for good; returns its words."""
    with pytest.raises(AirflowFailException) as failed:
        dag.task_dict[task_id].execute({})
    return str(failed.value)


@pytest.mark.parametrize(
    "wrong", [BOUNDED.replace("tables", "tabels"), "pipeline: shop\n  - [", ""]
)
def test_one_wrong_file_costs_no_other_pipeline_its_dag_and_is_seen(
    tmp_path: Path, wrong: str
) -> None:
    bag = folder_of_dags(tmp_path, shop=wrong, other=renamed(CONTINUOUS, "other", "6400-6499"))
    assert bag.import_errors == {}
    assert syncs(bag.dags) == {"shop__sync", "other__sync"}
    broken, other = bag.dags["shop__sync"], bag.dags["other__sync"]
    assert (broken.dag_display_name, "broken" in broken.tags) == ("shop__sync (broken)", True)
    assert "shop.yaml" in str(broken.doc_md)
    assert "broken" not in other.tags
    for task_id in ("preflight", "stream", "verify"):
        assert "shop.yaml" in failure_of(broken, task_id)
    assert "shop.yaml" in failure_of(bag.dags["shop__verify"], "compare")


@pytest.mark.parametrize("text", [BOUNDED, CONTINUOUS], ids=["bounded", "continuous"])
def test_the_runs_of_a_file_that_went_wrong_find_their_dag_and_tasks(
    tmp_path: Path, text: str
) -> None:
    right = sync_dag(_written(tmp_path / "shop.yaml", text))
    bag = folder_of_dags(tmp_path, shop=text + "retention: 3\n")
    wrong = bag.dags["shop__sync"]
    assert set(wrong.task_dict) == set(right.task_dict)
    assert (wrong.schedule is None) == (text is CONTINUOUS)


def test_a_file_whose_mode_cannot_be_read_is_not_scheduled(tmp_path: Path) -> None:
    bag = folder_of_dags(tmp_path, shop=BOUNDED.replace("bounded", "bonded"))
    assert bag.dags["shop__sync"].schedule is None


def test_a_stream_of_a_file_that_went_wrong_is_watched_until_it_has_to_start_again(
    tmp_path: Path,
) -> None:
    bag = folder_of_dags(tmp_path, shop=CONTINUOUS + "retention: 3\n")
    follow: Any = bag.dags["shop__sync"].task_dict["follow"]
    lost = {"pipeline": "shop", "verdict": "lost"}
    with pytest.raises(AirflowFailException, match=r"(?s)shop\.yaml:line 7.*retention"):
        follow.execute_complete({}, lost, {"since_us": 0, "restarts": 0, "deadline_us": 0})


def test_pipelines_of_one_name_start_nothing_and_cost_no_other_its_dag(tmp_path: Path) -> None:
    bag = folder_of_dags(
        tmp_path,
        one=renamed(CONTINUOUS, "a", "100-199"),
        other=renamed(CONTINUOUS, "a", "300-350"),
        third=renamed(CONTINUOUS, "third", "400-499"),
    )
    assert bag.import_errors == {}
    assert syncs(bag.dags) == {"a__sync", "third__sync"}
    assert "broken" not in bag.dags["third__sync"].tags
    dag = bag.dags["a__sync"]
    assert "broken" in dag.tags
    for task_id in ("preflight", "plan", "snapshot", "hand_off", "stream", "verify"):
        assert "same name" in failure_of(dag, task_id)
    assert "same name" in failure_of(bag.dags["a__verify"], "compare")
    follow: Any = dag.task_dict["follow"]
    assert not hasattr(follow, "refused")  # a stream that runs is watched on


def test_pipelines_with_server_ids_in_common_keep_their_dags_and_say_so(tmp_path: Path) -> None:
    bag = folder_of_dags(
        tmp_path,
        one=renamed(CONTINUOUS, "a", "100-199"),
        other=renamed(CONTINUOUS, "b", "150-250"),
        third=renamed(CONTINUOUS, "third", "400-499"),
    )
    assert syncs(bag.dags) == {"a__sync", "b__sync", "third__sync"}
    for dag_id in syncs(bag.dags):
        dag = bag.dags[dag_id]
        assert "broken" not in dag.tags
        assert ("overlap those of" in str(dag.doc_md)) == (dag_id != "third__sync")


def test_a_second_file_without_server_ids_breaks_nothing(tmp_path: Path) -> None:
    copy = CONTINUOUS.replace("pipeline: shop", "pipeline: web")
    bag = folder_of_dags(tmp_path, shop=CONTINUOUS, web=copy)
    assert syncs(bag.dags) == {"shop__sync", "web__sync"}
    for dag in bag.dags.values():
        assert "broken" not in dag.tags
        assert "overlap" not in str(dag.doc_md)


def test_a_wrong_copy_does_not_take_the_dag_of_the_file_that_is_right(tmp_path: Path) -> None:
    bag = folder_of_dags(tmp_path, a_copy=BOUNDED + "retention: 3\n", shop=BOUNDED)
    assert syncs(bag.dags) == {"shop__sync", "shop__a_copy.yaml__sync"}
    assert "shop__a_copy.yaml__verify" in bag.dags
    assert "broken" not in bag.dags["shop__sync"].tags


def test_a_bounded_pipeline_catches_up_finishes_and_verifies(tmp_path: Path) -> None:
    assert order_of(dag_of(tmp_path, BOUNDED)) == [
        ("preflight", ["finish", "plan", "stream"]),
        ("plan", ["snapshot"]),
        ("snapshot", ["hand_off"]),
        ("hand_off", ["stream"]),
        ("stream", ["finish"]),
        ("finish", ["verify"]),
        ("verify", []),
    ]


def test_preflight_of_a_bounded_pipeline_knows_the_tasks_that_it_may_leave_out(
    tmp_path: Path,
) -> None:
    path = _written(tmp_path / "shop.yaml", BOUNDED)
    with DAG("mine", schedule=None) as mine:
        sync_group(path, verify=True)
    for dag, prefix in ((sync_dag(path), ""), (mine, "shop.")):
        tasks: Any = {each.task_id.removeprefix(prefix): each for each in dag.tasks}
        preflight, finish = tasks["preflight"], tasks["finish"]
        left_out = (*preflight.snapshot_tasks, *preflight.stream_tasks, finish.verify_task)
        names = ("plan", "snapshot", "hand_off", "stream", "verify")
        assert left_out == tuple(prefix + name for name in names)
        assert finish.verify == tasks["verify"].enabled
        for name in ("stream", "finish"):  # they run behind tasks that were left out
            assert tasks[name].trigger_rule == "none_failed_min_one_success"


@pytest.mark.parametrize("stream", ["{mode: snapshot_only}", "{stop: consistent}"])
def test_a_pipeline_that_ends_has_the_tasks_of_a_bounded_one_and_is_not_compared(
    tmp_path: Path, stream: str
) -> None:
    text = BOUNDED.replace("{mode: bounded}", stream)
    assert order_of(dag_of(tmp_path, text))[-2:] == [("stream", ["finish"]), ("finish", [])]
    tmp_path.joinpath("shop.yaml").write_text(text, encoding="utf-8")
    made = cdc_dags(tmp_path, {})
    assert set(made) == {"shop__sync"}
    assert str(made["shop__sync"].schedule) == "*/15 * * * *"


def test_a_continuous_pipeline_leaves_out_no_task_before_its_stream(tmp_path: Path) -> None:
    tasks: Any = dag_of(tmp_path, CONTINUOUS).task_dict
    assert not tasks["preflight"].snapshot_tasks
    assert tasks["stream"].trigger_rule == "all_success"


def test_a_change_log_ends_finished_and_is_an_asset_by_its_folder(tmp_path: Path) -> None:
    text = (
        'pipeline: log\nsource: {conn_id: shop, tables: ["shop.orders"]}\n'
        "sink: {type: changelog, path: /data/changes}\nstate: {conn_id: state}\n"
        "stream: {mode: bounded}\n"
    )
    dag = dag_of(tmp_path, text)
    assert ("finish", []) in order_of(dag)
    assets = [outlet for outlet in dag.task_dict["finish"].outlets if isinstance(outlet, Asset)]
    assert [asset.uri for asset in assets] == ["cdc://changelog/data/changes/shop/orders"]


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


def test_a_continuous_pipeline_has_a_dag_that_tells_of_changed_tables(tmp_path: Path) -> None:
    tmp_path.joinpath("shop.yaml").write_text(CONTINUOUS, encoding="utf-8")
    assert "shop__changes" not in cdc_dags(tmp_path, {}, changes_every_s=None)
    module: dict[str, Any] = {}
    dag = cdc_dags(tmp_path, module, changes_every_s=60)["shop__changes"]
    assert module["shop__changes"] is dag
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert dag.is_paused_upon_creation is False
    (task,) = dag.tasks
    assert [outlet.name for outlet in task.outlets] == [
        outlet.name for outlet in dag_of(tmp_path, CONTINUOUS).task_dict["finish"].outlets
    ]
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert stored.timetable.summary == "0:01:00"


def test_a_verify_dag_is_triggered_or_scheduled_and_asks_nobody_unless_told(tmp_path: Path) -> None:
    tmp_path.joinpath("shop.yaml").write_text(BOUNDED, encoding="utf-8")
    dag = cdc_dags(tmp_path, {})["shop__verify"]
    assert dag.schedule is None
    assert (dag.params["repair"], dag.max_active_runs) == ("never", 1)
    assert order_of(dag) == [
        ("compare", ["approve", "verdict"]),
        ("approve", ["repair"]),
        ("repair", ["verdict"]),
        ("verdict", []),
    ]
    dag = cdc_dags(tmp_path, {}, verify_schedule="@daily", verify_repair="ask")["shop__verify"]
    assert (str(dag.schedule), dag.params["repair"]) == ("@daily", "ask")


def test_a_change_log_is_not_compared_nor_read_again_and_takes_tables(tmp_path: Path) -> None:
    text = 'pipeline: log\nsource: {conn_id: a, tables: ["s.o"]}\nstate: {conn_id: s}\n'
    text += "sink: {type: changelog, path: /data/changes}\nstream: {mode: bounded}\n"
    tmp_path.joinpath("log.yaml").write_text(text, encoding="utf-8")
    assert set(cdc_dags(tmp_path, {})) == {"log__sync", "log__tables"}


def test_a_pipeline_never_runs_twice_at_once_and_never_catches_up(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, BOUNDED)
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    # A backfill has a limit of its own: its runs, ten at once, would fence each other out.
    allowed: Any = dag.allowed_run_types or ()
    kinds = {kind.value for kind in allowed}
    assert {"scheduled", "manual", "operator_triggered", "asset_triggered"} <= kinds
    assert "backfill" not in kinds


@pytest.mark.parametrize("text", [BOUNDED, CONTINUOUS], ids=["bounded", "continuous"])
def test_a_dag_survives_airflows_serialization(tmp_path: Path, text: str) -> None:
    dag = dag_of(tmp_path, text)
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert set(stored.task_dict) == set(dag.task_dict)
    assert stored.params.dump() == {"verify": "by_file"}


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


def test_a_target_table_is_the_very_asset_that_other_dags_name_by_its_address(
    tmp_path: Path,
) -> None:
    # Airflow lets one of two assets of an address live; the other one's tasks fail at their start.
    outlets = dag_of(tmp_path, BOUNDED).task_dict["finish"].outlets
    assert Asset("cdc://shop_sink/copy/orders") in outlets


def test_tables_of_a_pattern_go_through_the_pipelines_alias(tmp_path: Path) -> None:
    outlets = dag_of(tmp_path, BOUNDED).task_dict["finish"].outlets
    assert [outlet.name for outlet in outlets if isinstance(outlet, AssetAlias)] == ["cdc/shop"]


def test_the_group_can_stand_in_a_dag_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(BOUNDED, encoding="utf-8")
    with DAG("mine", schedule=None) as dag:
        sync_group(path, verify=False)
    assert "shop.hand_off" in dag.task_ids


@pytest.mark.parametrize(("said", "retries"), [({}, 5), ({"retries": 0}, 0), ({"retries": 2}, 2)])
def test_tasks_of_a_group_are_tried_again_unless_their_dag_says_how(
    said: dict[str, Any], retries: int, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(BOUNDED, encoding="utf-8")
    with DAG("mine", schedule=None, default_args=said) as dag:
        sync_group(path, verify=True)
        with TaskGroup("outer", default_args={"retries": 7}):  # type: ignore[arg-type]
            sync_group(path, group_id="inner", verify=True)
    found = {task.retries for name, task in dag.task_dict.items() if name.startswith("shop.")}
    assert found == {retries}
    inner = {task.retries for name, task in dag.task_dict.items() if name.startswith("outer.")}
    assert inner == {7}


def test_no_task_holds_a_secret_or_a_server(tmp_path: Path) -> None:
    stored = str(DagSerialization.to_dict(dag_of(tmp_path, BOUNDED)))
    assert "mysql://" not in stored
    assert "password" not in stored
