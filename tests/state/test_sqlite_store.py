"""The state store on SQLite: the behaviours of every store, and what only a file has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.behaviours.request_behaviours import RequestStoreBehaviour
from tests.behaviours.sample_behaviours import SampleBehaviour
from tests.behaviours.state_behaviours import SHOP, StateStoreBehaviour


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def store(dsn: str) -> Iterator[SqlStateStore]:
    opened = open_store(dsn)
    yield opened
    opened.close()


class TestSqliteStore(StateStoreBehaviour):
    """All behaviours, on SQLite."""


class TestSqliteRequests(RequestStoreBehaviour):
    """All behaviours of requests, on SQLite."""


class TestSqliteSamples(SampleBehaviour):
    """All behaviours of samples and overviews, on SQLite."""


def test_what_one_process_wrote_another_one_reads(dsn: str, store: SqlStateStore) -> None:
    generation = store.take_over(SHOP, "me").generation
    other = open_store(dsn)
    assert other.ensure(SHOP).generation == generation
    other.close()


def test_processes_that_open_a_new_store_at_once_all_succeed(dsn: str) -> None:
    program = (
        "import sys; from airflow_cdc_provider.state.store import open_store;"
        "from airflow_cdc_provider.core.identifiers import PipelineName;"
        "print(open_store(sys.argv[1]).take_over(PipelineName('shop'), 'x').generation)"
    )
    command = [sys.executable, "-c", program, dsn]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = [run.communicate(timeout=60) for run in runs]
    assert sorted(int(out or 0) for out, _ in answers) == [1, 2, 3, 4], answers


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(RefusedError, match="in-memory"):
        open_store("sqlite://")
