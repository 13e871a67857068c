"""Places: what names them is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.dsn import passwords_in
from airflow_cdc_provider.core.endpoint import Folder, SinkPlace, Store, parse_sink
from airflow_cdc_provider.core.store_access import StoreAccess

PATHS = st.lists(st.text(min_size=1, max_size=8).filter(lambda t: "/" not in t), min_size=1).map(
    lambda parts: "/" + "/".join(parts)
)


@given(PATHS)
def test_the_uri_of_a_folder_is_read_back(path: str) -> None:
    store = Store.of_folder(path)
    assert (store.scheme, store.path, str(store)) == ("file", path, path)


@given(PATHS, st.booleans())
def test_a_place_of_files_is_read_back_from_its_url(path: str, with_queries: bool) -> None:
    folder = Folder(path, "parquet", with_queries)
    assert parse_sink(folder.address) == folder
    assert folder.store.path == path


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("file:///data/my%20changes", Store("file:///data/my%20changes")),
        ("file:///data?form=json", Folder("/data", "json")),
    ],
)
def test_a_folder_without_a_form_is_a_store(url: str, place: SinkPlace) -> None:
    assert parse_sink(url) == place


def test_a_store_has_places_below_it() -> None:
    bucket = Store("s3://bucket/logs")
    assert bucket.below("shop/a b").uri == "s3://bucket/logs/shop/a%20b"
    assert (bucket.scheme, bucket.path, str(bucket)) == ("s3", "/logs", "s3://bucket/logs")
    assert Store.of_folder("/data").below("shop/orders").path == "/data/shop/orders"


@pytest.mark.parametrize(
    "uri", ["s3://bucket/logs/shop", "s3://my.bucket", "gs://b/x", "az://c/y=1"]
)
@pytest.mark.parametrize(
    "access",
    [
        StoreAccess(),
        StoreAccess("id", "s/e+c@r:e t", "to/k=en&", "eu-central-1", "http://127.0.0.1:9000"),
        StoreAccess(region="eu-central-1"),
    ],
)
def test_a_log_in_a_store_is_read_back_and_its_key_is_never_shown(
    uri: str, access: StoreAccess
) -> None:
    folder = Folder(uri, "parquet", debezium_types=True, access=access)
    assert parse_sink(folder.address) == folder
    assert (folder.store, str(folder), folder.store.bucket) == (
        Store(uri, access),
        uri,
        uri.split("/")[2],
    )
    assert folder.identity == f"{uri}?form=parquet"
    assert access.secret not in repr(folder) or not access.secret
    assert {access.secret, access.token} - {""} <= passwords_in(folder.address)
