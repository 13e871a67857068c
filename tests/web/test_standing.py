"""In which state the page says that a pipeline is, and what waits for a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, Wanted
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.pipeline.file.shown import ShownPipeline
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.web.known import KnownDag, KnownPipeline, each_once
from airflow_cdc_provider.web.runs import DagRuns
from airflow_cdc_provider.web.standing import Standing, standing_of, with_failed_run
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import ORDERS, plan_of, report_of, splits_of
from tests.web.shop import (
    PIPELINE,
    SHOP,
    SHOP_DAG,
    Page,
    asking_run,
    end_run,
    know_dags,
    pipeline_dags,
    server_ids,
    streaming,
)

ONE = f"/api/pipelines/{SHOP_DAG}/{SHOP}"
RESYNC = f"{SHOP}__resync"
HOURLY = KnownDag("web_hourly__sync", begins_alone=True, next_run_us=5)
BY_HAND = KnownDag("web_hourly__sync")


def row_with(**more: Any) -> dict[str, Any]:
    return {**list_row("web_hourly", None, 1), **more}


@pytest.mark.parametrize(
    ("row", "dag", "runs", "standing"),
    [
        ({"phase": "stopped"}, HOURLY, DagRuns(state="success"), Standing.CAUGHT_UP),
        ({"phase": "stopped"}, BY_HAND, DagRuns(state="success"), Standing.TO_START),
        ({"phase": "stopped", "ended": {}}, BY_HAND, DagRuns(state="success"), Standing.ENDED),
        ({"phase": "streaming", "owner": "x", "ended": {}}, BY_HAND, DagRuns(), Standing.STREAMING),
        ({"phase": "stopped"}, replace(HOURLY, is_paused=True), DagRuns(), Standing.TO_START),
        ({"phase": "stopped"}, replace(HOURLY, has_run=True), DagRuns(), Standing.RUNNING),
        ({"phase": "stopped"}, HOURLY, DagRuns(state="failed"), Standing.FAILED),
        ({"phase": "failed"}, HOURLY, DagRuns(), Standing.FAILED),
        ({"phase": "new"}, BY_HAND, DagRuns(), Standing.NEVER_RUN),
        ({"phase": "snapshot"}, BY_HAND, DagRuns(), Standing.TO_START),
        ({"phase": "snapshot", "owner": "x"}, BY_HAND, DagRuns(), Standing.SNAPSHOT),
        ({"phase": "streaming", "owner": "x"}, BY_HAND, DagRuns(), Standing.STREAMING),
        ({"phase": "streaming", "owner": "x", "stale": True}, BY_HAND, DagRuns(), Standing.SILENT),
        (
            {"phase": "streaming", "owner": "x", "held_up": True},
            BY_HAND,
            DagRuns(),
            Standing.HELD_UP,
        ),
        ({"phase": "streaming", "wanted": "stop", "owner": "x"}, BY_HAND, DagRuns(), "stopping"),
        ({"phase": "stopped", "wanted": "stop"}, BY_HAND, DagRuns(), Standing.PAUSED),
        (
            {"wanted": "restart", "owner": "x", "phase": "streaming"},
            BY_HAND,
            DagRuns(),
            "restarting",
        ),
    ],
)
def test_what_is_well_and_what_is_not_have_different_states(
    row: dict[str, Any], dag: KnownDag, runs: DagRuns, standing: str
) -> None:
    assert standing_of(row_with(**row), dag, runs) == standing


def test_a_run_that_failed_is_a_problem_unless_another_error_says_why() -> None:
    failed = DagRuns("r1", "failed")
    row = row_with(dag_has_run=False)
    (problem,) = with_failed_run(row, failed)["problems"]
    assert (problem["what"], problem["where"]) == ("the last run of its DAG failed", "run r1")
    known = {**row, "problems": [{"level": "error"}]}
    assert with_failed_run(known, failed) == known
    assert with_failed_run({**row, "dag_has_run": True}, failed)["problems"] == []


def test_the_list_says_source_sink_mode_and_the_last_success(
    page: Page, store: SqlStateStore
) -> None:
    streaming(store)
    row = page.row(str(SHOP))
    assert (row["source"], row["sink"], row["mode"]) == ("web_source", "web_sink", "continuous")
    assert (row["state"], row["succeeded_us"]) == ("streaming", None)
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    run_id = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    page.airflow("PATCH", f"{runs}/{run_id}", {"state": "success"})
    row = page.row(str(SHOP))
    assert (row["run_id"], row["run_state"]) == (run_id, "success")
    assert row["succeeded_us"] > 0
    end_run(page, SHOP_DAG, run_id)


def test_a_copy_that_is_older_than_its_target_is_a_problem(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WEB_LATE", f"sqlite:///{tmp_path}/late.db")
    pipeline_dags(
        tmp_path,
        ["web_late"],
        state="conn_id: web_late",
        only_sync=True,
        more="freshness: {target: 15m}\n",
    )
    name, late = PipelineName("web_late"), open_store(f"sqlite:///{tmp_path}/late.db")
    streaming(late, name, lag_us=899_000_000)
    assert (page.row("web_late")["late"], page.row("web_late")["freshness_s"]) == (False, 900)
    streaming(late, name, lag_us=1_380_000_000)
    (problem,) = page.row("web_late")["problems"]
    assert problem["what"].startswith("the copy is 23 min")
    assert problem["what"].endswith("old, and may be 15 min")
    late.want(name, Wanted.STOP)
    assert page.row("web_late")["problems"] == []
    late.close()


def test_a_file_that_is_wrong_says_on_the_page_in_which_line(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_dags(tmp_path, ["web_typo"], only_sync=True, more="snapshot: {split_row: 5}\n")
    row = page.row("web_typo")
    assert (row["state"], row["mode"]) == ("broken file", "continuous")
    assert "web_typo.yaml:line 7" in row["problem"]["what"] + row["problem"]["where"]
    assert "split_row" in row["problem"]["what"]
    answer = page.get("/api/pipelines/web_typo__sync/web_typo")
    assert "split_row" in answer.json()["error"]["what"]


def test_a_file_that_clashes_says_so_beside_what_still_streams(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = f"sqlite:///{tmp_path}/clash.db"
    monkeypatch.setenv("AIRFLOW_CONN_WEB_CLASH", dsn)
    clash = open_store(dsn)
    text = PIPELINE.format(
        name="web_one",
        state="conn_id: web_clash",
        server_id=server_ids("web_one"),
        mode="continuous",
    )
    (tmp_path / "web_two.yaml").write_text(text, encoding="utf-8")
    pipeline_dags(tmp_path, ["web_one"], state="conn_id: web_clash", only_sync=True)
    streaming(clash, PipelineName("web_one"))
    row = page.row("web_one")
    assert (row["state"], row["problem"]) == ("streaming", None)
    assert "web_two.yaml has a pipeline of the same name" in row["problems"][0]["what"]
    clash.close()


def test_what_a_dag_of_an_older_release_says_of_its_pipeline_is_still_read() -> None:
    shown = ShownPipeline.from_text('{"conn_id": "cdc_state", "pipeline": "shop"}')
    assert shown == ShownPipeline("shop", conn_id="cdc_state")
    assert shown.edge is None
    refused = StoredError.of(RefusedError("y; where: z"))
    more = replace(shown, source="a", sink="b", mode="bounded", freshness_s=60, refused=refused)
    assert ShownPipeline.from_text(more.to_text()) == more
    edge = replace(more, topology="shops", src_node="a", dst_node="b", settles="a wins")
    assert edge.edge == {"topology": "shops", "src_node": "a", "dst_node": "b", "settles": "a wins"}
    assert ShownPipeline.from_text(edge.to_text()) == edge


def test_a_snapshot_is_told_as_a_whole_with_its_speed_and_the_time_left(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    assert page.get(ONE).json()["snapshot"] is None
    store.forget(SHOP, generation)
    generation = streaming_snapshot(store)
    told = page.get(ONE).json()["snapshot"]
    assert (told["finished"], told["splits"], told["rows"]) == (2, 10, 80)
    assert told["rows_per_s"] > 0
    least, most = told["left_s"]
    assert 0 < least < most


def streaming_snapshot(store: SqlStateStore) -> int:
    """Read two splits of ten, twenty and ten seconds ago."""
    generation = store.take_over(SHOP, "the test").generation
    store.start_plan(SHOP, generation, "p", [replace(plan_of(), estimated_rows=400)])
    splits = splits_of(10)
    store.add_splits(SHOP, generation, splits)
    for to in (Phase.PLANNING, Phase.SNAPSHOT):
        store.move(SHOP, generation, expected=store.ensure(SHOP).phase, to=to)
    clock, now = store._clock, store.now_us()
    for split, ago_s in zip(splits[:2], (20, 10), strict=True):
        store._clock = lambda at_us=now - ago_s * 1_000_000: at_us  # type: ignore[misc]
        report = report_of(split, rows=40)
        store.mark_split(SHOP, generation, split, SplitStatus.FINISHED, report=report)
    store._clock = clock
    return generation


def test_a_table_says_what_comparing_found_of_it_and_which_columns_its_key_has(
    page: Page, store: SqlStateStore
) -> None:
    streaming(store)
    found = {"at_us": 7, "equal": False, "rows": 41}
    store.keep_note(SHOP, NoteKind.VERIFIED, {"tables": {str(ORDERS): found}})
    (table,) = page.get(ONE).json()["table_list"]
    assert (table["verified"], table["key"]) == (found, ["id"])
    assert {table[each] for each in ("inserts", "updates", "deletes", "changed_us")} == {None}


def test_what_is_noted_twice_within_minutes_is_one_event(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    for text in ("twice", "once", "twice"):
        store.tell(SHOP, text)
    told = [(each["text"], each["times"]) for each in page.get(ONE).json()["events"]]
    assert told[:2] == [("twice", 2), ("once", 1)]


def test_the_spark_of_who_is_at_work_is_a_link_and_an_ended_one_is_none(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    store.tell(SHOP, f"spark application app-1 under generation {generation}, ui http://h:4040")
    assert page.get(ONE).json()["spark"] == {"application": "app-1", "url": "http://h:4040"}
    store.release_lease(SHOP, generation)
    assert page.get(ONE).json()["spark"] is None


def test_the_address_of_a_spark_that_is_no_web_address_is_no_link(
    page: Page, store: SqlStateStore
) -> None:
    generation = streaming(store)
    store.tell(SHOP, f"spark application app-1 under generation {generation}, ui javascript:x()")
    assert page.get(ONE).json()["spark"] is None


def test_the_newest_run_names_the_task_whose_log_says_why(page: Page, store: SqlStateStore) -> None:
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415, TID251 - its tables
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    streaming(store)
    runs = f"/api/v2/dags/{SHOP_DAG}/dagRuns"
    run_id = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    with create_session() as session:
        for task in session.query(TaskInstance).filter_by(dag_id=SHOP_DAG, run_id=run_id):
            task.state = {"plan": "failed", "preflight": "running"}.get(task.task_id, task.state)
    told = page.get(ONE).json()["task"]
    assert (told["task_id"], told["state"]) == ("plan", "failed")
    end_run(page, SHOP_DAG, run_id)


@pytest.mark.parametrize("dag_id", [RESYNC, f"{SHOP}__verify"])
def test_a_task_that_waits_for_a_person_is_told_to_who_may_see_it(
    page: Page, store: SqlStateStore, dag_id: str
) -> None:
    streaming(store)
    run_id = asking_run(page, dag_id)
    try:
        assert page.row(str(SHOP))["waiting_approvals"] == 1
        (asked,) = page.get(ONE).json()["approvals"]
        assert (asked["dag_id"], asked["run_id"], asked["task_id"]) == (dag_id, run_id, "approve")
        assert (asked["options"], asked["may_answer"]) == (["Approve", "Reject"], True)
        assert asked["subject"] == "Read rows of web_shop again?"
        (asked,) = page.get(ONE, role="VIEWER").json()["approvals"]
        assert asked["may_answer"] is False
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"
        page.airflow("PATCH", path, {"chosen_options": ["Reject"], "params_input": {}})
        assert page.get(ONE).json()["approvals"] == []
    finally:
        end_run(page, dag_id, run_id)


def test_a_task_that_asks_somebody_else_is_not_answered_here(
    page: Page, store: SqlStateStore
) -> None:
    streaming(store)
    run_id = asking_run(page, RESYNC, assignees=["ada"])
    try:
        (asked,) = page.get(ONE).json()["approvals"]
        assert asked["may_answer"] is False
    finally:
        end_run(page, RESYNC, run_id)


def test_a_pipeline_whose_tasks_ended_in_a_run_that_goes_on_is_to_be_started(
    page: Page, store: SqlStateStore, tmp_path: Path
) -> None:
    from airflow.models.dagrun import DagRun  # noqa: PLC0415, TID251 - Airflow's own tables
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415, TID251
    from airflow.sdk import DAG  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415, TID251

    from airflow_cdc_provider.operators.dags import sync_group  # noqa: PLC0415

    names = ("web_there", "web_back")
    paths = [tmp_path / f"{name}.yaml" for name in names]
    for name, path in zip(names, paths, strict=True):
        path.write_text(
            PIPELINE.format(
                name=name, state="conn_id: web_state", server_id=server_ids(name), mode="continuous"
            )
        )
    with DAG("web_two", schedule=None, max_active_runs=1, tags=["cdc"]) as dag:
        for path in paths:
            sync_group(path)
    know_dags([dag])
    for pipeline in map(PipelineName, names):
        generation = streaming(store, pipeline)
        store.move(pipeline, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
        store.release_lease(pipeline, generation)
    runs = "/api/v2/dags/web_two/dagRuns"
    run_id = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    waiting = page.airflow("POST", runs, {"logical_date": None}).json()["dag_run_id"]
    try:
        assert [page.row(name)["state"] for name in names] == ["running", "running"]
        with create_session() as session:
            of_run = {"dag_id": "web_two", "run_id": run_id}
            session.query(DagRun).filter_by(**of_run).one().state = "running"
            for task in session.query(TaskInstance).filter_by(**of_run):
                task.state = "skipped" if task.task_id.startswith("web_back.") else "deferred"
        assert page.row(names[0])["state"] == "running"
        row = page.row(names[1])
        assert (row["state"], row["dag_has_run"]) == ("to be started", False)
        (problem,) = row["problems"]
        assert "its tasks in the run of its DAG have ended" in problem["what"]
        assert f"group web_back in the run {run_id} of the DAG web_two" in problem["remedy"]
    finally:
        for each in (run_id, waiting):
            end_run(page, "web_two", each)


def test_a_request_that_waits_counts_as_open(page: Page, store: SqlStateStore) -> None:
    streaming(store)
    store.ask(replace(request_of(), pipeline=SHOP, status=RequestStatus.WAITING))
    row = page.row(str(SHOP))
    assert (row["waiting_requests"], row["waiting_approvals"]) == (1, 0)


def test_an_edge_whose_own_dag_is_paused_is_listed_by_the_dag_of_the_pair() -> None:
    def known(dag_id: str, name: str, *, is_paused: bool = False) -> KnownPipeline:
        shown = ShownPipeline(name, conn_id="cdc_state")
        return KnownPipeline(KnownDag(dag_id, is_paused), shown, f"{name}.yaml")

    pair = [known("shops", name) for name in ("there", "back")]
    own = [known("there__sync", "there", is_paused=True), known("back__sync", "back")]
    assert each_once([*pair, *own]) == (*pair, own[1])  # two that run it are both told
    paused = [known(dag_id, "there", is_paused=True) for dag_id in ("shops", "there__sync")]
    assert each_once(paused) == tuple(paused)
