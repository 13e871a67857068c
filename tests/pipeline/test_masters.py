"""A job is not started on a master that does not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from airflow_cdc_provider.core.errors import SparkUnreachableError
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.masters import require_master
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.start_jobs import start_snapshot
from tests.pipeline.conftest import Shop


@pytest.fixture
def answering() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    with socket.socket() as bound:  # a port of ours on which nothing listens
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_master_that_answers_is_taken(answering: int, silent: int) -> None:
    require_master(f"spark://127.0.0.1:{answering}")
    require_master(f"sc://127.0.0.1:{answering}/;use_ssl=false")
    require_master(f"spark://127.0.0.1:{silent},127.0.0.1:{answering}")


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_does_not_answer_is_named(silent: int, scheme: str) -> None:
    with pytest.raises(SparkUnreachableError, match=f":{silent}: Connection refused"):
        require_master(f"{scheme}://127.0.0.1:{silent}")


def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(SparkUnreachableError, match=r"nowhere\.invalid:7077"):
        require_master("spark://nowhere.invalid")


@pytest.mark.parametrize("master", ["local[*]", "local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_masters_that_are_no_single_address_are_left_to_spark(master: str) -> None:
    require_master(master)


def test_no_job_is_started_on_a_master_that_does_not_answer(shop: Shop, silent: int) -> None:
    run = shop.run()
    plan(run)
    with pytest.raises(SparkUnreachableError):
        start_snapshot(run, SparkOptions(master=f"spark://127.0.0.1:{silent}", always=True))
    assert not [event for event in run.store.events(run.name) if "job started" in event.text]
