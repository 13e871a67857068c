"""What a task tells of its tables: names, columns, positions and rows, and no more than fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint, Folder
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.records import StreamState, TablePlan, TableState
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.core.table_shape import (
    Mask,
    MaskKind,
    OutputColumn,
    TableShape,
    shaped_schema,
)
from airflow_cdc_provider.systems.kinds import naming_of
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.mysql_sink import ADDED_TYPES
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.views.lineage import (
    MOST_BYTES,
    CopiedColumn,
    Dataset,
    Field,
    Lineage,
    LineageEntry,
    LineageSide,
    LineageWork,
    lineage,
)
from tests.behaviours.state_behaviours import ORDERS, at
from tests.views.lineage import CONSISTENT, wide

MYSQL = naming_of("mysql")
SOURCE = LineageSide(Endpoint.parse("mysql://cdc:s3cret@db.example/?ssl_disabled=true"), MYSQL)
SINK = LineageSide(Endpoint.parse("mariadb://cdc:s3cret@[::1]:3307/"), MYSQL)
STREAM = StreamState(at(500))


def told(
    *states: TableState, stream: StreamState | None = STREAM, sink: LineageSide = SINK
) -> Lineage:
    return lineage(states, stream, source=SOURCE, sink=sink, work=LineageWork())


def test_a_table_has_its_names_on_both_sides_and_nothing_of_who_gets_in() -> None:
    (table,) = told(CONSISTENT).tables
    assert (table.source.namespace, table.source.name) == ("mysql://db.example:3306", "shop.orders")
    assert (table.sink.namespace, table.sink.name) == ("mysql://[::1]:3307", "dr_shop.orders")
    assert "s3cret" not in repr(table)


def test_columns_have_the_servers_types() -> None:
    (table,) = told(CONSISTENT).tables
    types = [Field("id", "bigint unsigned"), Field("state", "enum('new','it''s paid')")]
    assert list(table.source.fields) == types
    assert list(table.sink.fields) == types
    assert table.copied == (CopiedColumn("id", "id"), CopiedColumn("state", "state"))


def test_a_generated_column_is_told_of_and_not_copied() -> None:
    total = Column("total", mysql_type("int"), generated=True)
    schema = CONSISTENT.plan.schema
    wider = replace(schema, columns=(*schema.columns, total))
    plan = TablePlan.alike(wider, CONSISTENT.plan.sink_table, 0)
    (table,) = told(replace(CONSISTENT, plan=plan)).tables
    assert table.sink.fields[-1] == Field("total", "int")
    assert table.copied == (CopiedColumn("id", "id"), CopiedColumn("state", "state"))


def test_columns_are_linked_by_their_names_on_both_sides_and_masks_are_told() -> None:
    shape = TableShape(
        columns=(
            OutputColumn("number", "id"),
            OutputColumn("state", "state", Mask(MaskKind.NULL)),
            OutputColumn("region", constant="EU"),
        )
    )
    schema, table_id = CONSISTENT.plan.schema, CONSISTENT.plan.sink_table
    plan = TablePlan(schema, shaped_schema(schema, table_id, shape, ADDED_TYPES), 0, shape)
    (table,) = told(replace(CONSISTENT, plan=plan)).tables
    assert [each.name for each in table.sink.fields] == ["number", "state", "region"]
    assert table.copied == (
        CopiedColumn("id", "number"),
        CopiedColumn("state", "state", is_masked=True),
    )


def test_a_column_that_is_left_out_is_the_sources_alone() -> None:
    schema = CONSISTENT.plan.schema.ignoring(("state",))
    plan = TablePlan.alike(schema, CONSISTENT.plan.sink_table, 0)
    (table,) = told(replace(CONSISTENT, plan=plan)).tables
    assert [each.name for each in table.source.fields] == ["id", "state"]
    assert [each.name for each in table.sink.fields] == ["id"]
    assert table.copied == (CopiedColumn("id", "id"),)


def test_a_table_of_a_change_log_is_its_folder() -> None:
    sink = LineageSide(Folder("/data/changes", "json"), naming_of("changelog"))
    (table,) = told(CONSISTENT, sink=sink).tables
    fields = (Field("id", ""), Field("state", ""))
    assert table.sink == Dataset("file", "/data/changes/dr_shop.orders", fields)


def test_a_dot_in_a_name_is_not_doubled() -> None:
    table = TableId("my.shop", "orders")
    schema = replace(CONSISTENT.plan.schema, table=table)
    (found,) = told(replace(CONSISTENT, plan=replace(CONSISTENT.plan, schema=schema))).tables
    assert found.source.name == "my.shop.orders"


def test_the_version_is_the_position_at_which_both_sides_are_equal() -> None:
    (table,) = told(CONSISTENT).tables
    assert table.version == str(at(500))


@pytest.mark.parametrize(
    ("state", "stream"),
    [
        (CONSISTENT, None),
        (CONSISTENT, replace(STREAM, inconsistent=(ORDERS,))),
        (replace(CONSISTENT, phase=TablePhase.PAUSED), STREAM),
        (replace(CONSISTENT, phase=TablePhase.FAILED), STREAM),
        (replace(CONSISTENT, phase=TablePhase.CHANGED), STREAM),
    ],
)
def test_a_table_that_is_equal_nowhere_has_no_version(
    state: TableState, stream: StreamState | None
) -> None:
    (table,) = told(state, stream=stream).tables
    assert table.version == ""


def test_long_positions_are_cut_and_still_differ() -> None:
    parts = [f"00000000-0000-0000-0000-{number:012d}:1-5" for number in range(40)]
    sets = [",".join([*parts, f"ffffffff-0000-0000-0000-000000000000:1-{last}"]) for last in (7, 8)]
    versions = {
        told(CONSISTENT, stream=StreamState(replace(at(1), gtids=GtidSet.parse(text))))
        .tables[0]
        .version
        for text in sets
    }
    assert len(versions) == 2
    assert all(len(each) < 450 for each in versions)


def test_only_the_tables_that_the_task_is_about_are_told() -> None:
    states = wide(3, 2)
    work = LineageWork(tables={states[1].table})
    found = lineage(states, STREAM, source=SOURCE, sink=SINK, work=work)
    assert [each.source.name for each in found.tables] == ["shop.table_00001"]


def test_a_snapshot_wrote_the_rows_of_its_splits_in_the_place_of_all_there_were() -> None:
    planned = replace(CONSISTENT, splits_finished=0, rows=0, bytes=0)
    for state, deed in (
        (CONSISTENT, LineageEntry(20, 900, is_overwritten=True)),
        (planned, LineageEntry(0, 0, is_overwritten=False)),
    ):
        work = LineageWork(is_snapshot=True)
        (table,) = lineage([state], None, source=SOURCE, sink=SINK, work=work).tables
        assert table.deed == deed


def test_two_thousand_tables_are_all_named_and_those_with_news_are_told_whole() -> None:
    states = wide(2000, 30)
    work = LineageWork(
        deeds={states[-1].table: LineageEntry(rows=7, position=at(900))},
        others=LineageEntry(rows=0),
    )
    found = lineage(states, STREAM, source=SOURCE, sink=SINK, work=work)
    assert len(found.tables) == 2000
    first, *others = found.tables
    assert (first.source.name, first.deed.rows, first.version) == (
        "shop.table_01999",
        7,
        str(at(900)),
    )
    whole = [each.is_whole for each in found.tables]
    assert 10 < sum(whole) < 200
    assert whole == sorted(whole, reverse=True)
    assert not any(each.sink.fields or each.copied or each.version for each in others[200:])
    assert found.cut == (
        f"{2000 - sum(whole)} of 2000 tables are told by their names only: an event has room for "
        f"{MOST_BYTES} bytes of tables"
    )


def test_tables_whose_names_do_not_fit_are_counted() -> None:
    found = lineage(wide(9000, 1), STREAM, source=SOURCE, sink=SINK, work=LineageWork())
    assert found.left_out == 9000 - len(found.tables) > 0
    assert f"and {found.left_out} not at all" in found.cut


def test_little_is_told_whole() -> None:
    found = lineage(wide(60, 10), STREAM, source=SOURCE, sink=SINK, work=LineageWork())
    assert found.cut == ""


def test_the_members_of_an_enum_are_cut() -> None:
    many = mysql_type("enum", members=tuple(f"member {number}" for number in range(500)))
    schema = replace(CONSISTENT.plan.schema, columns=(Column("kind", many),))
    plan = TablePlan.alike(schema, CONSISTENT.plan.sink_table, 0)
    (table,) = told(replace(CONSISTENT, plan=plan)).tables
    (field,) = table.source.fields
    assert len(field.type) == 64
    assert field.type.endswith("...")
