"""`<pipeline>__verify` in a real Airflow: what differs is told, and repaired if that is wanted."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.operators.compare import CdcCompareOperator
from airflow_cdc_provider.operators.verify_dag import verify_dag
from airflow_cdc_provider.pipeline.run import give_back, take_over
from airflow_cdc_provider.pipeline.steps.pausing import pause, resume
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from tests.airflow.answers import answering
from tests.airflow.asking import Copied, copied, task_context
from tests.airflow.shop import known
from tests.airflow.sync_dags import stored

if TYPE_CHECKING:
    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(180),
]


class Verified:
    """One run of the DAG, which is made for it: a run in this process leaves its params in it."""

    def __init__(self, copy: Copied, **conf: Any) -> None:
        dag = verify_dag(copy.path, default_args={"retry_delay": 0, "retries": 0})
        run = known(dag).test(run_conf=conf)
        self.state = str(run.state)
        tasks = run.get_task_instances()
        self.states = {task.task_id: str(task.state) for task in tasks}
        self.compared: Any = next(
            task.xcom_pull(task_ids="compare") for task in tasks if task.task_id == "compare"
        )


@pytest.fixture(scope="module")
def copy(
    request: pytest.FixtureRequest,
    mysql_sink: SqlServer,
    airflow_db: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    family = getattr(request, "param", "mysql")
    server = request.getfixturevalue(f"{family}_server")
    folder = tmp_path_factory.mktemp("verified")
    with copied(server, mysql_sink, folder, f"checked_{secrets.token_hex(3)}") as made:
        yield made


def events(copy: Copied) -> list[dict[str, Any]]:
    sql = "SELECT e.extra FROM asset_event e JOIN asset a ON a.id = asset_id WHERE a.name = "
    told = stored(f"{sql} 'cdc-verify/{copy.shop.name}' ORDER BY e.id")
    return [json.loads(extra) for (extra,) in told]


@pytest.fixture
def equal_copy(copy: Copied) -> Copied:
    """The copy, without what other tests have left different."""
    if not copy.is_equal:
        Verified(copy, repair="always")
    return copy


def test_a_run_finds_source_and_sink_equal_and_says_so(equal_copy: Copied) -> None:
    copy = equal_copy
    copy.shop.change(3)  # which the sink has not yet, and nobody is at work
    run = Verified(copy)
    assert run.states == {
        "compare": "success",
        "approve": "skipped",
        "repair": "skipped",
        "verdict": "success",
    }
    assert copy.is_equal
    assert run.compared["equal"] is True
    assert set(run.compared["tables"]) == {
        f"{copy.shop.source_database}.{name}" for name in ("orders", "customers")
    }
    *_, told = events(copy)
    assert (told["pipeline"], told["equal"], told["differing"]) == (copy.shop.name, True, [])
    assert "bin." in told["position"]


def test_rows_that_differ_fail_the_run_by_name_with_counts_and_keys_and_no_values(
    copy: Copied, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    copy.drift()
    there = {row[0]: row for row in copy.shop.rows(copy.shop.sink, "orders")}
    here = {row[0]: row for row in copy.shop.rows(copy.shop.source, "orders")}
    run = Verified(copy)
    assert (run.state, run.states["verdict"]) == ("failed", "failed")
    assert f"source and sink differ in 1 of 2 tables: {copy.table}" in caplog.text
    found = run.compared["tables"][copy.table]
    assert found["missing"] == len(here.keys() - there.keys())
    assert found["extra"] == len(there.keys() - here.keys()) == 1
    assert found["different"] == sum(here[key] != there[key] for key in here.keys() & there.keys())
    assert {"kind", "key"} == {key for sample in found["samples"] for key in sample}
    assert "0.01" not in json.dumps(run.compared)
    *_, told = events(copy)
    assert (told["equal"], told["differing"]) == (False, [copy.table])
    assert not copy.is_equal  # nobody has asked for a repair
    out = capfd.readouterr().out
    assert "at the sink" not in out
    lines = out.splitlines()
    assert all("[warning" in line for line in lines if f"{copy.table} -> " in line)
    assert not any(".customers -> " in line for line in lines)
    assert "1 of 2 tables equal" in out
    assert "resync --table" not in out
    assert "verify --repair" not in out
    assert "nothing is read again in this run; trigger the DAG with repair: ask" in out
    assert f"trigger the DAG `{copy.shop.name}__resync`" in out
    asked = Verified(copy, values=True)
    assert "'0.01' at the sink" in capfd.readouterr().out
    assert "0.01" not in json.dumps(asked.compared)


@pytest.mark.parametrize("copy", ["mysql", "mariadb"], indirect=True)
def test_what_differs_is_repaired_where_that_is_wanted_and_nothing_differs_then(
    copy: Copied,
) -> None:
    copy.drift()
    run = Verified(copy, repair="always")
    assert set(run.states.values()) == {"success"}
    assert copy.is_equal
    before, after = events(copy)[-2:]
    assert (before["equal"], after["equal"]) == (False, True)
    with closing(copy.store()) as store:
        assert {each.request_id.split("-")[0] for each in store.requests(copy.name)} == {"repair"}


def test_a_person_is_asked_with_what_would_be_touched_and_decides(
    copy: Copied, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    copy.drift()
    with answering(f"{copy.shop.name}__verify", "approve", "Reject") as asked:
        run = Verified(copy, repair="ask")
    assert f"to repair {copy.table}: " in asked["body"]
    assert "rows written, 1 deleted" in asked["body"]
    assert run.states == {
        "compare": "success",
        "approve": "success",
        "repair": "skipped",
        "verdict": "failed",
    }
    assert not copy.is_equal
    out = capfd.readouterr().out
    assert "the task `approve` asks a person whether this is read again" in out
    assert "the repair was rejected by ann" in out + caplog.text
    with answering(f"{copy.shop.name}__verify", "approve", "Approve"):
        run = Verified(copy, repair="ask", tables=[copy.table])
    assert "approved by ann" in "".join(capfd.readouterr())
    assert set(run.states.values()) == {"success"}
    assert list(run.compared["tables"]) == [copy.table]
    assert copy.is_equal


def test_a_run_that_is_given_what_nobody_knows_compares_nothing(copy: Copied) -> None:
    run = Verified(copy, repiar="always")
    assert (run.state, run.states["compare"]) == ("failed", "failed")


def compare(copy: Copied) -> dict[str, Any]:
    """Run the task alone."""
    context = task_context("compare") | {"dag": SimpleNamespace(params={}), "params": {}}
    return CdcCompareOperator(task_id="compare", pipeline=str(copy.path)).execute(context)


def test_whoever_is_at_work_is_waited_for_before_rows_count_as_different(
    equal_copy: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = equal_copy
    with copy.opened("a run of the sync DAG") as other, closing(open_ledger(other)) as ledger:
        generation = take_over(other, ledger).generation
        copy.shop.change(4)
        waited = list[float]()

        def wait(seconds: float) -> None:
            waited.append(seconds)
            assert other.store.ensure(copy.name).generation == generation
            give_back(other)

        its_clock = SimpleNamespace(monotonic=time.monotonic, sleep=wait)  # not other threads'
        monkeypatch.setattr("airflow_cdc_provider.operators.compare.time", its_clock)
        assert compare(copy)["equal"] is True
    assert len(waited) == 1


def test_a_paused_pipeline_and_one_without_a_snapshot_are_not_compared(
    copy: Copied, tmp_path: Path
) -> None:
    with copy.opened() as run:
        pause(run, wait_s=0)
        with pytest.raises(AirflowSkipException, match="is paused"):
            compare(copy)
        resume(run)
    new = tmp_path / "new.yaml"
    text = copy.path.read_text().replace(f"pipeline: {copy.shop.name}", "pipeline: brand_new")
    new.write_text(text)
    with pytest.raises(AirflowSkipException, match="snapshot of brand_new is not done"):
        compare(replace(copy, path=new))
