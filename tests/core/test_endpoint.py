"""Places: what names them is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.endpoint import Folder, SinkPlace, Store, parse_sink

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
