"""What the engine does with positions it does with those of any system that says what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.changes import ChangeBatch, Op, TableChanges
from airflow_cdc_provider.core import codec
from airflow_cdc_provider.core.errors import PositionWentBackError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.sink.selection import CapturedTables, Selection
from airflow_cdc_provider.spark.batch_codec import decode, encode
from airflow_cdc_provider.systems import kinds
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.engine.counter_log import COUNTER, CounterPoint, CounterPosition

ORDERS = TableId("shop", "orders")
COLUMNS = pa.schema([pa.field("id", pa.int64())])
SCHEMA = TableSchema(ORDERS, (Column("id", mysql_type("bigint"), nullable=False),), ("id",), (0,))
PLAN = TablePlan.alike(SCHEMA, TableId("copy", "orders"), 0)
H = {0: 30, 1: 50}
"""What each split was settled up to; they meet at the key 100."""


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Mapping[str, kinds.SystemKind] = {**kinds.KINDS, COUNTER.name: COUNTER}
    monkeypatch.setattr(kinds, "KINDS", known)


def handed_off() -> StreamSplit:
    ranges = (KeyRange(None, (100,)), KeyRange((100,), None))
    finished = []
    for number, keys in enumerate(ranges):
        split = SnapshotSplit(ORDERS, number, ("id",), (KeyKind.INTEGER,), keys)
        high = CounterPosition(H[number])
        report = SplitReport(split.split_id, CounterPosition(10), high, 0, 0, "f", 1)
        assert (
            codec.report_from_json(json.loads(codec.dumps(codec.report_to_json(report)))) == report
        )
        finished.append(FinishedSplit.of(split, report, backfilled=True))
    return hand_off(finished)


def batch(start: int, *ids: int) -> ChangeBatch:
    """A transaction for each key: it is inserted."""
    count = len(ids)
    rows = pa.RecordBatch.from_arrays([numbers_of(list(ids))], schema=COLUMNS)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(count, pa.int64())], schema=COLUMNS)
    changes = TableChanges(
        ORDERS,
        pa.array(range(count), pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([int(Op.INSERT)] * count, pa.int8()),
        nothing,
        rows,
    )
    points = tuple(CounterPoint(start + 1 + i, 1000 + i) for i in range(count))
    return ChangeBatch(CounterPosition(start), CounterPosition(start + count), points, (changes,))


def applied(selection: Selection, at: int, stream: StreamSplit) -> list[int]:
    work = selection.work(CounterPosition(at), stream)
    return sorted(key for table in work.tables for key in table.merged.upserts["id"].to_pylist())


def test_a_hand_off_and_its_offsets_are_stored_and_read_with_the_systems_name() -> None:
    stream = handed_off()
    assert stream.start == CounterPosition(30)
    text = codec.stream_to_text(stream)
    assert '"system":"counter"' in text
    assert codec.stream_from_text(text) == stream
    assert codec.position_from_json(codec.position_to_json(stream.start)) == stream.start


def test_a_batch_travels_and_only_what_came_after_each_keys_split_is_applied() -> None:
    """Law 5, with both splits in one batch: transactions 46 to 55, of keys before and from 100."""
    ids = [1, 100, 2, 101, 3, 102, 4, 103, 5, 104]
    read = decode(encode(batch(45, *ids)))
    selection = Selection(read, CapturedTables([PLAN], {ORDERS: COLUMNS}))
    assert applied(selection, 45, handed_off()) == [1, 2, 3, 4, 5, 102, 103, 104]
    assert applied(selection, 52, handed_off()) == [5, 103, 104]


def test_a_batch_that_begins_behind_the_ledger_is_refused_unless_what_lies_between_is_quiet() -> (
    None
):
    captured = CapturedTables([PLAN], {ORDERS: COLUMNS})
    ahead = batch(60, 7)
    with pytest.raises(PositionWentBackError):
        Selection(ahead, captured).check_follows(CounterPosition(50))
    quiet = IdleRange(CounterPosition(50), CounterPosition(60), only_ledgers=False)
    Selection(ahead, captured, quiet).check_follows(CounterPosition(50))
