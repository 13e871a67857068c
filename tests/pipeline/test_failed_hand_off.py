"""What a hand-off fails by is told to whoever asks for the status: no job runs that keeps it."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done


def test_what_a_hand_off_fails_by_is_among_the_events(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    there = shop.environment["DR_DSN"]
    shop.environment["DR_DSN"] = there.replace(f":{shop.sink.port}/", ":1/")
    with pytest.raises(SinkUnreachableError):
        hand_off(shop.run())
    (told,) = (each for each in run.store.events(run.name) if each.level == "error")
    assert told.text.startswith("hand-off failed: CDC-SNK-001")
    shop.environment["DR_DSN"] = there
    hand_off(shop.run())
