"""An outage of a real sink is told while the stream waits for it, and when it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_cdc_provider.alerts import book
from airflow_cdc_provider.alerts.watch import Notifier, Watched
from airflow_cdc_provider.pipeline.receivers import Webhook
from tests.alerts.conftest import HttpReceiver, until
from tests.spark.stream_jobs import arrived, change
from tests.spark.test_outages import Outages, handed_off, streaming
from tests.spark.test_outages import outages as outages
from tests.spark.test_outages import sink as sink
from tests.spark.test_outages import source as source

if TYPE_CHECKING:
    import pytest


def test_a_sink_that_is_away_is_told_once_and_that_it_is_back(
    outages: Outages, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "_SETTLE_US", 2_000_000)
    pipeline = handed_off(outages.pipeline)
    hooks = [Webhook("webhook", receiver.url)]
    sender = Notifier(Watched(pipeline.name, after_s=3), pipeline.store, hooks)

    def told(count: int) -> bool:
        sender.look()
        time.sleep(0.2)
        return len(receiver.got) >= count

    with streaming(pipeline):
        until(lambda: arrived(pipeline, 1), 60)
        sender.look()
        with outages.away("sink"):
            change(pipeline, 2)
            until(lambda: told(1), 60)
            assert not told(2)
        until(lambda: told(2), 60)
        until(lambda: arrived(pipeline, 2), 60)
        assert not told(3)
    assert receiver.kinds == [("outage", False), ("outage", True)]
    begun, over = receiver.got
    assert begun["code"] == over["code"] == "CDC-SNK-001"
    assert begun["since"] == over["since"]
