"""The sink behaviours on a change log in a bucket, and who is killed or overtaken there."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.errors import FencedError, RefusedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.systems.changelog import naming
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_world import insert
from tests.behaviours.target_behaviours import TargetBehaviours
from tests.servers.s3 import S3Server
from tests.servers.s3_proxy import DROP_ANSWER, STRIP, Proxy, Request, before
from tests.systems.changelog.killed import KILLED_IN, PIPELINE
from tests.systems.changelog.world import ChangelogWorld


@pytest.fixture
def world(s3_server: S3Server, tmp_path: Path) -> ChangelogWorld:
    bucket = s3_server.folder(s3_server.fresh_bucket(), form=Format.PARQUET)
    return ChangelogWorld(root=tmp_path, form=Format.PARQUET, bucket=bucket)


class TestSplitsInABucket(SplitSinkBehaviours):
    neighbours = 12


class TestChangesInABucket(ChangeSinkBehaviours):
    pass


class TestTargetsInABucket(TargetBehaviours):
    pass


def found(world: ChangelogWorld) -> list[tuple[str, Level]]:
    findings = world.under(1).preflight([world.orders], SourceLook(()))
    return [(finding.code, finding.level) for finding in findings]


def test_a_bucket_that_fits_is_left_as_it_was(world: ChangelogWorld) -> None:
    listed = world.store.list("_manifest/")
    assert found(world) == []
    assert world.store.list("_manifest/") == listed


def test_its_tables_are_named_as_lineage_names_files_of_a_bucket(world: ChangelogWorld) -> None:
    bucket = world.place.store.bucket
    assert naming.namespace(world.place) == f"s3://{bucket}"
    assert naming.dataset(world.place, world.orders.sink_table) == "log/shop.orders"


def test_a_sink_goes_to_executors_with_its_key_and_never_shows_it(
    s3_server: S3Server, world: ChangelogWorld
) -> None:
    again = pickle.loads(pickle.dumps(world.sink))
    assert again == world.sink
    assert s3_server.access.secret not in f"{again!r}{again}{again.identity()}"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with before(s3_server) as proxy:
        yield proxy


def through(proxy: Proxy, world: ChangelogWorld) -> ChangelogWorld:
    """The same log and pipeline, whose requests go through the proxy."""
    assert world.bucket is not None
    return replace(world, bucket=replace(world.bucket, access=proxy.server.access))


def test_a_store_that_overwrites_is_refused(proxy: Proxy, world: ChangelogWorld) -> None:
    proxy.rule = lambda request: STRIP if request.is_put else ""
    assert found(through(proxy, world)) == [("sink.store", Level.BLOCK)]


def test_a_bucket_that_is_not_there_is_a_finding(
    s3_server: S3Server, world: ChangelogWorld
) -> None:
    world.bucket = s3_server.folder("no-such-bucket")
    assert found(world) == [("sink.store", Level.BLOCK)]


def test_a_commit_whose_answer_was_lost_counts_once(proxy: Proxy, world: ChangelogWorld) -> None:
    world.stream_from((1, "read"))
    lost: list[str] = []

    def lose_each_first(request: Request) -> str:
        is_new = request.is_put and "/_manifest/" in request.path and request.path not in lost
        if not is_new:
            return ""
        lost.append(request.path)
        return DROP_ANSWER

    proxy.rule = lose_each_first
    sink = through(proxy, world).changes()
    for number in range(2, 5):
        sink.apply(world.batch([insert(number, "streamed")], start=80 + 10 * number))
    assert len(lost) == 3
    assert [event["key"]["id"] for event in world.events()] == [1, 2, 3, 4]


def test_a_writer_that_is_overtaken_before_its_commit_is_refused(
    proxy: Proxy, world: ChangelogWorld
) -> None:
    world.stream_from()
    late = through(proxy, world).changes()
    owner = world.under(2).open_ledger()
    overtaken: list[str] = []

    def overtake(request: Request) -> str:
        if request.is_put and "/_manifest/" in request.path and not overtaken:
            overtaken.append(request.path)
            owner.take_over(2)
        return ""

    proxy.rule = overtake
    with pytest.raises(FencedError):
        late.apply(world.batch([insert(1, "late")]))
    assert overtaken
    assert world.held() == []
    world.changes(2).apply(world.batch([insert(1, "in time")]))
    assert world.held() == [(1, "in time")]


def test_what_nobody_committed_is_deleted_by_the_next_owner(world: ChangelogWorld) -> None:
    world.sink.open_targets().claim([world.orders])
    world.publish(world.splits(), world.split(), (1, "old"))
    world.publish(world.splits(), world.split(), (1, "new"), high=200)
    assert world.store.put_if_absent("shop.orders/notes.txt", b"not ours")
    assert len(world.store.list("shop.orders/")) == 3
    world.under(2).open_ledger().take_over(2)
    assert len(world.store.list("shop.orders/")) == 2
    assert world.store.read("shop.orders/notes.txt") == b"not ours"
    assert world.held() == [(1, "new")]


def test_files_of_others_are_a_conflict(world: ChangelogWorld) -> None:
    assert world.store.put_if_absent("shop.seats/part-0.json", b"{}")
    with pytest.raises(RefusedError, match="holds files"):
        world.sink.open_targets().claim([world.orders, world.seats])


def test_a_state_read_from_a_checkpoint_is_the_one_added_up(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "CHECKPOINT_EVERY", 4)
    world.stream_from((1, "a"), (12, "b"), splits=(None, 10, None))
    sink = world.changes()
    for number in range(20, 25):
        sink.apply(world.batch([insert(number, "c")], start=100 + 10 * (number - 20)))
    by_checkpoint = Manifest(world.store, "").read_any()
    checkpoints = world.store.list("_manifest/checkpoints/")
    assert len(checkpoints) == 2
    for name in checkpoints:
        world.store.delete(name)
    assert by_checkpoint == Manifest(world.store, "").read_any()


@pytest.mark.parametrize("stage", ["between seal and manifest", "behind the manifest"])
def test_who_comes_after_a_killed_writer_loses_nothing_and_doubles_nothing(
    s3_server: S3Server, tmp_path: Path, stage: str
) -> None:
    bucket = s3_server.folder(s3_server.fresh_bucket())
    ran = subprocess.run(
        [sys.executable, "-m", "tests.systems.changelog.killed", bucket.address, stage],
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL
    world = ChangelogWorld(root=tmp_path, bucket=bucket, pipeline=PIPELINE, generation=2)
    position = world.ledger.stream().start.binlog.offset
    is_committed = stage == "behind the manifest"
    assert (position - 100) // 10 == (KILLED_IN if is_committed else KILLED_IN - 1)
    sink = world.changes(2)
    for number in range(1, 6):  # read again from the beginning: what is there is known
        sink.apply(world.batch([insert(number, "streamed")], start=90 + 10 * number))
    assert [event["key"]["id"] for event in world.events()] == [100, *range(1, 6)]
    assert [marker["status"] for marker in world.markers()] == ["BEGIN", "END"] * 5
    for folder in ("shop.orders/", "transaction/"):
        assert len([name for name in world.store.list(folder) if "stream-" in name]) == 5
