"""A change log in a bucket, as a reader of typed rows finds it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import RefusedError, SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reading import sealed_files, sealed_uris
from airflow_cdc_provider.systems.changelog.reads.change_rows import read_parts
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.table_columns import log_columns
from tests.behaviours.sink_world import delete, insert, update
from tests.servers.s3 import S3Server
from tests.systems.changelog.reads.made_logs import (
    ORDERS,
    MadeLog,
    changes_read,
    commits_of,
    parts_read,
    way_in,
)

IN_ORDER = [
    ("insert", 1, "a"),
    ("insert", 2, "b"),
    ("update_preimage", 1, "a"),
    ("update_postimage", 1, "c"),
    ("delete", 2, "b"),
]


@pytest.fixture
def log(s3_server: S3Server, tmp_path: Path) -> MadeLog:
    made = MadeLog(root=tmp_path, bucket=s3_server.folder(s3_server.fresh_bucket(), form="parquet"))
    made.begin((1, "a"), (2, "b"))
    made.commit([update((1, "a"), (1, "c"))])
    made.commit([delete(2, "b")])
    return made


def test_rows_are_read_as_from_a_folder(s3_server: S3Server, log: MadeLog) -> None:
    assert changes_read(log.place.path, **way_in(s3_server)) == IN_ORDER


def test_files_are_read_in_another_process(s3_server: S3Server, log: MadeLog) -> None:
    found = parts_read(log.place.path, **way_in(s3_server))
    assert s3_server.access.secret not in repr(found)
    (parts,) = pickle.loads(pickle.dumps(found))
    columns = log_columns(commits_of(log.store))
    assert columns is not None
    rows = [row for each in read_parts(parts, columns, with_truncates=True) for row in each["id"]]
    assert len(rows) == len(IN_ORDER)


def test_a_long_log_is_read_whole_and_on(log: MadeLog) -> None:
    for number in range(10, 20):
        log.commit([insert(number, "x")])
    commits = commits_of(log.store)
    assert len(commits.files) == 13
    log.commit([insert(50, "y")])
    commits.read_on()
    assert len(commits.files) == 14


def test_a_file_that_is_gone_is_named(s3_server: S3Server, log: MadeLog) -> None:
    gone = commits_of(log.store).files[-1].file.path
    log.store.delete(gone)
    with pytest.raises(SnapshotRequiredError, match=f"{log.place.path}/{gone}"):
        changes_read(log.place.path, **way_in(s3_server))


def test_the_files_of_a_log_are_listed_for_other_readers(
    s3_server: S3Server, log: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    uris = sealed_uris(log.place.path, ORDERS)
    assert len(uris) == 3
    assert all(uri.startswith(f"{log.place.path}/shop.orders/") for uri in uris)
    with pytest.raises(RefusedError, match="sealed_uris"):
        sealed_files(log.place.path, ORDERS)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"path": "s3://b/log", "secretAccessKey": "planted"}, "a secret and no key id"),
        ({"path": "s3://b/log", "accessKeyId": "planted"}, "a key id and no secret"),
        ({"path": "s3://b/log", "endpointUrl": "planted"}, "is no URL"),
        ({"path": "/log", "secretAccessKey": "planted"}, "are of a log in a store"),
        ({"path": "s3a://b/log"}, "nor the URI of a store"),
    ],
)
def test_options_that_are_no_way_in_are_refused_without_repeating_them(
    options: dict[str, str], why: str
) -> None:
    with pytest.raises(RefusedError, match=why) as refused:
        ReadOptions.parse({"table": ORDERS, **options})
    assert "planted" not in str(refused.value)
