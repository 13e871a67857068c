"""How far a stream has read a log: each file once, and never a file of another log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CorruptLogError, RefusedError, SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reads.offsets import (
    StreamOffset,
    files_between,
    require_same_log,
)
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.parts import parts_of
from tests.behaviours.sink_world import insert
from tests.systems.changelog.reads.made_logs import ORDERS, MadeLog, commits_of


@pytest.fixture
def log(tmp_path: Path) -> MadeLog:
    return MadeLog(root=tmp_path / "log")


def initial(log: MadeLog, **options: str) -> StreamOffset:
    asked = ReadOptions.parse({"path": str(log.root), "table": ORDERS, **options})
    return StreamOffset.initial(commits_of(log.root), asked)


def test_a_stream_begins_with_the_snapshot_or_where_it_is_told(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")], [insert(3, "c")])
    log.commit([insert(4, "d")])
    versions = [each.version for each in commits_of(log.root).files]
    assert initial(log).files == 0
    assert initial(log, startingVersion=str(versions[1])).files == 1
    assert initial(log, startingVersion="latest").files == 3
    inside = initial(log, startingPosition="binlog.000001:110")
    assert (inside.files, inside.start) == (1, "binlog.000001:110")
    assert StreamOffset.of_json(json.loads(json.dumps(inside.to_json()))) == inside


def test_only_the_first_micro_batch_is_cut_at_the_place_it_begins_at(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")], [insert(3, "c")])
    log.commit([insert(4, "d")])
    commits = commits_of(log.root)
    start = initial(log, startingPosition="binlog.000001:110")
    middle, end = StreamOffset.behind(commits, 2), StreamOffset.behind(commits, 3)
    ((first,),) = parts_of(commits, files_between(commits, start, middle))
    ((second,),) = parts_of(commits, files_between(commits, middle, end))
    assert (first.start is not None, second.start) == (True, None)


def test_a_stream_that_has_an_end_is_refused(log: MadeLog) -> None:
    log.begin((1, "a"))
    with pytest.raises(RefusedError, match="a stream has no endingVersion"):
        initial(log, endingVersion="5")


def test_a_log_begun_anew_is_not_read_by_offsets_of_the_former(log: MadeLog) -> None:
    log.begin((1, "a"))
    commits = commits_of(log.root)
    offset = StreamOffset.behind(commits, 1)
    log.begin_plan("two")
    log.begin((1, "A"))
    commits.read_on()
    with pytest.raises(SnapshotRequiredError, match="not there any more"):
        require_same_log(commits, offset)


def test_a_folder_that_was_replaced_is_noticed_by_who_reads_on(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    commits = commits_of(log.root)
    offset = StreamOffset.behind(commits, 2)
    shutil.rmtree(log.root)
    other = MadeLog(root=log.root, pipeline=log.pipeline)
    with pytest.raises(SnapshotRequiredError, match="the folder was replaced"):
        commits.read_on()  # it has fewer versions
    other.begin((1, "other"))
    other.commit([insert(2, "b")])
    with pytest.raises(SnapshotRequiredError, match="the folder was replaced"):
        commits.read_on()  # it has as many
    with pytest.raises(SnapshotRequiredError, match="not there any more"):
        require_same_log(commits_of(log.root), offset)


def test_a_folder_with_fewer_files_than_were_read_is_refused(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    offset = StreamOffset.behind(commits_of(log.root), 2)
    max((log.root / "_manifest").glob("manifest-*.json")).unlink()
    with pytest.raises(CorruptLogError, match="has read 2 files, and the manifests name 1"):
        require_same_log(commits_of(log.root), offset)


def test_a_follower_reads_what_is_new_and_nothing_again(log: MadeLog) -> None:
    commits = commits_of(log.root)
    assert (commits.files, commits.begin) == ([], None)
    log.begin((1, "a"))
    commits.read_on()
    commits.read_on()
    log.commit([insert(2, "b")])
    log.commit([insert(3, 5)], table="seats")
    commits.read_on()
    assert commits.files == commits_of(log.root).files
    assert len(commits.files) == 2
