"""A folder as a store: on a real file system, also where it cannot link, and when it is killed."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import RefusedError, SinkUnreachableError
from airflow_cdc_provider.systems.files import file_store
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from tests.behaviours.object_store_behaviours import ObjectStoreBehaviours

_KILLED = """
import os, signal, sys
from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.systems.files import file_store
from airflow_cdc_provider.systems.files.opening import open_files
file_store.link_once = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
open_files(Store.of_folder(sys.argv[1])).put_if_absent("one", b"half")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a store@1%"


@pytest.fixture
def store(folder: Path) -> ObjectStore:
    folder.mkdir()
    return open_files(Store.of_folder(str(folder)))


class TestAFolder(ObjectStoreBehaviours):
    """A folder of a file system."""

    def test_nothing_is_there_before_the_first_file(self, store: ObjectStore, folder: Path) -> None:
        folder.rmdir()
        assert (list(store.list("")), store.read("one")) == ([], None)
        assert not folder.exists()
        store.put_if_absent("one", b"x")
        assert [each.name for each in folder.iterdir()] == ["one"]

    def test_one_without_room_is_unfit_and_nothing_is_left_of_the_trial(
        self, store: ObjectStore, folder: Path
    ) -> None:
        assert store.why_unfit("_manifest") is None
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most[1]))  # as a quota would
        try:
            unfit = store.why_unfit("_manifest")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
        assert unfit is not None
        assert "too large" in unfit.observed
        assert "make room" in unfit.remedy
        assert not [*folder.iterdir()]

    def test_a_folder_that_is_gone_is_not_made_anew_by_a_file_in_pieces(
        self, store: ObjectStore, folder: Path
    ) -> None:
        away = folder.rename(folder.with_name("away"))
        with pytest.raises(SinkUnreachableError, match="No such file"):
            store.create("below/one")
        assert not folder.exists()
        away.rename(folder)
        store.create("below/one").discard()
        assert store.lost(["below/one", "two"]) == "below/one"
        assert store.put_if_absent("two", b"")
        assert store.lost(["two"]) == ""

    def test_a_file_in_the_place_of_the_folder_is_an_outage(
        self, store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = file_store.write_whole

        def swapped(path: Path, content: bytes) -> None:
            write(path, content)
            folder.rename(folder.with_name("away"))
            folder.touch()

        monkeypatch.setattr(file_store, "write_whole", swapped)
        with pytest.raises(SinkUnreachableError, match="Not a directory"):
            store.put_if_absent("one", b"")

    def test_a_writer_that_is_killed_leaves_no_name(self, store: ObjectStore, folder: Path) -> None:
        command = [sys.executable, "-c", _KILLED, str(folder)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert [each.read_bytes() for each in folder.iterdir()] == [b"half"]
        assert (list(store.list("")), store.read("one")) == ([], None)
        assert store.put_if_absent("one", b"whole")

    def test_a_link_whose_answer_was_lost_is_known_as_ones_own(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = os.link

        def asked_twice(old: Path, new: Path) -> None:
            link(old, new)
            link(old, new)

        monkeypatch.setattr(os, "link", asked_twice)
        assert store.put_if_absent("one", b"x")
        assert not store.put_if_absent("one", b"y")

    def test_a_file_system_without_links_is_refused(
        self, store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_links(*_: object) -> None:
            raise OSError(errno.ENOTSUP, "Operation not supported")

        monkeypatch.setattr(os, "link", no_links)
        with pytest.raises(RefusedError, match="cannot link"):
            store.put_if_absent("one", b"x")
        assert list(folder.iterdir()) == []

    def test_a_folder_that_is_none_is_named(self, folder: Path) -> None:
        folder.write_text("a file")
        store = open_files(Store.of_folder(str(folder)))
        for use in (lambda: store.put_if_absent("one", b"x"), lambda: store.list("")):
            with pytest.raises(SinkUnreachableError, match="a store@1%"):
                use()


def test_a_store_of_a_later_release_is_refused() -> None:
    with pytest.raises(RefusedError, match="'hdfs' are not in this release"):
        open_files(Store("hdfs://host/changes"))
