"""A bucket as a store: on a real server, also where answers are lost or it is denied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from obstore.exceptions import PermissionDeniedError

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import AccessDeniedError, RefusedError, SinkUnreachableError
from airflow_cdc_provider.core.store_access import StoreAccess
from airflow_cdc_provider.systems.files import bucket_client, opening
from airflow_cdc_provider.systems.files.bucket_errors import BucketErrors, Right
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from tests.behaviours.object_store_behaviours import ObjectStoreBehaviours
from tests.servers.s3 import S3Server
from tests.servers.s3_proxy import (
    DENY,
    DENY_EACH,
    DROP_ANSWER,
    EXPIRED,
    FAIL_AFTERWARDS,
    NOT_IMPLEMENTED,
    STRIP,
    Proxy,
    Request,
    before,
)

LARGE = 20 * 1024 * 1024


@pytest.fixture
def store(s3_server: S3Server) -> ObjectStore:
    return open_files(s3_server.store(s3_server.fresh_bucket(), "some/log"))


class TestABucket(ObjectStoreBehaviours):
    """A prefix of a bucket."""


def test_a_bucket_without_a_prefix_is_a_store(s3_server: S3Server) -> None:
    whole = open_files(Store(f"s3://{s3_server.fresh_bucket()}", s3_server.access))
    assert whole.put_if_absent("log/one", b"x")
    assert (list(whole.list("log/")), list(whole.list(""))) == (["log/one"], [])
    assert whole.why_unfit("log") is None


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with before(s3_server) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy) -> ObjectStore:
    return open_files(proxy.server.store(proxy.behind.fresh_bucket()))


def once(does: str, fits: Callable[[Request], bool]) -> Callable[[Request], str]:
    """Do something to the first request that fits."""
    left = [does]
    return lambda request: left.pop() if left and fits(request) else ""


class TestLostAnswers:
    @pytest.mark.parametrize("lost", [DROP_ANSWER, FAIL_AFTERWARDS])
    def test_a_put_whose_answer_was_lost_is_known_as_ones_own(
        self, proxy: Proxy, proxied: ObjectStore, lost: str
    ) -> None:
        proxy.rule = once(lost, lambda request: request.is_put)
        assert proxied.put_if_absent("one", b"x")
        assert proxied.read("one") == b"x"
        assert not proxied.put_if_absent("one", b"x")

    def test_a_name_that_another_got_meanwhile_is_not_ones_own(
        self, proxy: Proxy, proxied: ObjectStore
    ) -> None:
        assert proxied.put_if_absent("one", b"x")
        proxy.rule = once(DROP_ANSWER, lambda request: request.is_put)
        assert not proxied.put_if_absent("one", b"x")

    def test_a_put_that_nobody_answers_is_an_error_not_a_guess(
        self, proxy: Proxy, proxied: ObjectStore
    ) -> None:
        proxy.rule = lambda _: DROP_ANSWER
        with pytest.raises(SinkUnreachableError):
            proxied.put_if_absent("one", b"x")
        proxy.rule = lambda _: ""
        assert proxied.read("one") == b"x"
        assert not proxied.put_if_absent("one", b"y")

    def test_a_large_file_whose_last_answer_was_lost_is_there(
        self, proxy: Proxy, proxied: ObjectStore
    ) -> None:
        def is_last(request: Request) -> bool:
            return request.method == "POST" and "uploadId" in request.path

        proxy.rule = lambda request: FAIL_AFTERWARDS if is_last(request) else ""
        assert written(proxied, "large", LARGE) == LARGE
        assert proxied.read("large") == bytes(LARGE)


def written(store: ObjectStore, name: str, size: int) -> int:
    """Write a file in pieces; return its number of bytes."""
    file = store.create(name)
    with file.explained():
        file.stream.write(bytes(size))
    return file.seal()


def test_a_file_in_pieces_never_replaces_one_that_is_there(store: ObjectStore) -> None:
    for size in (1, LARGE):
        assert store.put_if_absent(f"taken-{size}", b"first")
        with pytest.raises(SinkUnreachableError, match="another writer has the name"):
            written(store, f"taken-{size}", size)
        assert store.read(f"taken-{size}") == b"first"


class TestStoresThatAreRefused:
    def test_one_that_overwrites(self, proxy: Proxy, proxied: ObjectStore) -> None:
        proxy.rule = lambda request: STRIP if request.is_put else ""
        unfit = proxied.why_unfit("_manifest")
        assert unfit is not None
        assert "given twice" in unfit.observed
        assert not proxied.holds_any("_manifest")

    def test_one_that_knows_no_conditions(self, proxy: Proxy, proxied: ObjectStore) -> None:
        def is_conditional(request: Request) -> bool:
            return any(name.lower() == "if-none-match" for name in request.headers)

        proxy.rule = lambda request: NOT_IMPLEMENTED if is_conditional(request) else ""
        unfit = proxied.why_unfit("_manifest")
        assert unfit is not None
        assert "only if its name is free" in unfit.observed
        with pytest.raises(RefusedError, match="501"):
            proxied.put_if_absent("one", b"x")

    @pytest.mark.parametrize(
        ("right", "is_denied"),
        [
            ("s3:PutObject", lambda request: request.is_put),
            ("s3:GetObject", lambda r: r.method == "GET" and "list-type" not in r.path),
            ("s3:ListBucket", lambda r: r.method == "GET" and "list-type" in r.path),
            ("s3:DeleteObject", lambda r: r.method == "DELETE" or "?delete" in r.path),
        ],
    )
    def test_one_that_denies_a_right(
        self,
        proxy: Proxy,
        proxied: ObjectStore,
        right: str,
        is_denied: Callable[[Request], bool],
    ) -> None:
        proxy.rule = lambda request: DENY if is_denied(request) else ""
        unfit = proxied.why_unfit("_manifest")
        assert unfit is not None
        assert f"denies {right}: " in unfit.observed
        assert " answers 403 (AccessDenied, Access Denied)" in unfit.observed
        assert right in unfit.remedy
        proxy.rule = lambda _: ""
        assert proxied.holds_any("_manifest") is (right == "s3:DeleteObject")

    def test_one_that_denies_each_file_of_a_delete(
        self, proxy: Proxy, proxied: ObjectStore
    ) -> None:
        proxy.rule = lambda request: DENY_EACH if "?delete" in request.path else ""
        unfit = proxied.why_unfit("_manifest")
        assert unfit is not None
        assert "denies s3:DeleteObject: " in unfit.observed
        assert "s3:DeleteObject" in unfit.remedy


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    store = open_files(s3_server.store("no-such-bucket"))
    uses: list[Callable[[], object]] = [
        lambda: store.read("one"),
        lambda: store.list(""),
        lambda: store.put_if_absent("one", b"x"),
        lambda: store.create("one").seal(),
    ]
    for use in uses:
        with pytest.raises(RefusedError, match="no bucket 'no-such-bucket'"):
            use()
    unfit = store.why_unfit("_manifest")
    assert unfit is not None
    assert "no bucket 'no-such-bucket'" in unfit.observed


def test_a_key_that_the_server_does_not_know_is_denied_and_never_shown(
    s3_server: S3Server,
) -> None:
    bucket = s3_server.fresh_bucket()
    store = open_files(s3_server.store(bucket))
    s3_server.request("POST", "/moto-api/reset-auth", b"0")  # from now on keys are looked at
    try:
        with pytest.raises(AccessDeniedError, match="s3:PutObject") as denied:
            store.put_if_absent("one", b"x")
    finally:
        s3_server.request("POST", "/moto-api/reset-auth", b"inf")
    assert s3_server.access.secret not in str(denied.value)


def test_a_key_that_is_over_is_denied(proxy: Proxy, proxied: ObjectStore) -> None:
    proxy.rule = lambda _: EXPIRED
    with pytest.raises(AccessDeniedError, match="ExpiredToken"):
        proxied.read("one")


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    with pytest.raises(RefusedError, match=r"airflow-provider-cdc\[stores\]"):
        open_files(Store("s3://bucket/log"))


def test_a_store_that_does_not_answer_is_an_outage() -> None:
    access = StoreAccess("key", "s3cret", region="x", endpoint_url="http://127.0.0.1:1")
    store = open_files(Store("s3://bucket/log", access))
    for use in (lambda: store.read("one"), lambda: store.why_unfit("_manifest")):
        with pytest.raises(SinkUnreachableError, match="s3://bucket/log") as raised:
            use()
        assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(store.__dict__)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_where_the_connection_says_that_a_store_is_the_environment_is_not_asked(
    name: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    store = open_files(s3_server.store(s3_server.fresh_bucket()))
    assert store.put_if_absent("one", b"x")
    assert store.read("one") == b"x"


def test_requests_are_signed_where_there_is_a_key(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    with before(s3_server) as proxy:
        place = proxy.server.store(s3_server.fresh_bucket())
        assert open_files(place).put_if_absent("one", b"x")
        assert all("authorization" in map(str.lower, each.headers) for each in proxy.seen)


def test_a_put_that_is_not_answered_in_time_is_an_outage_at_once(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "TIMES", {"connect_timeout": "1s", "timeout": "1s"})
    over = threading.Event()
    with before(s3_server) as proxy:
        store = open_files(proxy.server.store(s3_server.fresh_bucket()))
        proxy.rule = lambda request: str(request.is_put and over.wait(60))
        with pytest.raises(SinkUnreachableError, match="no answer in time"):
            store.put_if_absent("one", b"x")
        assert sum(each.is_put for each in proxy.seen) == 1
        over.set()


def test_the_environment_says_how_to_get_in(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    store = open_files(Store(f"s3://{s3_server.fresh_bucket()}/log"))
    assert store.put_if_absent("one", b"x")
    assert store.read("one") == b"x"


def test_a_machine_without_a_key_is_told_to_have_one() -> None:
    asked = "http://169.254.169.254/latest/api/token"
    said = f"Error performing PUT {asked} in 1ms - Server returned status code: 403 Forbidden"
    errors = BucketErrors(Store("s3://company-lake/shop"))
    with (
        pytest.raises(SinkUnreachableError, match="there is no key for the store") as raised,
        errors.explained(Right.LIST),
    ):
        raise PermissionDeniedError(said)
    assert "AWS_ACCESS_KEY_ID" in raised.value.remedy
