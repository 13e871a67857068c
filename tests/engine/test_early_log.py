"""What is passed of the log from before definitions are known, and what stops its table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.core.errors import TableChangedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Policy, SchemaPolicy
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_starts import Beginning
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.engine.stream.early_log import EarlyLog
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)

ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")
NOW = pa.schema([("id", pa.int32()), ("note", pa.int32())])
THEN = pa.schema([("id", pa.int32())])


def at(offset: int) -> MySqlPosition:
    return MySqlPosition("one", BinlogPosition(1, offset))


def point(offset: int) -> MySqlPoint:
    start, end = BinlogPosition(1, offset - 100), BinlogPosition(1, offset)
    return MySqlPoint("one", None, start, end, 0)


def plan_of(table: TableId) -> TablePlan:
    columns = (Column("id", mysql_type("int"), nullable=False), Column("note", mysql_type("int")))
    return TablePlan.alike(TableSchema(table, columns, ("id",), (0,)), table, 0)


def early_log(policy: SchemaPolicy | None = None) -> EarlyLog:
    columns = {ORDERS: NOW, OTHERS: NOW}
    captured = CapturedTables([plan_of(ORDERS), plan_of(OTHERS)], columns)
    return EarlyLog(captured, columns, policy or SchemaPolicy())


def stream(*, at_offset: int = 400, unread: bool = False) -> StreamSplit:
    began = Beginning("earliest", at(100), at(1000))
    made = StreamSplit(at(at_offset), None, (), began=began)
    made = made.with_tables(dict.fromkeys((ORDERS, OTHERS), at(at_offset)), ())
    return made if unread else made.read([ORDERS, OTHERS])


def statement(effect: StatementEffect, offset: int = 600) -> Statement:
    return Statement("shop", "ALTER TABLE ...", point(offset), effect)


def effect(kind: StatementKind, *tables: TableId, creates: bool = False) -> StatementEffect:
    return StatementEffect(kind, tables=tables or (ORDERS,), creates=creates)


def rows(columns: pa.Schema, offset: int) -> ChangeBatch:
    one = pa.RecordBatch.from_pydict({name: [1] for name in columns.names}, schema=columns)
    changes = TableChanges(
        ORDERS,
        pa.array([0], pa.int32()),
        pa.array([0], pa.int64()),
        pa.array([int(Op.INSERT)], pa.int8()),
        one,
        one,
    )
    return ChangeBatch(at(400), at(offset), (point(offset),), (changes,))


def test_a_stream_is_early_until_it_passes_where_its_definitions_were_read() -> None:
    assert stream(at_offset=999).is_early
    assert not stream(at_offset=1000).is_early
    assert not replace(stream(), began=None).is_early


def test_rows_with_the_columns_of_the_plan_pass_and_others_are_refused_with_their_place() -> None:
    early_log().require_known_columns(rows(NOW, 600), stream())
    with pytest.raises(TableChangedError) as refused:
        early_log().require_known_columns(rows(THEN, 600), stream())
    assert "planned ['id', 'note'], found ['id']" in refused.value.what
    assert "000001:500" in refused.value.where
    assert refused.value.tables == ("shop.orders",)
    assert "`reset` with --table shop.orders" in refused.value.remedy
    # what the sink has of a table already is not read again
    early_log().require_known_columns(rows(THEN, 400), stream())


def test_a_table_that_is_made_or_truncated_is_passed_alone() -> None:
    made = effect(StatementKind.CREATE, creates=True)
    (change,) = early_log().changes(statement(made), at(600), [ORDERS], stream())
    assert (change.through, change.before, change.truncates) == (at(600), change.after, False)
    assert change.leaves_sink_alone
    truncated = statement(effect(StatementKind.TRUNCATE))
    (change,) = early_log().changes(truncated, at(600), [ORDERS], stream())
    assert change.truncates
    kept = early_log(SchemaPolicy(truncate=Policy.IGNORE))
    (change,) = kept.changes(truncated, at(600), [ORDERS], stream())
    assert not change.truncates
    with pytest.raises(TableChangedError):
        early_log(SchemaPolicy(truncate=Policy.STOP)).changes(
            truncated, at(600), [ORDERS], stream()
        )


@pytest.mark.parametrize(
    ("doubtful", "end", "tables"),
    [
        (effect(StatementKind.ALTER), 600, [ORDERS]),
        (effect(StatementKind.DROP), 600, [ORDERS]),
        (effect(StatementKind.RENAME, ORDERS, OTHERS), 600, [ORDERS, OTHERS]),
        # another table of that name was dropped along with it
        (effect(StatementKind.CREATE), 600, [ORDERS]),
        # its rows come behind it in the same transaction
        (effect(StatementKind.CREATE, creates=True), 500, [ORDERS]),
        (StatementEffect(StatementKind.UNKNOWN, reaches_all=True), 600, [ORDERS, OTHERS]),
        (StatementEffect(StatementKind.DROP, databases=("shop",)), 600, [ORDERS, OTHERS]),
    ],
)
def test_any_other_statement_stops_its_tables(
    doubtful: StatementEffect, end: int, tables: list[TableId]
) -> None:
    with pytest.raises(TableChangedError, match="what it was before is not known") as refused:
        early_log().changes(statement(doubtful), at(end), tables, stream())
    assert refused.value.tables == tuple(map(str, tables))
    # of a table whose rows are to be read anyway nothing is in doubt
    assert early_log().changes(statement(doubtful), at(end), tables, stream(unread=True)) == ()
