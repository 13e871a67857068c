"""A pipeline from MySQL into a change log in a bucket, from the check to the last change."""

from __future__ import annotations

import logging

import pytest

from airflow_cdc_provider.core.errors import RefusedError, SinkUnreachableError
from airflow_cdc_provider.pipeline.steps.checking import check
from tests.pipeline.change_logs import Logged
from tests.pipeline.conftest import Shop
from tests.servers.s3 import S3Server


def test_the_log_makes_the_sources_rows_and_no_log_shows_the_key(
    shop: Shop, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logged = Logged.in_bucket(shop, s3_server, form="parquet")
    logged.catch_up()
    shop.at_source("INSERT INTO orders (id, note) VALUES (70, 'new')")
    shop.at_source("UPDATE orders SET note = 'changed' WHERE id = 1")
    shop.at_source("DELETE FROM orders WHERE id = 2")
    logged.catch_up()
    assert logged.is_equal("orders")
    assert logged.operations("orders").endswith("cud")
    secret = s3_server.access.secret
    files = (file for file in shop.path.parent.rglob("*") if file.is_file())
    assert [file for file in files if secret.encode() in file.read_bytes()] == []
    assert secret not in caplog.text


def test_a_bucket_that_is_not_there_is_refused_before_anything_is_read(
    shop: Shop, s3_server: S3Server
) -> None:
    logged = Logged.in_bucket(shop, s3_server)
    shop.path.write_text(shop.path.read_text().replace(logged.place.store.bucket, "no-such-bucket"))
    with pytest.raises(RefusedError, match="no bucket 'no-such-bucket'"):
        logged.catch_up()


def test_a_store_that_is_away_is_an_outage(shop: Shop, s3_server: S3Server) -> None:
    logged = Logged.in_bucket(shop, s3_server)
    away = shop.environment["CHANGES_S3"].replace(f":{s3_server.port}", ":1")
    shop.environment["CHANGES_S3"] = away
    with pytest.raises(SinkUnreachableError, match=logged.place.path) as error:
        check(shop.run())
    assert error.value.what.endswith("is not answered: Connection refused")
