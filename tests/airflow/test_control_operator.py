"""A task that pauses, resumes, resets or drops does what the command of that name does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.operators.control import CdcControlOperator
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from tests.airflow.asking import Copied, copied
from tests.airflow.conftest import SHOP, streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_cdc_provider.state.store import SqlStateStore
    from tests.servers.given import SqlServer


def control(path: Path, action: str, **options: Any) -> dict[str, Any]:
    task = CdcControlOperator(task_id="control", pipeline=str(path), action=action, **options)
    context: Any = {}
    return task.execute(context)


def test_pause_and_resume_write_what_is_wanted(
    store: SqlStateStore, pipeline_file: Callable[..., Path]
) -> None:
    streaming(store)
    store.release_lease(SHOP, store.ensure(SHOP).generation)
    assert control(pipeline_file(), "pause")["wanted"] == "stop"
    assert store.ensure(SHOP).wanted is Wanted.STOP
    assert control(pipeline_file(), " Resume")["wanted"] == "run"
    assert store.ensure(SHOP).wanted is Wanted.RUN


def test_a_pause_that_is_not_heeded_in_time_is_tried_again(
    store: SqlStateStore, pipeline_file: Callable[..., Path]
) -> None:
    streaming(store)
    with pytest.raises(AirflowException, match="somebody has not stopped yet") as raised:
        control(pipeline_file(), "pause", wait_s=0.1)
    assert not isinstance(raised.value, AirflowFailException)
    assert store.ensure(SHOP).wanted is Wanted.STOP


def test_a_restart_is_wanted_of_whoever_is_at_work(
    store: SqlStateStore, pipeline_file: Callable[..., Path]
) -> None:
    generation = streaming(store)
    with pytest.raises(AirflowException, match="somebody has not yet") as raised:
        control(pipeline_file(), "restart", wait_s=0.1)
    assert not isinstance(raised.value, AirflowFailException)
    assert store.ensure(SHOP).wanted is Wanted.RESTART
    store.release_lease(SHOP, generation)
    assert control(pipeline_file(), "restart")["wanted"] == "run"


@pytest.mark.parametrize("action", ["reset", "drop"])
@pytest.mark.parametrize("confirm", ["", "yes", "shop2"])
def test_what_forgets_does_nothing_without_the_pipelines_name(
    action: str, confirm: str, store: SqlStateStore, pipeline_file: Callable[..., Path]
) -> None:
    before = streaming(store), store.ensure(SHOP)
    with pytest.raises(AirflowFailException, match="confirm='shop'"):
        control(pipeline_file(), action, confirm=confirm)
    assert store.ensure(SHOP) == before[1]


@pytest.mark.parametrize(
    ("action", "tables", "why"),
    [
        ("stop", [], "no action 'stop'.*pause, resume"),
        ("drop", ["shop.orders"], "`drop` is for the whole pipeline"),
        ("remove", [], "`remove` is for tables"),
        ("pause", ["orders"], "database.table"),
    ],
)
def test_what_no_command_does_is_refused_with_what_to_do(
    action: str, tables: list[str], why: str, store: SqlStateStore, pipeline_file: Any
) -> None:
    with pytest.raises(AirflowFailException, match=rf"(?s){why}"):
        control(pipeline_file(), action, tables=tables, confirm="shop")


@pytest.fixture
def shop(mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path) -> Any:
    with copied(mysql_server, mysql_sink, tmp_path, "control") as made:
        yield made


def test_one_table_is_left_alone_then_begins_again_and_at_last_all_is_forgotten(
    shop: Copied,
) -> None:
    paused = control(shop.path, "pause", tables=[shop.table])
    assert "nobody is at work" in paused["done"]
    run_it(shop)
    assert TablePhase.PAUSED in phases(shop).values()
    resumed = control(shop.path, "resume", tables=[shop.table])
    assert resumed["tables"] == [shop.table]
    run_it(shop)
    shop.drift()
    control(shop.path, "reset", tables=[shop.table], confirm=str(shop.name))
    run_it(shop)
    assert shop.is_equal
    shop.drift()
    told = control(shop.path, "reset", confirm=str(shop.name))
    assert "new plan for 2 tables" in told["done"]
    with shop.opened() as run:
        assert run.store.ensure(run.name).lease_until_us == 0
    run_it(shop)
    assert shop.is_equal
    assert control(shop.path, "drop", confirm=str(shop.name))["phase"] == Phase.NEW.value


def run_it(shop: Copied) -> None:
    with shop.opened() as run:
        run_until_caught_up(run)


def phases(shop: Copied) -> dict[str, TablePhase]:
    with shop.opened() as run:
        return {str(state.table): state.phase for state in run.store.tables(run.name)}


def test_a_throttle_is_wanted_by_a_task_and_taken_back(
    store: SqlStateStore, pipeline_file: Callable[..., Path]
) -> None:
    streaming(store)
    limits = {"rows_per_second": 5000, "max_threads_running": "40"}
    done = control(pipeline_file(), "throttle", limits=limits)["done"]
    assert done.startswith("throttle: 5,000 rows/s, up to 40 running threads (from the file, ")
    with pytest.raises(AirflowFailException, match="'0' is no limit"):
        control(pipeline_file(), "throttle", limits={"mb_per_second": 0})
    with pytest.raises(AirflowFailException, match="`throttle` is for the whole pipeline"):
        control(pipeline_file(), "throttle", tables=["shop.orders"])
    with pytest.raises(AirflowFailException, match="`pause` takes no limits"):
        control(pipeline_file(), "pause", limits=limits)
    with pytest.raises(AirflowFailException, match="there is no limit 'rows'"):
        control(pipeline_file(), "throttle", limits={"rows": 1})
    done = control(pipeline_file(), "throttle", limits={"max_threads_running": None})["done"]
    assert done.startswith("throttle: 5,000 rows/s (")
    assert control(pipeline_file(), "throttle")["done"] == "throttle: no limit (from the file)"
