"""What every store of files must do, whatever it is: run on each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from airflow_cdc_provider.systems.files.object_store import ObjectStore

WRITERS = 8


class ObjectStoreBehaviours:
    """Subclasses have a fixture `store`: an empty one."""

    def test_a_file_is_read_as_it_was_put(self, store: ObjectStore) -> None:
        content = bytes(range(256)) * 1000
        assert store.put_if_absent("log/one.json", content)
        assert store.read("log/one.json") == content
        assert store.put_if_absent("empty", b"")
        assert store.read("empty") == b""

    def test_a_file_that_is_not_there_is_no_content(self, store: ObjectStore) -> None:
        assert store.read("none.json") is None
        assert store.read("none/at/all.json") is None

    def test_a_name_is_given_once(self, store: ObjectStore) -> None:
        assert store.put_if_absent("one", b"first")
        assert not store.put_if_absent("one", b"second")
        assert not store.put_if_absent("one", b"first")
        assert store.read("one") == b"first"

    def test_one_of_many_writers_gets_a_name(self, store: ObjectStore) -> None:
        together = Barrier(WRITERS)

        def put(number: int) -> list[int]:
            won = []
            for name in range(20):
                together.wait()
                if store.put_if_absent(f"log/{name:02d}", str(number).encode()):
                    won.append(name)
            return won

        with ThreadPoolExecutor(WRITERS) as writers:
            won = list(writers.map(put, range(WRITERS)))
        assert sorted(name for names in won for name in names) == list(range(20))
        for number, names in enumerate(won):
            assert all(store.read(f"log/{name:02d}") == str(number).encode() for name in names)

    def test_names_are_listed_in_order_by_their_beginning(self, store: ObjectStore) -> None:
        for name in ("b", "log/2", "log/10", "log/deep/3", "a"):
            store.put_if_absent(name, b"x")
        assert list(store.list("log/")) == ["log/10", "log/2"]
        assert list(store.list("log/1")) == ["log/10"]
        assert list(store.list("")) == ["a", "b"]
        assert list(store.list("none/")) == []

    def test_a_name_that_was_deleted_is_free(self, store: ObjectStore) -> None:
        store.put_if_absent("one", b"first")
        store.delete("one")
        store.delete("one")
        assert store.read("one") is None
        assert store.put_if_absent("one", b"second")

    @pytest.mark.parametrize("name", ["", "/etc/passwd", "../one", "log/../one", "log//one", ".a"])
    def test_a_name_that_leads_elsewhere_is_none(self, store: ObjectStore, name: str) -> None:
        for use in (store.read, store.delete, lambda name: store.put_if_absent(name, b"")):
            with pytest.raises(ValueError, match="no name in a store"):
                use(name)

    def test_a_file_in_pieces_has_its_name_when_it_is_sealed(self, store: ObjectStore) -> None:
        file = store.create("log/one.json")
        for _ in range(3):
            with file.explained():
                file.stream.write(b"piece")
        assert (store.read("log/one.json"), list(store.list("log/"))) == (None, [])
        assert file.seal() == 15
        assert store.read("log/one.json") == b"piece" * 3
        assert list(store.list("log/")) == ["log/one.json"]
        assert list(store.unfinished("log/")) == []

    def test_a_large_file_in_pieces_is_whole(self, store: ObjectStore) -> None:
        piece = bytes(range(256)) * 4096 * 7
        file = store.create("log/large")
        for _ in range(3):
            with file.explained():
                file.stream.write(piece)
        assert file.seal() == 3 * len(piece)
        assert store.read("log/large") == piece * 3

    def test_a_file_that_is_discarded_leaves_nothing(self, store: ObjectStore) -> None:
        file = store.create("log/one.json")
        with file.explained():
            file.stream.write(b"half")
        file.discard()
        assert (store.read("log/one.json"), list(store.unfinished("log/"))) == (None, [])
        again = store.create("log/one.json")
        again.seal()
        assert store.read("log/one.json") == b""

    def test_a_folder_of_a_store_is_a_store(self, store: ObjectStore) -> None:
        below = store.below("log").below("deep")
        assert below.put_if_absent("one", b"x")
        assert store.read("log/deep/one") == b"x"
        assert (list(below.list("")), str(below)) == (["one"], f"{store}/log/deep")

    def test_a_folder_that_holds_a_file_is_told_from_one_that_holds_none(
        self, store: ObjectStore
    ) -> None:
        assert not store.holds_any("log")
        store.put_if_absent("log/deep/one", b"x")
        assert store.holds_any("log")
        assert not store.holds_any("lo")
        store.delete("log/deep/one")
        assert not store.holds_any("log/deep")

    def test_a_trial_finds_nothing_missing_and_leaves_nothing(self, store: ObjectStore) -> None:
        assert store.why_unfit("_manifest") is None
        assert not store.holds_any("_manifest")
        assert list(store.list("")) == []
