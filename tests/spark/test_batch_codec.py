"""Change batches survive their way through Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.spark.batch_codec import decode, encode, joined, parts_of
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from tests.strategies import UUIDS, binlog_positions, gtids, log_positions, mariadb_gtids

points = st.builds(
    MySqlPoint,
    st.sampled_from(UUIDS),
    st.one_of(st.none(), gtids, mariadb_gtids),
    binlog_positions,
    binlog_positions,
    st.integers(0, 2**53),
)
tables = st.builds(TableId, st.text(min_size=1), st.text(min_size=1))
effects = st.builds(
    StatementEffect,
    st.sampled_from(StatementKind),
    tables=st.lists(tables, max_size=2).map(tuple),
    databases=st.lists(st.text(), max_size=2).map(tuple),
    renames=st.lists(st.tuples(tables, tables), max_size=2).map(tuple),
    harmless=st.booleans(),
    unlogged_rows=st.booleans(),
    temporary=st.booleans(),
    reaches_all=st.booleans(),
    if_plain=st.lists(st.text(), max_size=2).map(tuple),
    drops_constraints=st.booleans(),
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.uint64(), nullable=False),
        pa.field("id", pa.decimal256(65, 30)),  # one name twice is no trouble
        pa.field("text", pa.string(), metadata={"charset": "utf8mb4"}),
    ],
    metadata={"table": "t"},
)
ROW = st.tuples(
    st.integers(0, 2**64 - 1), st.one_of(st.none(), st.decimals(0, 1, places=30)), st.text()
)


def images(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def facts(count: int) -> pa.RecordBatch:
    queries = pa.array(["a", None, "b"]).dictionary_encode()
    wanted = pa.array([number % 3 for number in range(count)], pa.int64())
    return pa.RecordBatch.from_arrays([wanted, queries.take(wanted)], names=["id", "query"])


told = st.dictionaries(st.sampled_from(["file", "pos"]), st.integers() | st.text())


@st.composite
def batches(draw: st.DrawFn) -> ChangeBatch:
    transactions = tuple(draw(st.lists(points, max_size=3)))
    tables = []
    for name in draw(st.lists(st.sampled_from(["a", "b.c", "d"]), unique=True)):
        rows = draw(st.lists(ROW, max_size=4))
        count = len(rows)
        tables.append(
            TableChanges(
                TableId("shop", name),
                pa.array([0] * count, pa.int32()),
                pa.array(range(count), pa.int64()),
                pa.array([Op.UPDATE] * count, pa.int8()),
                images(rows),
                images(rows[::-1]),
                draw(st.sampled_from([None, facts(count)])),
            )
        )
    barrier = draw(
        st.one_of(
            st.none(),
            st.builds(Statement, st.text(), st.text(), points, effects, told),
        )
    )
    end = draw(st.one_of(st.none(), log_positions))
    size = draw(st.integers(0, 10))
    origins = draw(st.frozensets(st.sampled_from(["berlin", "paris", "köln"])))
    return ChangeBatch(
        draw(log_positions), end, transactions, tuple(tables), barrier, size, origins=origins
    )


@given(batches())
def test_a_batch_reads_back_equal(batch: ChangeBatch) -> None:
    read = decode(encode(batch))
    assert (read.start, read.end, read.bytes) == (batch.start, batch.end, batch.bytes)
    assert (read.transactions, read.barrier) == (batch.transactions, batch.barrier)
    assert [changes.table for changes in read.tables] == [c.table for c in batch.tables]
    for mine, theirs in zip(read.tables, batch.tables, strict=True):
        assert (mine.op, mine.ordinal, mine.transaction) == (
            theirs.op,
            theirs.ordinal,
            theirs.transaction,
        )
        assert mine.before.equals(theirs.before, check_metadata=True)
        assert mine.after.equals(theirs.after, check_metadata=True)
        assert (mine.facts is None) == (theirs.facts is None)
        assert mine.facts is None or mine.facts.equals(theirs.facts)


@given(st.lists(st.binary(min_size=1, max_size=20)), st.integers(1, 7))
def test_parts_are_joined_to_what_was_cut(encoded: list[bytes], part_bytes: int) -> None:
    parts = [part for one in encoded for part in parts_of(one, part_bytes)]
    assert all(len(part) <= part_bytes for part, _ in parts)
    assert list(joined(parts)) == encoded


def test_reading_a_batch_does_not_copy_its_columns() -> None:
    rows: list[tuple[object, ...]] = [(i, None, "x" * 100) for i in range(1000)]
    one = pa.array([0] * 1000, pa.int32())
    changes = TableChanges(
        TableId("shop", "a"),
        one,
        one.cast(pa.int64()),
        one.cast(pa.int8()),
        images(rows),
        images(rows),
    )
    start = MySqlPosition(UUIDS[0], BinlogPosition(1, 4))
    encoded = encode(ChangeBatch(start, start, (), (changes,)))
    before = pa.total_allocated_bytes()
    decoded = decode(encoded)
    assert pa.total_allocated_bytes() - before < len(encoded) / 10
    assert decoded.changes == 1000
