"""A lake in a bucket: the behaviours of its log, and tables that nobody commits to twice there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.systems.lake import naming
from airflow_cdc_provider.systems.lake.tables import delta
from airflow_cdc_provider.systems.lake.tables.store_options import options_of
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_join_behaviours import JoinSinkBehaviours
from tests.behaviours.sink_world import Row
from tests.behaviours.target_behaviours import TargetBehaviours
from tests.servers.s3 import S3Server
from tests.servers.s3_proxy import DENY, DROP_ANSWER, Proxy, Request, before
from tests.systems.lake.published_behaviours import PublishedBehaviours
from tests.systems.lake.steps import begun, change
from tests.systems.lake.world import LakeWorld, rows_of


@pytest.fixture
def world(s3_server: S3Server, tmp_path: Path) -> LakeWorld:
    bucket = replace(s3_server.folder(s3_server.fresh_bucket(), "lake", "delta"), commit_seconds=60)
    return LakeWorld(root=tmp_path, form="delta", bucket=bucket)


class TestSplitsOfALakeInABucket(SplitSinkBehaviours):
    neighbours = 12


class TestChangesOfALakeInABucket(ChangeSinkBehaviours):
    pass


class TestTargetsOfALakeInABucket(TargetBehaviours):
    pass


class TestJoinsInALakeInABucket(JoinSinkBehaviours):
    pass


def opened(world: LakeWorld) -> DeltaTable:
    """The table as others open it."""
    place = world.place.store
    return DeltaTable(f"{place.uri}/shop.orders", storage_options=options_of(place))


def published(world: LakeWorld) -> list[Row]:
    return rows_of(world, pa.table(opened(world).to_pyarrow_table()))


def files(world: LakeWorld) -> list[str]:
    """The files of changes in the table's folder."""
    names = [name.rpartition("/")[2] for name in world.store.list("shop.orders/")]
    return [name for name in names if name.startswith(("stream-", "changes-"))]


class TestPublishedInABucket(PublishedBehaviours):
    loaded = delta.LoadedDelta

    def published(self, world: LakeWorld) -> list[Row]:
        return published(world)

    def compact(self, world: LakeWorld) -> None:
        opened(world).optimize.compact()

    def check_place(self, world: LakeWorld) -> None:
        assert len(files(world)) == 1


class TestMirroredInABucket(TestPublishedInABucket):
    @pytest.fixture
    def world(self, world: LakeWorld) -> LakeWorld:
        return replace(world, mirror_mb=512, stack=ExitStack())

    def check_place(self, world: LakeWorld) -> None:
        assert files(world) == []  # of changes


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_environment_is_not_asked_where_the_connection_says_that_the_store_is(
    name: str, world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    begun(world, (1, "a"))
    world.lake.publish_tables()
    assert published(world) == [(1, "a")]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with before(s3_server) as proxy:
        yield proxy


def through(proxy: Proxy, world: LakeWorld) -> LakeWorld:
    """The same lake and pipeline, whose requests go through the proxy."""
    assert world.bucket is not None
    return replace(world, bucket=replace(world.bucket, access=proxy.server.access))


def is_commit(request: Request) -> bool:
    return request.is_put and "_delta_log/" in request.path


@pytest.mark.parametrize("commit", ["the first", "a later one"])
def test_a_commit_whose_answer_is_lost_counts_once_and_keeps_its_files(
    commit: str, proxy: Proxy, world: LakeWorld
) -> None:
    begun(world, (1, "a"))
    if commit == "a later one":
        world.lake.publish_tables()
    change(world, 10)
    lost: list[str] = []

    def rule(request: Request) -> str:
        if is_commit(request) and not lost:
            lost.append(request.path)
            return DROP_ANSWER
        return ""

    proxy.rule = rule
    through(proxy, world).lake.publish_tables()
    assert len(lost) == 1
    assert published(world) == [(1, "a"), (10, "x")]
    change(world, 11)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x"), (11, "x")]


def test_a_commit_that_is_denied_is_an_outage_and_is_made_up_for(
    proxy: Proxy, world: LakeWorld
) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    proxy.rule = lambda request: DENY if is_commit(request) else ""
    with pytest.raises(SinkUnreachableError, match=r"shop\.orders cannot be committed to") as error:
        through(proxy, world).lake.publish_tables()
    assert world.place.access.secret not in str(error.value)
    assert "\x1b" not in str(error.value)
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


def test_a_sink_goes_to_executors_with_its_key_and_never_shows_it(world: LakeWorld) -> None:
    again: Any = pickle.loads(pickle.dumps(world.sink))
    assert again == world.sink
    assert world.place.access.secret not in f"{again!r}{again}{again.identity()}"
    assert naming.namespace(world.place) == f"s3://{world.place.store.bucket}"
    assert naming.dataset(world.place, world.orders.sink_table) == "lake/shop.orders"
    assert world.sink.preflight([world.orders], SourceLook(())) == ()
