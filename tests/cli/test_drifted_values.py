"""Unique values that somebody swapped at the sink end the stream; nothing asked stays open so."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced


def drift(shop: Shop) -> None:
    """Swap two unique values at the sink, and change one of these rows at the source."""
    for code, row in (("NULL", 1), ("10", 2), ("20", 1)):
        shop.sink.execute(f"UPDATE orders SET code = {code} WHERE id = {row}", database=shop.target)
    shop.at_source("UPDATE orders SET note = 'changed' WHERE id = 1")


def known(run: Run, request_id: str) -> Request:
    found = run.store.request(run.name, request_id)
    assert found is not None
    return found


def test_a_request_says_what_stopped_its_stream_and_can_be_cancelled(shop: Shop) -> None:
    run = synced(shop)
    drift(shop)
    asked = ask_resync(run, resync_scope(run))
    with pytest.raises(RowRefusedError, match=r"Duplicate entry.*`reset` with --table"):
        synced(shop)
    waits = known(run, asked.request_id)
    assert waits.status.is_open
    assert str(waits.error).startswith("waits: the stream stopped with CDC-SNK-003")
    run.store.cancel_request(run.name, asked.request_id)
    with pytest.raises(RowRefusedError):
        synced(shop)
    assert known(run, asked.request_id).status is RequestStatus.CANCELLED


def test_a_reset_of_the_only_table_reads_it_again_whole(shop: Shop, say: Say) -> None:
    synced(shop)
    drift(shop)
    said = say("reset", "--table", f"{shop.database}.orders", "--yes")
    assert said.code == 0, said.err
    with shop.path.open("a") as file:
        file.write("  existing_rows: replace\n")
    assert say("run", "--until", "caught-up").code == 0
    assert at_sink(shop, "orders") == at_source(shop, "orders")
