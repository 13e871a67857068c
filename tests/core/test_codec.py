"""Every record survives its JSON form, and equal values print the same text."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise

import pytest
from hypothesis import given

from airflow_cdc_provider.core import codec, errors
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    Imprint,
    MySqlPosition,
)
from tests.strategies import UUIDS, log_positions, reports, splits, table_ids


@given(log_positions)
def test_a_position_survives_json(position: MySqlPosition) -> None:
    text = codec.dumps(codec.position_to_json(position))
    again = codec.position_from_json(json.loads(text))
    assert again == position
    assert again.imprint == position.imprint  # which does not make a place another one
    assert codec.dumps(codec.position_to_json(again)) == text


@given(splits)
def test_a_split_survives_json(split: SnapshotSplit) -> None:
    text = codec.dumps(codec.split_to_json(split))
    assert codec.split_from_json(json.loads(text)) == split


@pytest.mark.parametrize("count", [1, 2, 3000])
def test_a_stream_split_of_however_many_splits_survives_its_text(count: int) -> None:
    bounds = [None, *((number,) for number in range(1, count)), None]
    gtids = GtidSet.parse(f"{UUIDS[0]}:1-77")
    end = BinlogPosition(1, 400)
    highs = [
        MySqlPosition(str(UUIDS[0]), end, gtids, Imprint(end, 4, created, "ab"))
        for created in (1, 2)
    ]
    table = TableId("shop", "größe")
    finished = [
        FinishedSplit(
            SnapshotSplit(table, number, ("id",), (KeyKind.INTEGER,), KeyRange(*ends)),
            highs[number % 2],
            highs[number // 2 % 2],
        )
        for number, ends in enumerate(pairwise(bounds))
    ]
    stream = hand_off(finished)
    text = codec.stream_to_text(stream)
    again = codec.stream_from_text(text)
    assert again == stream
    assert [
        (each.watermark.exact, each.consistent_at.exact) for each in again.tables[0].finished
    ] == [(highs[n % 2].exact, highs[n // 2 % 2].exact) for n in range(count)]
    assert len(text) < 40 * count + 2000


@given(reports)
def test_a_report_survives_json(report: SplitReport) -> None:
    text = codec.dumps(codec.report_to_json(report))
    assert codec.report_from_json(json.loads(text)) == report


@given(table_ids)
def test_a_table_name_survives_text(table: TableId) -> None:
    assert TableId.parse(str(table)) == table


def test_a_job_spec_survives_json_and_refuses_what_it_does_not_know() -> None:
    spec = JobSpec(PipelineName("shop"), 3, JobKind.STREAM, max_batch_s=0.5)
    assert JobSpec.from_json(spec.to_json()) == spec
    newer = json.dumps({**json.loads(spec.to_json()), "of_a_later_release": 1})
    with pytest.raises(ValueError, match="of_a_later_release"):
        JobSpec.from_json(newer)


def test_an_error_survives_pickling_with_what_where_risk_and_remedy() -> None:
    error = errors.LogPurgedError("purged", "binlog.000001", "rows", "take a snapshot")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.LogPurgedError
    assert str(again) == str(error)
    assert "take a snapshot" in str(again)


def test_an_endpoint_never_shows_its_password() -> None:
    endpoint = Endpoint.parse("mysql://ann:p%40ss%2Fword@db.example:3307/?ssl_ca=%2Fca.pem")
    assert endpoint.password == "p@ss/word"
    assert endpoint.ssl_ca == "/ca.pem"
    assert "p@ss" not in repr(endpoint) + str(endpoint)
    with pytest.raises(ValueError, match="another scheme") as caught:
        Endpoint.parse("postgres://ann:sesame@db/")
    assert "sesame" not in str(caught.value)
