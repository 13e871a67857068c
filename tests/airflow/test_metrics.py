"""Metrics of Airflow's own: what a pipeline sends, and that the page names exactly these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.hooks.metrics import send_metrics, send_stream_metrics
from airflow_cdc_provider.views.status import status
from tests.airflow.conftest import SHOP, beat, streaming
from tests.airflow.stream_trigger import trigger
from tests.docs.pages import first_cells, page, section

if TYPE_CHECKING:
    from airflow_cdc_provider.state.store import SqlStateStore


class Sent(dict[str, float]):
    """Takes gauges as Airflow's sender would."""

    def gauge(self, stat: str, value: float, *, tags: dict[str, Any], **_: Any) -> None:
        assert tags == {"pipeline": str(SHOP)}
        self[stat] = value


@pytest.fixture
def sent() -> Iterator[Sent]:
    found = Sent()
    stats.initialize(factory=lambda: found, export_legacy_names=False)  # type: ignore[arg-type,return-value]
    yield found
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


def test_a_stream_sends_its_lag_under_the_pipelines_name(store: SqlStateStore, sent: Sent) -> None:
    beat(store, streaming(store), lag_us=1_500_000, changes=7)
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert sent["cdc.stream.lag_seconds.shop"] == 1.5
    assert sent["cdc.stream.changes.shop"] == 7
    assert sent["cdc.requests.open.shop"] == 0


def test_the_age_of_tables_that_follow_a_log_is_sent_where_there_are_some(
    store: SqlStateStore, sent: Sent
) -> None:
    beat(store, streaming(store), lag_us=0)
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert "cdc.stream.tables_age_seconds.shop" not in sent
    store.keep_note(SHOP, NoteKind.PUBLISHED, {"at_us": store.now_us() - 90_000_000})
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert 90 <= sent["cdc.stream.tables_age_seconds.shop"] < 95


def test_a_lag_that_is_not_known_is_not_sent(store: SqlStateStore, sent: Sent) -> None:
    beat(store, streaming(store), lag_us=None)
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert "cdc.stream.lag_seconds.shop" not in sent


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_lag_of_a_stream_that_was_not_heard_of_is_not_sent(
    store: SqlStateStore, sent: Sent, *, is_gone: bool
) -> None:
    beat(store, streaming(store), lag_us=0)
    told = store.stream(SHOP)
    now_us = store.now_us() + (0 if is_gone else 31_000_000)
    send_stream_metrics(str(SHOP), told, now_us=now_us, is_gone=is_gone)
    assert "cdc.stream.lag_seconds.shop" not in sent
    assert "cdc.stream.heartbeat_age_seconds.shop" in sent


def test_an_outage_is_sent_with_how_long_it_lasts_and_its_tries(
    store: SqlStateStore, sent: Sent
) -> None:
    generation = streaming(store)
    beat(store, generation, lag_us=0)
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert sent["cdc.stream.outage_seconds.shop"] == sent["cdc.stream.outage_tries.shop"] == 0
    outage = {"error": SinkUnreachableError("away").to_json(), "tries": 4, "next_us": 0}
    outage |= {"part": "sink", "since_us": store.now_us() - 5_000_000}
    form = {"generation": generation, "process": this_process(), "outages": [outage]}
    store.keep_note(SHOP, NoteKind.OUTAGES, form)
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    assert 5 <= sent["cdc.stream.outage_seconds.shop"] < 10
    assert sent["cdc.stream.outage_tries.shop"] == 4


def test_whoever_watches_a_stream_sends_its_metrics(
    store: SqlStateStore, state_dsn: str, sent: Sent
) -> None:
    beat(store, streaming(store), lag_us=0, changes=3)

    async def watch() -> None:
        async with asyncio.timeout(10):
            async for _ in trigger(state_dsn, goal="consistent").run():
                return

    asyncio.run(watch())
    assert sent["cdc.stream.changes.shop"] == 3


def test_the_page_names_every_metric_that_is_sent(store: SqlStateStore, sent: Sent) -> None:
    beat(store, streaming(store), lag_us=0)
    store.keep_note(SHOP, NoteKind.PUBLISHED, {"at_us": store.now_us()})
    send_metrics(status(store, SHOP, now_us=store.now_us()))
    named = first_cells(section(page("metrics.md"), "Metrics"))
    assert named == {name.removesuffix(".shop") + ".<pipeline>" for name in sent}
