"""Several writers of one stream: each has its slot, and a replay is exact for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, TableSchema, UniqueKey
from airflow_cdc_provider.engine.sink.selection import Selection, TableWork
from airflow_cdc_provider.engine.sink.slots import part_of, spread_columns
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema
from tests.behaviours.sink_change_behaviours import history
from tests.behaviours.sink_world import insert, update, worlds
from tests.behaviours.source_log import at
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.change_behaviours import kill_before
from tests.systems.mysql.sink.world import INT, TEXT, MySqlSinkWorld

BIG = mysql_type("bigint", unsigned=True)
WHEN = mysql_type("datetime", fraction=6)


def schema(*key: Column, unique: tuple[UniqueKey, ...] = ()) -> TableSchema:
    names = tuple(column.name for column in key)
    return TableSchema(TableId("shop", "t"), key, names, (0,) * len(key), unique)


@pytest.fixture
def world(
    mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    database = fresh_database(mysql_sink)
    yield from worlds(MySqlSinkWorld(mysql_sink, database, apply=ApplyMode.MERGED, writers=3))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ((Column("id", INT),), [list(range(-50, 50))]),
        ((Column("id", BIG),), [[2**64 - 1 - i for i in range(100)]]),
        ((Column("at", WHEN),), [[i * 1_000_000 for i in range(100)]]),
        ((Column("name", TEXT), Column("id", INT)), [["x"] * 100, list(range(100))]),
    ],
)
def test_every_key_has_exactly_one_slot(key: tuple[Column, ...], values: list[Any]) -> None:
    table = schema(*key)
    fields = arrow_schema(table.columns)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, fields, strict=True)], schema=fields
    )
    work = TableWork(TablePlan.alike(table, table.table, 0), MergedChanges(rows.slice(0, 0), rows))
    parts = [part_of(work, slot, 4).merged.upserts for slot in range(4)]
    assert sum(part.num_rows for part in parts) == 100
    assert sorted(str(r) for p in parts for r in p.to_pylist()) == sorted(
        str(r) for r in rows.to_pylist()
    )
    assert all(part.num_rows > 5 for part in parts)


def test_text_keys_and_unique_keys_are_not_spread() -> None:
    assert spread_columns(schema(Column("name", TEXT))) == ()
    unique = (UniqueKey("u", ("id",)),)
    assert spread_columns(schema(Column("id", INT), unique=unique)) == ()


def test_slots_at_different_batches_each_skip_what_they_have(
    world: MySqlSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slot is killed at a random statement, again and again; the batches come again."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    world.hand_off()
    transactions, final = history(rng, 80)
    for first in range(0, len(transactions), 4):
        batch = world.batch(*transactions[first : first + 4], start=100 + 10 * first)
        sink = world.changes()
        kill_before(sink._store._sessions[rng.randrange(3)], rng.randint(1, 12), world, monkeypatch)
        try:
            sink.apply(batch)
        except CdcError:
            world.changes().apply(batch)
        sink.close()
    assert dict(world.held()) == final
    assert world.ledger.stream().start == at(100 + 10 * len(transactions))


def test_a_slot_that_has_a_batch_does_not_apply_it_again(world: MySqlSinkWorld) -> None:
    world.hand_off()
    sink = world.changes()
    changes = [insert(i, "first") for i in range(30)]
    batch = world.batch(changes)
    done = sink._writers[1].apply(_selection(sink, batch))
    assert done is not None
    held = world.held()
    assert 0 < len(held) < 30
    assert world.ledger.stream().start == at(100)
    world.server.execute(f"UPDATE `{world.database}`.orders SET name = 'mark'")
    sink.apply(batch)
    assert len(world.held()) == 30
    assert sum(name == "mark" for _, name in world.held()) == len(held)
    assert world.ledger.stream().start == at(110)


@pytest.mark.parametrize(("before", "after"), [(3, 1), (3, 5), (1, 4)])
def test_another_number_of_writers_goes_on_from_the_smallest_slot(
    world: MySqlSinkWorld, before: int, after: int
) -> None:
    world.put((1, 10), (2, 20), table="seats")
    world.hand_off()
    sink = world.changes(writers=before)
    orders = world.batch([insert(i, "first") for i in range(30)])
    sink.apply(orders)
    swap = world.batch(
        [update((1, 10), (1, 99)), update((2, 20), (2, 10)), update((1, 99), (1, 20))],
        table="seats",
        start=110,
    )
    # every slot but one has the second batch
    for slot in sink._writers[1:]:
        slot.apply(_selection(sink, swap))
    sink.close()
    sink = world.changes(writers=after)
    assert len(sink._writers) == after
    assert world.ledger.stream().start == at(110)
    sink.apply(swap)
    sink.apply(world.batch([update((5, "first"), (5, "second"))], start=120))
    assert world.held("seats") == [(1, 20), (2, 10)]
    assert (5, "second") in world.held()
    assert world.ledger.stream().start == at(130)


def _selection(sink: Any, batch: Any) -> Any:
    return Selection(batch, sink._captured)
