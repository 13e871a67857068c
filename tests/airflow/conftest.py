"""What tests of the Airflow rooms share: an initialised Airflow, and contexts without one."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.pipeline.conftest import empty_shop  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

PIPELINE = """
pipeline: shop
source: {{conn_id: shop_source, tables: ["shop.orders", "shop.customers"]}}
sink: {{conn_id: shop_sink, route: {{"shop.*": "copy.*"}}}}
state: {{conn_id: shop_state}}
stream: {{mode: {mode}}}
"""
SHOP = PipelineName("shop")
SECRET = "s3cret/pa:ss@word"  # with everything that has to be quoted in a DSN
CONNECTIONS = ("shop_source", "shop_sink", "shop_state")


class TaskState:
    """One task's `task_state_store`, as long as a test runs."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        self.values[key] = value


class TaskInstance(SimpleNamespace):
    """One task of one run, with what operators use of it."""

    def __init__(self, dag_id: str = "shop__sync", task_id: str = "step", **more: Any) -> None:
        told = {"run_id": "manual__1", "map_index": -1, "try_number": 1, **more}
        super().__init__(dag_id=dag_id, task_id=task_id, **told)
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.xcoms[key] = value


@pytest.fixture
def context() -> dict[str, Any]:
    """A context with what operators use of it."""
    return {"task_state_store": TaskState(), "ti": TaskInstance()}


@pytest.fixture
def state_dsn(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def store(state_dsn: str) -> Iterator[SqlStateStore]:
    opened = open_store(state_dsn)
    yield opened
    opened.close()


@pytest.fixture
def pipeline_file(
    tmp_path: Path, state_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Write a pipeline file with connections to servers that nobody may reach."""

    def write(mode: str = "continuous") -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(PIPELINE.format(mode=mode), encoding="utf-8")
        return path

    for name in CONNECTIONS[:2]:
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{name.upper()}", "mysql://cdc:s3cret%2Fpa%3Ass%40word@127.0.0.1:9/"
        )
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_STATE", state_dsn)
    return write


def at(offset: int) -> MySqlPosition:
    return MySqlPosition("server", BinlogPosition(1, offset))


def streaming(store: SqlStateStore, *, owner: str = "somebody") -> int:
    """Bring the pipeline to where its stream runs; returns the generation."""
    generation = store.take_over(SHOP, owner).generation
    phase = store.ensure(SHOP).phase
    for to in (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING):
        store.move(SHOP, generation, expected=phase, to=to)
        phase = to
    store.store_hand_off(SHOP, generation, StreamSplit(at(4), None, ()))
    return generation


def beat(store: SqlStateStore, generation: int, **changes: Any) -> None:
    """Tell the store that the stream lives."""
    told: dict[str, Any] = {"position": at(4), "heartbeat_us": store.now_us(), **changes}
    store.beat(SHOP, generation, StreamState(**told))


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Airflow's own tables, in the folder this test run has for Airflow."""
    from airflow.utils.db import initdb  # noqa: PLC0415, TID251 - there is no other way to

    Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]).mkdir(parents=True, exist_ok=True)
    initdb()
