"""The lease of a job that takes long before it works, such as one whose Spark starts slowly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.engine.ownership import kept_lease
from airflow_cdc_provider.state.store import SqlStateStore, open_store

SHOP = PipelineName("shop")
LEASE_S, RENEWED_S = 1.0, 0.1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'state.db'}")) as opened:
        opened.ensure(SHOP)
        yield opened


def lease_left_us(store: SqlStateStore) -> int:
    return store.ensure(SHOP).lease_until_us - store.now_us()


def test_a_job_keeps_its_lease_before_it_works_and_gives_it_back(store: SqlStateStore) -> None:
    generation = store.take_over(SHOP, "job", lease_s=LEASE_S).generation
    with kept_lease(store, SHOP, generation, every_s=RENEWED_S):
        time.sleep(2 * LEASE_S)
        assert lease_left_us(store) > 0
    assert store.ensure(SHOP).lease_until_us == 0


def test_a_newer_owners_lease_is_left_alone(store: SqlStateStore) -> None:
    older = store.take_over(SHOP, "job", lease_s=LEASE_S).generation
    with kept_lease(store, SHOP, older, every_s=RENEWED_S):
        store.take_over(SHOP, "another", lease_s=LEASE_S)
        time.sleep(2 * LEASE_S)
        assert lease_left_us(store) <= 0
    assert store.ensure(SHOP).lease_until_us > 0
