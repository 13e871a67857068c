"""A run of a pipeline whose stream ended for good, in a real Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import conf
from sqlalchemy import create_engine, text

from airflow_cdc_provider.core.errors import TableChangedError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.stored_error import StoredError
from tests.airflow.conftest import SHOP, streaming
from tests.airflow.shop import known_dag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_cdc_provider.state.store import SqlStateStore

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]


def asset_events() -> int:
    engine = create_engine(conf.get("database", "sql_alchemy_conn"))
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT COUNT(*) FROM asset_event")).scalar_one())
    finally:
        engine.dispose()


@pytest.mark.parametrize("mode", ["bounded", "continuous"])
def test_a_run_is_red_at_its_first_task_and_tells_of_no_asset(
    mode: str,
    store: SqlStateStore,
    pipeline_file: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    what = "ALTER TABLE changed shop.orders; what to do: nothing"
    error = StoredError.of(TableChangedError(what, remedy="reset"))
    generation = streaming(store)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=error)
    before = asset_events()
    day = datetime(2026, 3, 2 + len(mode), tzinfo=UTC)
    run = known_dag(pipeline_file(mode)).test(logical_date=day)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    starts = ("CDC-CFG-009", "    where: ", "    at risk: ", "    what to do: ")
    assert len(told) == len(starts)
    assert all(text.startswith(start) for text, start in zip(told, starts, strict=True))
    tasks = {task.task_id: task for task in run.get_task_instances()}
    assert tasks["preflight"].try_number == 1  # not even tried again: no server was asked
    states = {name: str(task.state) for name, task in tasks.items()}
    assert states.pop("preflight") == "failed"
    assert set(states.values()) == {"upstream_failed"}
    assert str(run.state) == "failed"
    assert asset_events() == before
    after = store.ensure(SHOP)
    assert (after.phase, after.generation, after.error) == (Phase.FAILED, generation, error)
