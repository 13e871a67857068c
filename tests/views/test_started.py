"""What is shown of a pipeline that began without a snapshot: nobody calls its tables consistent."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.overview import TableOverview
from airflow_cdc_provider.core.records import Note
from airflow_cdc_provider.core.requests import (
    Request,
    RequestKind,
    RequestStatus,
    Scope,
    read_as_a_whole,
)
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.views.page_tables import table_forms
from airflow_cdc_provider.views.started import shown_phase, started_of

ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")
AT = position_to_json(MySqlPosition("one", BinlogPosition(12, 4711)))
NOTE = Note(500, {"by": "latest", "at": AT})
DONE = Request(
    PipelineName("shop"),
    "r1",
    RequestKind.RESYNC,
    Scope((ORDERS,)),
    "ann",
    600,
    RequestStatus.DONE,
    changed_us=700,
)


def test_only_a_request_for_whole_tables_since_a_time_has_read_all_of_their_rows() -> None:
    part = replace(DONE, scope=Scope((ORDERS,), (KeyRange((1,), (2,)),)))
    failed = replace(DONE, status=RequestStatus.FAILED)
    assert read_as_a_whole([part, failed, replace(DONE, kind=RequestKind.REMOVE)]) == {}
    assert read_as_a_whole([DONE, part], since_us=700) == {ORDERS: 700}
    assert read_as_a_whole([DONE], since_us=701) == {}


def test_a_table_is_following_until_all_of_its_rows_are_read() -> None:
    started = started_of(NOTE, [DONE])
    assert started is not None
    assert started.text == "began without a snapshot at binlog.000012:4711: latest"
    assert shown_phase(TablePhase.CONSISTENT, OTHERS, started) == "following"
    assert shown_phase(TablePhase.CONSISTENT, ORDERS, started) == "consistent"
    assert shown_phase(TablePhase.FAILED, OTHERS, started) == "failed"
    assert shown_phase(TablePhase.CONSISTENT, OTHERS, None) == "consistent"
    tables = [
        TableOverview(str(each), str(each), TablePhase.CONSISTENT, True, 0, NO_ERROR)
        for each in (ORDERS, OTHERS)
    ]
    forms = table_forms(tables, [DONE], None, is_streamed=True, started=started)
    assert [form["phase"] for form in forms] == ["consistent", "following"]


def test_a_pipeline_that_began_with_a_snapshot_has_no_start_to_show() -> None:
    assert started_of(None) is None
    assert started_of(Note(500, {})) is None
