"""A stream into a lake that cannot go on ends or waits with an error, and never says it is fine."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import LedgerSetBackError
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _stream_to_do
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import FORMS, Lake

QUICK = BackOff(first_s=0.1, longest_s=0.1, give_up_s=0.5)


@pytest.fixture(params=FORMS)
def lake(shop: Shop, request: pytest.FixtureRequest) -> Lake:
    found = Lake.of(shop, request.param)
    found.catch_up()
    return found


def stream(lake: Lake, mode: str, first: Callable[[], object] = lambda: None) -> None:
    run = lake.shop.run()
    job = _job(run, _stream_to_do(run, mode), threading.Event())
    first()
    run_stream(job, OwnFollower, back_off=QUICK)


def test_one_that_begins_while_the_folder_is_elsewhere_makes_no_other_one(lake: Lake) -> None:
    lake.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    away = lake.folder.with_name("away")
    with pytest.raises(LedgerSetBackError, match="gone, or set back"):
        stream(lake, "bounded", first=lambda: lake.folder.rename(away))
    assert not lake.folder.exists()
    away.rename(lake.folder)
    lake.catch_up()
    assert lake.is_equal("orders")


def test_whatever_ends_the_commits_of_its_tables_ends_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise TypeError("nobody thought of this")

    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "publish", broken)
        with pytest.raises(TypeError, match="nobody thought of this"):
            stream(lake, "continuous")
    lake.catch_up()
    assert lake.is_equal("orders")
