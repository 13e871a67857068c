"""A pipeline from MySQL into tables of Delta in a bucket, from the check to rows read again."""

from __future__ import annotations

import logging

import duckdb
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.current_rows import current_rows
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.lake.tables.store_options import options_of
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.servers.s3 import S3Server


def test_tables_hold_the_sources_rows_and_no_log_shows_the_key(
    shop: Shop, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place = s3_server.folder(s3_server.fresh_bucket(), "lakes/shop", "delta").store
    shop.environment["LAKE_S3"] = s3_server.conn_uri
    to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
    to_lake = f"  type: delta\n  path: {place.uri}\n  dsn_env: LAKE_S3\n  commit_seconds: 1\n"
    text = shop.path.read_text()
    assert to_server in text
    shop.path.write_text(text.replace(to_server, to_lake))
    catch_up(shop)
    shop.at_source("INSERT INTO orders (id, note) VALUES (70, 'new')")
    shop.at_source("UPDATE orders SET note = 'changed' WHERE id = 1")
    shop.at_source("DELETE FROM orders WHERE id = 2")
    catch_up(shop)
    assert verify(shop.run(), values=True).equal

    with shop.source.connect(database=shop.database) as connection:
        connection.cursor().execute("SET sql_log_bin = 0")
        connection.cursor().execute("UPDATE orders SET note = 'unlogged' WHERE id = 3")
        connection.commit()
    run = shop.run()
    assert not verify(run).equal
    request = ask_resync(run, resync_scope(run, [f"{shop.database}.orders"]))
    run = catch_up(shop)
    assert known(run, request.request_id).status is RequestStatus.DONE
    assert verify(run).equal

    named = f"{shop.database}.orders"
    table = DeltaTable(f"{place.uri}/{named}", storage_options=options_of(place))
    query = current_rows(run)[named].replace(f'"{shop.database}"."orders"', "changes")
    with duckdb.connect() as connection:
        connection.register("changes", table.to_pyarrow_table())
        found = sorted(connection.sql(query).fetchall())
    assert found == sorted(shop.source.execute("SELECT * FROM orders", database=shop.database))
    secret = s3_server.access.secret
    files = (file for file in shop.path.parent.rglob("*") if file.is_file())
    assert [file for file in files if secret.encode() in file.read_bytes()] == []
    assert secret not in caplog.text

    shop.environment["LAKE_S3"] = s3_server.conn_uri.replace(f":{s3_server.port}", ":1")
    with pytest.raises(SinkUnreachableError, match="Connection refused"):
        catch_up(shop)
