"""What an earlier release has stored is still read, and written again as it was.

An older worker, or a release put back, then reads what this one writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_cdc_provider.core import codec
from airflow_cdc_provider.core.errors import (
    IncomparablePositionsError,
    IntegrityError,
    PipelineFileError,
)
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.pipeline.file.shown import ShownPipeline
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.triggers.verdict import StreamEvent
from tests.strategies import UUIDS

FOLDER = Path(__file__).parent.parent / "data/stored"
STORED: dict[str, Any] = json.loads((FOLDER / "positions_0.1.0.json").read_text("utf-8"))
ERRORS: dict[str, Any] = json.loads((FOLDER / "errors_0.1.0.json").read_text("utf-8"))
PLACES = range(len(STORED["positions"]))


@pytest.mark.parametrize("number", PLACES)
def test_a_position_of_the_first_release_is_read_and_written_again_byte_by_byte(
    number: int,
) -> None:
    text = STORED["positions"][number]
    position = codec.position_from_json(json.loads(text))
    assert str(position) == STORED["printed"][number]
    assert codec.dumps(codec.position_to_json(position)) == text


@pytest.mark.parametrize("number", PLACES)
def test_an_offset_in_a_checkpoint_of_the_first_release_is_the_same_place(number: int) -> None:
    offset = STORED["offsets"][number]
    position = codec.position_from_json(json.loads(offset))
    assert codec.position_to_json(position.bare()) == json.loads(offset)
    assert position == codec.position_from_json(json.loads(STORED["positions"][number]))


def test_a_report_of_the_first_release_is_written_again_byte_by_byte() -> None:
    report = codec.report_from_json(json.loads(STORED["report"]))
    assert codec.dumps(codec.report_to_json(report)) == STORED["report"]


def test_a_stream_split_of_the_first_release_is_read_whether_packed_or_not() -> None:
    stream = codec.stream_from_text(STORED["stream"])
    assert codec.stream_to_text(stream) == STORED["stream"]
    packed = codec.stream_from_text(STORED["packed_stream"])
    assert len(packed.tables[0].finished) == 300
    assert packed.start == stream.start


def test_quiet_log_of_the_first_release_is_written_again_byte_by_byte() -> None:
    quiet = codec.idle_range_from_json(json.loads(STORED["quiet"]))
    assert codec.dumps(codec.idle_range_to_json(quiet)) == STORED["quiet"]


def test_a_change_logs_manifest_of_the_first_release_moves_its_stream() -> None:
    state = LogState()
    for record in STORED["manifest"]:
        state.apply(record)
    assert state.stream is not None
    assert codec.dumps(state.stream.start.to_json()) == codec.dumps(
        STORED["manifest"][-1]["position"]
    )


@pytest.mark.parametrize("stored", ERRORS["errors"], ids=lambda stored: stored["stored"][:20])
def test_an_error_of_the_first_release_is_read_and_printed_as_it_was(
    stored: dict[str, Any],
) -> None:
    error = StoredError(stored["stored"])
    assert str(error) == stored["stored"]
    assert (error.read().code, [*error.read().args]) == (stored["code"], stored["facts"])


def test_a_dag_of_the_first_release_says_what_is_wrong_with_its_file() -> None:
    shown = ShownPipeline.from_text(ERRORS["shown"])
    assert shown is not None
    error = shown.refused.read()
    assert (type(error), error.what) == (PipelineFileError, "split_row is no field")
    assert (error.where, error.remedy) == ("shop.yaml:line 7", "did you mean split_rows?")
    assert shown.to_text() == ERRORS["shown"]


def test_an_event_of_a_trigger_of_the_first_release_is_read() -> None:
    event = StreamEvent.from_payload(ERRORS["event"])
    assert (event.detail, event.error) == (ERRORS["event"]["detail"], "")


def test_a_position_of_an_unknown_system_is_refused_by_name() -> None:
    with pytest.raises(IntegrityError, match="'oracle'"):
        codec.position_from_json({"system": "oracle", "scn": 7})


def test_positions_of_two_systems_are_never_compared() -> None:
    ours = MySqlPosition.from_json(json.loads(STORED["positions"][1]))
    theirs = cast(LogPosition, Elsewhere())
    assert not ours.reaches(theirs)
    assert ours.may_be_purged(theirs)
    for ask in (ours.covers, ours.meet, ours.join):
        with pytest.raises(IncomparablePositionsError):
            ask(theirs)
    with pytest.raises(IncomparablePositionsError):
        ours.contains(cast(TransactionPoint, Transaction()))


class Transaction:
    """A transaction of a system that is not ours."""

    where = "log of another system"


class Elsewhere:
    """A position of a system that is not ours."""

    system = "other"
    server = UUIDS[0]

    def __str__(self) -> str:
        return "elsewhere"
