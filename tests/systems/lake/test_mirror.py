"""Tables of current rows: which files a commit writes again, and what is there then."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import NO_LAYOUT, PartitionField, TableLayout
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.lake import mirror, sorted_files
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS, OP, ORDER
from airflow_cdc_provider.systems.lake.marks import SoftDeletes
from airflow_cdc_provider.systems.lake.mirror import Limit, Rewrite, rewritten
from airflow_cdc_provider.systems.lake.partitions import Partition
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles
from airflow_cdc_provider.systems.lake.tables.bounds import bounds_in
from airflow_cdc_provider.systems.lake.tables.table import Bounds
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import delete, insert, update
from tests.systems.lake.conftest import MIRRORS
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import append, begun, change, compared, keep_snapshots, published
from tests.systems.lake.steps import rewritten as compacted
from tests.systems.lake.world import LakeWorld, rows_there

TABLE = TableId("shop", "orders")
COLUMNS = pa.schema(
    [("a", pa.int64()), ("b", pa.string()), ("v", pa.int64()), *CHANGE_COLUMNS.items()]
)
mirrors = pytest.mark.parametrize("world", MIRRORS, indirect=True)


@dataclass(frozen=True)
class Held:
    """A file of a table, as it is on the disk."""

    root: Path
    name: str
    reads: list[str]
    key: str
    partition: Partition = ()

    @property
    def path(self) -> str:
        return self.name

    @property
    def rows(self) -> int:
        return int(pq.read_metadata(self.root / self.name).num_rows)

    @property
    def bytes(self) -> int:
        return (self.root / self.name).stat().st_size

    @property
    def bounds(self) -> Bounds | None:
        return bounds_in(pq.read_metadata(self.root / self.name), self.key)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.reads.append(self.name)
        yield from pq.read_table(self.root / self.name, columns=list(names)).to_batches(
            max_chunksize=3
        )


@dataclass
class Table:
    """A table of current rows, and the rows that it must have."""

    root: Path
    key: tuple[str, ...]
    files: list[Held]
    order: int | None = None
    next_order: int = 0
    megabytes: int = 1
    soft: SoftDeletes | None = None
    layout: TableLayout = NO_LAYOUT

    @property
    def columns(self) -> pa.Schema:
        return COLUMNS if self.soft is None else COLUMNS.append(pa.field("gone", pa.int32()))

    def commit(self, changes: Sequence[tuple[str, int, str]]) -> Rewrite:
        """Rewrite by changes, each an operation and a key."""
        rows = []
        for op, a, b in changes:
            own = {"a": a, "b": b, "v": self.next_order} if op != "t" else {}
            if self.soft is not None:
                own["gone"] = int(op in "dt")
                op = "u" if op == "d" else op  # noqa: PLW2901 - as deletes are shaped
            rows.append({**own, OP: op, ORDER: self.next_order})
            self.next_order += 1
        out = SortedFiles(
            open_files(Store.of_folder(str(self.root))),
            "t",
            self.columns,
            self.key,
            "mirror",
            self.layout,
        )
        batches = pa.Table.from_pylist(rows, self.columns).to_batches(max_chunksize=4)
        limit = Limit(TABLE, self.megabytes)
        done = rewritten(self.files, batches, out, limit, self.order, self.soft)
        gone = {id(each) for each in done.gone}
        left = [each for each in self.files if id(each) not in gone]
        column = mirror.bounded_column(self.key, self.columns)
        made = [Held(self.root, each.name, [], column, each.partition) for each in done.made]
        self.files, self.order = [*left, *made], done.order
        return done

    def read(self) -> pa.Table:
        tables = [pq.read_table(self.root / each.name) for each in self.files]
        return pa.concat_tables(tables) if tables else self.columns.empty_table()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "t").mkdir()
    return Table(tmp_path, ("a",), [])


CHANGES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("ccuudt"), st.integers(-3, 40), st.sampled_from(["", "x", "ä"])),
        max_size=30,
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(commits=CHANGES, key=st.sampled_from([("a",), ("b", "a"), ("a", "b")]), small=st.booleans())
def test_after_each_commit_the_rows_are_the_last_ones_of_their_keys(
    commits: list[list[tuple[str, int, str]]],
    key: tuple[str, ...],
    small: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("mirror")
    (root / "t").mkdir()
    table, model = Table(root, key, []), dict[tuple[Any, ...], int]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sorted_files, "_PIECE_BYTES", 700)
        patched.setattr(mirror, "_SMALL_BYTES", 10_000_000 if small else 0)
        for changes in commits:
            order = table.next_order
            table.commit(changes)
            for number, (op, a, b) in enumerate(changes, order):
                of = tuple({"a": a, "b": b}[name] for name in key)
                if op == "t":
                    model.clear()
                elif op == "d":
                    model.pop(of, None)
                else:
                    model[of] = number
            found = table.read()
            keys = zip(*(found.column(name).to_pylist() for name in key), strict=True)
            orders = found.column(ORDER).to_pylist()
            assert sorted(zip(keys, orders, strict=True)) == sorted(model.items())
            assert found.column("v").to_pylist() == orders
            if table.order is not None:
                assert table.order in orders


@settings(max_examples=30, deadline=None)
@given(commits=CHANGES, key=st.sampled_from([("a",), ("b", "a")]), small=st.booleans())
def test_no_row_goes_where_deleted_ones_are_kept(
    commits: list[list[tuple[str, int, str]]],
    key: tuple[str, ...],
    small: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("mirror")
    (root / "t").mkdir()
    table = Table(root, key, [], soft=SoftDeletes(["gone"]))
    model = dict[tuple[Any, ...], tuple[int, int, int]]()  # flag, order, and that of the values
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sorted_files, "_PIECE_BYTES", 700)
        patched.setattr(mirror, "_SMALL_BYTES", 10_000_000 if small else 0)
        for changes in commits:
            order = table.next_order
            table.commit(changes)
            for number, (op, a, b) in enumerate(changes, order):
                of = tuple({"a": a, "b": b}[name] for name in key)
                if op == "t":
                    lives = {each: row for each, row in model.items() if not row[0]}
                    model |= {each: (1, number, row[2]) for each, row in lives.items()}
                else:
                    model[of] = int(op == "d"), number, number
            found = table.read()
            keys = zip(*(found.column(name).to_pylist() for name in key), strict=True)
            told = zip(
                *(found.column(name).to_pylist() for name in ("gone", ORDER, "v")), strict=True
            )
            assert sorted(zip(keys, told, strict=True)) == sorted(model.items())
            assert table.order is None or table.order in found.column(ORDER).to_pylist()


def test_files_without_a_changed_row_stay_and_are_not_read_beyond_their_bounds(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_SMALL_BYTES", 0)  # each stands for a large one
    for start in (0, 100, 200):
        table.commit([("c", n, "x") for n in range(start, start + 50)])
    low, middle, high = table.files
    done = table.commit([("u", 101, "y"), ("d", 149, "x"), ("c", 220, "x"), ("c", 260, "x")])
    assert [*done.gone] == [middle, high]
    assert low.reads == []
    assert table.read().num_rows == 150
    again = table.commit([("c", 60, "x")])  # between two files
    assert ([*again.gone], low.reads) == ([], [])


def test_files_are_found_by_the_number_behind_a_text_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_SMALL_BYTES", 0)
    table = Table(tmp_path, ("b", "a"), [])
    for start, shop in ((0, "x"), (0, "y"), (100, "x")):
        table.commit([("c", n, shop) for n in range(start, start + 50)])
    low, other, high = table.files
    low.reads.clear()
    other.reads.clear()
    done = table.commit([("u", 101, "x"), ("d", 149, "x")])
    assert ([*done.gone], low.reads, other.reads) == ([high], [], [])
    done = table.commit([("d", 7, "y")])
    assert [*done.gone] == [other]
    assert table.read().num_rows == 148


def test_the_greatest_order_is_known_as_long_as_its_row_is_there(table: Table) -> None:
    table.commit([("c", 1, "x"), ("c", 2, "x")])
    table.commit([("d", 1, "x")])
    assert table.order == 1
    table.commit([("d", 2, "x")])
    assert table.order is None


def test_small_files_grow_together_and_each_row_is_written_again_few_times(table: Table) -> None:
    written = 0
    for number in range(256):
        done = table.commit([("c", 4 * number + n, "x") for n in range(4)])
        written += sum(each.rows for each in done.made)
        assert len(table.files) <= 9
    assert table.read().num_rows == 1024
    assert written <= 1024 * 10


def test_texts_that_do_not_fit_into_one_array_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "_PART_BYTES", 1 << 20)
    columns = COLUMNS.remove(2).insert(2, pa.field("v", pa.string()))
    text = pa.repeat(pa.scalar("y" * (1 << 26)), 1)
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([n]),
                pa.array(["x"]),
                text,
                pa.array(["u"]),
                pa.array([100 + n]),
                pa.array(["p"]),
                pa.array([0], CHANGE_COLUMNS["_committed_at"]),
            ],
            schema=columns,
        )
        for n in range(36)  # 2.25 GB
    ]
    last = mirror._Last(pa.Table.from_batches(batches), ["a"], emptied=mirror.Emptied())
    parts = list(last.taken(np.array([35, 0, 7])))
    assert sorted(part.column("a")[0].as_py() for part in parts) == [0, 7, 35]
    assert last.by_key(np.array([35, 0, 7])).tolist() == [0, 7, 35]


def test_more_than_may_be_written_again_is_refused_with_figures(
    table: Table, tmp_path: Path
) -> None:
    table.megabytes = 1
    table.commit([("c", 1, secrets.token_hex(1 << 21))])
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(RefusedError, match=r"in 1 files of . MB .* than 1 MB again"):
        table.commit([("u", 1, "y")])
    assert sorted(tmp_path.rglob("*.parquet")) == before
    table.megabytes = 100
    table.commit([("u", 1, "y")])
    assert table.read().column("b").to_pylist() == ["y"]


def test_a_commit_that_fails_leaves_no_file(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_SMALL_BYTES", 0)
    table.commit([("c", n, "x") for n in range(10)])
    table.commit([("c", n, "x") for n in range(10, 20)])
    before = sorted(tmp_path.rglob("*.parquet"))

    def broken(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from second.batches(names)
        if OP in names:
            assert len(sorted(tmp_path.rglob("*.parquet"))) == len(before) + 1
            raise OSError(5, "Input/output error")

    first, second = table.files
    table.files = [first, _Broken(second, broken)]  # type: ignore[list-item]
    with pytest.raises(OSError, match="Input/output"):
        table.commit([("u", 1, "y"), ("u", 11, "y")])
    assert sorted(tmp_path.rglob("*.parquet")) == before


@dataclass(frozen=True)
class _Broken:
    """A file that cannot be read to its end."""

    file: Held
    batches: Any

    rows = property(lambda self: self.file.rows)
    bytes = property(lambda self: self.file.bytes)
    bounds = property(lambda self: self.file.bounds)
    partition = ()


@mirrors
def test_files_of_a_snapshot_become_the_tables_and_those_with_changed_rows_do_not(
    world: LakeWorld,
) -> None:
    begun(world, (1, "a"), (2, "b"))
    world.lake.publish_tables()
    (first,) = (world.root / "shop.orders").glob("*.parquet")
    assert first.name.startswith("split-")
    change(world, 10)
    world.changes().apply(world.batch([update((2, "b"), (2, "B"))], start=110))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (2, "B"), (10, "x")]


@mirrors
def test_a_file_of_a_snapshot_that_the_table_never_gets_is_deleted(world: LakeWorld) -> None:
    begun(world, (1, "a"), (2, "b"))
    world.changes().apply(world.batch([update((2, "b"), (2, "B")), delete(1, "a")]))
    world.lake.publish_tables()
    assert [each.name[:6] for each in (world.root / "shop.orders").glob("*.parquet")] == ["mirror"]
    assert published(world) == [(2, "B")]


@mirrors
def test_a_plan_is_never_gone_on_with_in_another_mode(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    other = replace(world, mirror_mb=0, stack=world.stack)
    for look in (other.lake.publish_tables, other.lake.has_unpublished):
        with pytest.raises(RefusedError, match="begun with `mode: mirror`, and the file says `mo"):
            look()
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


@pytest.mark.parametrize("world", ["iceberg", "delta"], indirect=True)
def test_a_plan_of_changes_is_never_gone_on_with_as_current_rows(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    other = replace(world, mirror_mb=512, stack=world.stack)
    with pytest.raises(RefusedError, match="begun with `mode: append`, and the file says `mode: m"):
        other.lake.publish_tables()


@mirrors
def test_rows_that_others_appended_count_and_are_replaced_with_their_keys(
    world: LakeWorld,
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    theirs = [{"id": 10, "name": "theirs"}, {"id": 20, "name": "more"}]
    there = table_of(world.form, world.root, "shop.orders").schema
    append(world, pa.Table.from_pylist(theirs, there))
    assert compared(world) == [(1, "a"), (10, "theirs"), (20, "more")]
    change(world, 10)
    assert compared(world) == [(1, "a"), (10, "x"), (20, "more")]
    world.lake.publish_tables()
    assert compared(world) == [(1, "a"), (10, "x"), (20, "more")]
    world.changes().apply(world.batch([delete(20, "more")], start=110))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


@mirrors
def test_rows_that_others_doubled_are_an_error_and_are_mended_by_reading_them_again(
    world: LakeWorld,
) -> None:
    begun(world, (1, "a"), (12, "b"), (13, "c"))
    world.lake.publish_tables()
    there = table_of(world.form, world.root, "shop.orders")
    append(world, there.filter(pc.greater(there.column("id"), 11)))
    with pytest.raises(
        IntegrityError, match=r"orders has rows twice, of 2 keys at least, such as 12"
    ):
        compared(world)
    join(world, world.opened(world.lake.open_joins()), world.split(0, 10, 20), (12, "b"))
    world.lake.publish_tables()
    assert published(world) == compared(world) == [(1, "a"), (12, "b")]


@mirrors
def test_changes_that_do_not_become_rows_hold_no_other_table_up(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    world.changes().apply(world.batch([insert(1, 7)], start=110, table="seats"))

    def taken(*_: Any) -> Iterator[pa.Table]:
        raise pa.ArrowInvalid("offset overflow")

    with monkeypatch.context() as patched:
        patched.setattr(sorted_files, "in_columns", taken)
        with pytest.raises(IntegrityError, match=r"of shop.orders in the log do not .* overflow"):
            world.lake.publish_tables()
    assert published(world) == [(1, "a")]
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "x")]


@mirrors
def test_a_table_that_others_compacted_is_gone_on_with(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    world.lake.publish_tables()
    compacted(world)
    world.changes().apply(world.batch([update((10, "x"), (10, "y")), insert(11, "z")], start=110))
    world.lake.publish_tables()
    assert published(world) == [(1, "a"), (10, "y"), (11, "z")]


@pytest.mark.parametrize("world", ["iceberg_mirror"], indirect=True)
def test_a_commit_to_iceberg_costs_what_the_one_before_it_did(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_SMALL_BYTES", 0)  # so that each commit adds a file
    begun(world, (1, "a"), (2, "b"))
    world.lake.publish_tables()
    table = catalog_of(world.root).load_table(("shop", "orders"))
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "4"})
    for number in range(10, 30):
        changes = [insert(number, "x"), update((1, "a"), (1, "a"))]
        world.changes().apply(world.batch(changes, start=10 * number))
        world.lake.publish_tables()
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 4
    assert len(published(world)) == 22


@pytest.mark.parametrize("world", ["iceberg_mirror"], indirect=True)
def test_files_that_no_kept_snapshot_of_iceberg_has_are_deleted(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    keep_snapshots(world, 3)
    for number in range(10, 40):
        change(world, number)
        world.lake.publish_tables()
    table = catalog_of(world.root).load_table(("shop", "orders"))
    assert len(list((world.root / "shop.orders").glob("*.parquet"))) <= 12
    for each in table.metadata.snapshots:
        assert table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows >= 26
    assert published(world) == [(1, "a"), *((number, "x") for number in range(10, 40))]


@pytest.mark.parametrize("world", ["delta_mirror"], indirect=True)
def test_files_that_delta_keeps_no_longer_are_deleted(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    folder = str(world.root / "shop.orders")
    retention = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    DeltaTable(folder).alter.set_table_properties(retention)
    for number in range(10, 40):
        change(world, number)
        world.lake.publish_tables()
    assert len(list(Path(folder).glob("*.parquet"))) <= 20
    assert published(world) == [(1, "a"), *((number, "x") for number in range(10, 40))]


def test_rows_of_a_mirror_are_there_once() -> None:
    rows = pa.table({"id": [1, 1], OP: ["r", "u"], ORDER: [0, 1]})
    with pytest.raises(AssertionError, match="twice"):
        rows_there(rows, ["id"])


def test_rows_that_move_between_partitions_leave_few_files(table: Table) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    table.layout = TableLayout((PartitionField("b"),))
    table.commit([("c", a, rng.choice("wxyz")) for a in range(400)])
    wanted = {row["a"]: row["b"] for row in table.read().to_pylist()}
    for _ in range(120):
        moved = {a: rng.choice("wxyz") for a in rng.sample(range(400), 3)}
        wanted |= moved
        table.commit([("u", a, b) for a, b in moved.items()])
    found = table.read().to_pylist()
    assert len(found) == len(wanted)
    assert {row["a"]: row["b"] for row in found} == wanted
    for each in table.files:
        assert {*pq.read_table(table.root / each.name).column("b").to_pylist()} == {*each.partition}
    assert len(table.files) < 40
