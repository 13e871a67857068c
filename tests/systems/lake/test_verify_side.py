"""A lake's side of a comparison has the current rows, whether the tables have them yet or not."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake import gathered, held
from airflow_cdc_provider.systems.lake.columns import OP, ORDER
from airflow_cdc_provider.systems.lake.last_changes import last_changes
from airflow_cdc_provider.systems.lake.queries import current_rows
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from tests.behaviours.sink_world import delete, insert, update
from tests.behaviours.source_log import point
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import append, begun, change, compared, rewritten
from tests.systems.lake.world import FORMATS, LakeWorld

SEED = random.SystemRandom().randrange(10_000)


def test_rows_are_current_though_the_tables_are_behind(world: LakeWorld) -> None:
    begun(world, (1, "a"), (2, "b"))
    assert compared(world) == [(1, "a"), (2, "b")]
    world.lake.publish_tables()
    assert compared(world) == [(1, "a"), (2, "b")]
    sink = world.changes()
    sink.apply(world.batch([update((1, "a"), (1, "A")), insert(3, "c"), delete(2, "b")]))
    assert compared(world) == [(1, "A"), (3, "c")]
    assert compared(world, 2, 3) == [(3, "c")]
    world.lake.publish_tables()
    sink.apply(world.batch([update((3, "c"), (4, "c"))], start=110))
    assert compared(world) == [(1, "A"), (4, "c")]


def test_what_is_published_while_it_is_looked_at_is_found_in_the_table(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    world.changes().apply(world.batch([insert(3, "c")]))
    read = gathered.batches_of
    looks: list[str] = []

    def published_first(store: ObjectStore, file: SealedFile, columns: pa.Schema) -> Any:
        if not looks:
            world.lake.publish_tables()
        looks.append(file.path)
        return read(store, file, columns)

    monkeypatch.setattr(held, "batches_of", published_first)
    assert compared(world) == [(1, "a"), (3, "c")]
    assert len(looks) == 1, "the table has the file's rows by then"


def test_a_file_that_is_gone_for_good_is_an_error(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    world.changes().apply(world.batch([insert(3, "c")]))
    (path,) = (world.root / "shop.orders").glob("stream-*")
    path.unlink()
    with pytest.raises(IntegrityError, match="a file that the log names is gone"):
        compared(world)


@pytest.mark.parametrize("held_bytes", [1, 2_000, 1 << 30])
def test_of_each_key_the_last_change_counts_however_little_memory_there_is(
    held_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rng = random.Random(SEED)
    changes: list[tuple[str, int, int | None, str | None]] = []
    expected: dict[int, str] = {}
    for order in range(900):
        key, op = rng.randrange(90), rng.choice("cuuud")
        if rng.random() < 0.003:
            changes.append(("t", order, None, None))
            expected.clear()
            continue
        changes.append((op, order, key, f"v{order}"))
        expected[key] = f"v{order}"
        if op == "d":
            del expected[key]
    rng.shuffle(changes)
    names = [OP, ORDER, "id", "v"]
    columns = [pa.array(values) for values in zip(*changes, strict=True)]
    table = pa.table(dict(zip(names, columns, strict=True)))
    found = pa.Table.from_batches(
        last_changes(table.to_batches(max_chunksize=97), ["id"], held_bytes=held_bytes),
        table.schema,
    )
    now = dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))
    assert found.num_rows == len(now)
    assert now == expected
    assert list(tmp_path.iterdir()) == []


def test_rows_from_before_a_truncate_are_not_found_by_their_keys(world: LakeWorld) -> None:
    begun(world, (1, "a"), (2, "b"))
    sink = world.changes()
    truncated = Statement(
        "shop",
        "TRUNCATE TABLE orders",
        point(110, 120),
        effect_of("TRUNCATE TABLE orders", default_database="shop"),
    )
    sink.apply(world.batch([update((1, "a"), (1, "A"))], barrier=truncated))
    sink.apply(world.batch([insert(3, "c")], start=110))
    for _ in range(2):
        assert compared(world) == compared(world, 1, 2, 3) == [(3, "c")]
        world.lake.publish_tables()


def test_a_column_of_any_name_is_read_by_the_query() -> None:
    changes = pa.table({OP: ["r", "u"], ORDER: np.array([-1, 0]), "id": [1, 1], "_Latest": [7, 8]})
    with duckdb.connect() as connection:
        connection.register("t", changes)
        assert connection.sql(current_rows(["id", "_Latest"], ["id"], "t")).fetchall() == [(1, 8)]


@pytest.mark.parametrize("world", FORMATS, indirect=True)
def test_changes_that_a_foreign_commit_doubled_are_told(world: LakeWorld) -> None:
    begun(world, (1, "a"), (2, "b"))
    world.changes().apply(world.batch([update((1, "a"), (1, "A")), delete(2, "b")]))
    world.lake.publish_tables()
    append(world, table_of(world.form, world.root, "shop.orders"))
    with duckdb.connect() as connection:
        connection.register("t", table_of(world.form, world.root, "shop.orders"))
        query = current_rows(["id", "name"], ["id"], "t")
        assert connection.sql(query).fetchall() == [(1, "A")]
    with pytest.raises(IntegrityError, match=r"orders has changes twice, 4 at least, such as .* 1"):
        compared(world)
    with pytest.raises(IntegrityError, match=r"has changes twice, 2 at least, such as .* 2"):
        compared(world, 2)


@pytest.mark.parametrize("world", ["delta"], indirect=True)
def test_rows_that_a_late_compaction_of_delta_rs_doubled_are_told(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    for number in range(10, 13):
        change(world, number)
        world.lake.publish_tables()
    late = DeltaTable(str(world.root / "shop.orders"))
    rewritten(world)
    assert len(compared(world)) == 4
    late.optimize.compact()
    with pytest.raises(IntegrityError, match="orders has changes twice"):
        compared(world)


@pytest.mark.parametrize("world", FORMATS, indirect=True)
def test_rows_of_a_split_that_is_published_again_are_there_once(world: LakeWorld) -> None:
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    world.publish(world.splits(), world.split(of="orders"), (1, "a"), (2, "b"))
    world.ledger.store_stream(world.hand_off(orders=[(1, "a"), (2, "b")]))
    for _ in range(2):
        assert compared(world) == [(1, "a"), (2, "b")]
        world.lake.publish_tables()


@pytest.mark.parametrize("held_bytes", [1, 1 << 30])
def test_only_equal_changes_behind_the_last_void_one_are_there_twice(held_bytes: int) -> None:
    told: list[tuple[int, int]] = []

    def twice(rows: pa.Table) -> None:
        told.extend(zip(rows.column("id").to_pylist(), rows.column(ORDER).to_pylist(), strict=True))

    def found(*changes: tuple[str, int | None, int | None]) -> list[tuple[int, int]]:
        told.clear()
        names = [OP, ORDER, "id"]
        kinds = [pa.string(), pa.int64(), pa.int64()]
        values = zip(zip(*changes, strict=True), kinds, strict=True)
        table = pa.table(dict(zip(names, [pa.array(*each) for each in values], strict=True)))
        batches = table.to_batches(max_chunksize=2)
        [*last_changes(batches, ["id"], held_bytes=held_bytes, on_twice=twice)]
        return sorted(told)

    assert found(("r", -1, 1), ("r", -1, 2), ("u", 5, 1), ("d", 6, 2), ("c", 7, 2)) == []
    assert found(("r", -1, 1), ("r", -1, 2), ("u", 5, 1), ("r", -1, 1), ("d", 6, 2)) == [(1, -1)]
    assert found(("u", 5, 1), ("u", 6, 1), ("d", 7, 2), ("d", 7, 2), ("u", 5, 1)) == [
        (1, 5),
        (2, 7),
    ]
    assert found(("u", 5, 1), ("u", 5, 1), ("t", 6, None), ("t", 6, None), ("c", 7, 1)) == []
    assert found(("u", 5, 1), ("u", None, 1), ("u", None, 1)) == []


def test_rows_that_others_added_without_an_order_do_not_count() -> None:
    orders = pa.array([-1, None], pa.int64())
    read = pa.table({OP: ["r", "r"], ORDER: orders, "id": [1, 2]})
    (found,) = last_changes(read.to_batches(), ["id"])
    assert found.column("id").to_pylist() == [1]
    with duckdb.connect() as connection:
        connection.register("t", read)
        assert connection.sql(current_rows(["id"], ["id"], "t")).fetchall() == [(1,)]


def test_rows_of_a_snapshot_are_before_all_changes() -> None:
    read = pa.table({OP: ["r", "r"], ORDER: np.array([-1, -1]), "id": [1, 2]})
    then = pa.table({OP: ["d"], ORDER: np.array([0]), "id": [2]})
    (found,) = last_changes([*then.to_batches(), *read.to_batches()], ["id"])
    assert found.column("id").to_pylist() == [1]
