"""Which tables are meant, and which server knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.files.opening import files_at
from airflow_cdc_provider.systems.lake.reads.log_kinds import LogKind, kind_of
from tests.behaviours.sink_world import insert, worlds
from tests.servers.postgres import SqlDatabase
from tests.servers.s3 import S3Server
from tests.systems.changelog.reads.made_logs import MadeLog, way_in
from tests.systems.lake.reads.made_lakes import ORDERS, MadeLake
from tests.systems.lake.world import FORMATS

DSN = "postgresql://lake:secret-word@db.example/lake"


def parsed(**options: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/data/lake", "table": ORDERS, **options})


def test_a_catalog_is_that_of_the_pipeline_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_CATALOG", DSN)
    assert parsed().catalog is None
    given = {"catalogtype": "sql", "catalogdsnenv": "LAKE_CATALOG"}
    assert parsed(**given).catalog == CatalogAccess("sql", "lake", DSN)
    properties = {"catalog.warehouse": "analytics", "catalog.prefix": "x"}
    found = parsed(catalogType="rest", catalogDsn="https://a:b@host", **properties).catalog
    assert found is not None
    assert found.properties == (("prefix", "x"), ("warehouse", "analytics"))
    assert parsed(catalogType="glue").catalog == CatalogAccess("glue", "lake")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"catalogDsn": DSN}, "there is no catalogType"),
        ({"catalog.warehouse": "a"}, "there is no catalogType"),
        ({"catalogType": "hive", "catalogDsn": DSN}, "none of sql, rest, glue"),
        ({"catalogType": "sql"}, "no DSN of the catalog of type sql"),
        ({"catalogType": "glue", "catalogDsn": DSN}, "Glue is entered with the key of the store"),
        ({"catalogType": "sql", "catalogDsnEnv": "NOT_SET"}, "variable NOT_SET is not set"),
        ({"catalogType": "sql", "catalogDsn": DSN, "catalogDsnEnv": "X"}, "are two DSNs"),
    ],
)
def test_half_a_catalog_is_refused_and_no_secret_is_shown(
    options: dict[str, str], error: str
) -> None:
    with pytest.raises(RefusedError, match=error) as caught:
        parsed(**options)
    assert "secret-word" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mirror_mb", [0, 512])
def test_what_a_path_is_of_is_said_by_its_manifests(
    form: str, mirror_mb: int, tmp_path: Path
) -> None:
    made = MadeLake(root=tmp_path / "lake", form=form, mirror_mb=mirror_mb)
    for lake in worlds(made):
        wanted = LogKind.MIRROR if mirror_mb else LogKind.APPEND
        lake.ledger.store_stream(lake.hand_off(orders=[(1, "a")], high=100))
        assert kind_of(lake.store, Manifest(lake.store, "").read_any()) is wanted
        lake.publish_tables()
        lake.commit([insert(2, "b")])
        for file in (lake.root / "shop.orders").glob("split-*"):
            file.unlink()  # as once it is in a larger file
        assert kind_of(lake.store, Manifest(lake.store, "").read_any()) is wanted
    log = MadeLog(root=tmp_path / "log")
    assert kind_of(files_at(log.root), Manifest(log.root, "").read_any()) is LogKind.CHANGELOG
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    assert kind_of(files_at(log.root), Manifest(log.root, "").read_any()) is LogKind.CHANGELOG


def test_tables_in_a_bucket_are_read_by_a_catalog_in_a_database(
    s3_server: S3Server, postgres_server: SqlDatabase, postgres_database: str, tmp_path: Path
) -> None:
    dsn = postgres_server.dsn(postgres_database)
    bucket = s3_server.folder(s3_server.fresh_bucket(), "lake", "iceberg")
    place = Folder(
        bucket.path, "iceberg", access=bucket.access, catalog=CatalogAccess("sql", "lake", dsn)
    )
    for lake in worlds(MadeLake(root=tmp_path, bucket=place)):
        lake.begin((1, "a"))
        lake.commit([insert(2, "b")])
        lake.resync((12, "c"))
        found = lake.read(catalogType="sql", catalogDsn=dsn, **way_in(s3_server))
        assert [row["id"] for row in found] == [1, 2, 12]
