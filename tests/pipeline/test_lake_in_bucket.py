"""A pipeline from MySQL into tables of a lake in a bucket, from the check to rows read again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.current_rows import current_rows
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.lake.tables.catalogs import open_catalog
from airflow_cdc_provider.systems.lake.tables.store_options import options_of
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.servers.postgres import SqlDatabase
from tests.servers.s3 import S3Server


@dataclass
class Reached:
    """A lake in a bucket: its lines of the file, and how others read its tables."""

    lines: str
    secrets: tuple[str, ...]
    read: Callable[[str], pa.Table]


@pytest.fixture
def place(s3_server: S3Server) -> Store:
    return s3_server.folder(s3_server.fresh_bucket(), "lakes/shop").store


@pytest.fixture
def delta(place: Store, shop: Shop) -> Reached:
    def read(name: str) -> pa.Table:
        table = DeltaTable(f"{place.uri}/{name}", storage_options=options_of(place))
        return pa.table(table.to_pyarrow_table())

    return Reached("  type: delta\n", (place.access.secret,), read)


@pytest.fixture
def iceberg_in_sql(
    place: Store, shop: Shop, postgres_server: SqlDatabase, postgres_database: str
) -> Reached:
    dsn = postgres_server.dsn(postgres_database)
    shop.environment["LAKE_CATALOG"] = dsn
    lines = "  type: iceberg\n  catalog: {type: sql, dsn_env: LAKE_CATALOG, name: company}\n"
    access = CatalogAccess("sql", "company", dsn)
    password = quote(postgres_server.password, safe="")
    secrets = place.access.secret, postgres_server.password, password
    return Reached(lines, secrets, partial(by_catalog, place, access))


@pytest.fixture
def iceberg_in_glue(place: Store, shop: Shop, s3_server: S3Server) -> Reached:
    properties = f"{{glue.endpoint: '{s3_server.url}'}}"
    lines = f"  type: iceberg\n  catalog: {{type: glue, properties: {properties}}}\n"
    access = CatalogAccess("glue", "lake", properties=(("glue.endpoint", s3_server.url),))
    return Reached(lines, (place.access.secret,), partial(by_catalog, place, access))


def by_catalog(place: Store, access: CatalogAccess, name: str) -> pa.Table:
    table = open_catalog(access, place, is_new=False).load_table(tuple(name.split(".")))
    return table.scan().to_arrow()


@pytest.fixture(params=["delta", "iceberg_in_sql", "iceberg_in_glue"])
def reached(request: pytest.FixtureRequest) -> Reached:
    found: Reached = request.getfixturevalue(request.param)
    return found


@pytest.mark.sample(1)
def test_tables_hold_the_sources_rows_and_no_log_shows_the_key(
    shop: Shop,
    reached: Reached,
    place: Store,
    s3_server: S3Server,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    shop.environment["LAKE_S3"] = s3_server.conn_uri
    to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
    to_lake = f"{reached.lines}  path: {place.uri}\n  dsn_env: LAKE_S3\n  commit_seconds: 1\n"
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
    query = current_rows(run)[named].replace(f'"{shop.database}"."orders"', "changes")
    with duckdb.connect() as connection:
        connection.register("changes", reached.read(named))
        found = sorted(connection.sql(query).fetchall())
    assert found == sorted(shop.source.execute("SELECT * FROM orders", database=shop.database))
    files = [file for file in shop.path.parent.rglob("*") if file.is_file()]
    for secret in reached.secrets:
        assert [file for file in files if secret.encode() in file.read_bytes()] == []
        assert secret not in caplog.text

    shop.environment["LAKE_S3"] = s3_server.conn_uri.replace(f":{s3_server.port}", ":1")
    with pytest.raises(SinkUnreachableError, match="Connection refused"):
        catch_up(shop)
