"""Where a stream starts: read from the file, kept as text, and kept with the stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.codec import stream_from_text, stream_to_text
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stopped_tables import stopped_in
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_starts import Beginning, StartKind, StreamStart
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

ORDERS = TableId("shop", "orders")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(offset: int, server: str = "one", last: int = 5) -> MySqlPosition:
    return MySqlPosition(server, BinlogPosition(1, offset), GtidSet.parse(f"{UUID}:1-{last}"))


def begun() -> StreamSplit:
    began = Beginning("latest", at(400), at(500, last=9))
    return StreamSplit(at(400), None, (), began=began).with_tables({ORDERS: at(400)}, ())


@given(
    st.one_of(
        st.sampled_from([StartKind.AFTER_SNAPSHOT, StartKind.EARLIEST, StartKind.LATEST]).map(
            StreamStart
        ),
        st.text("abc-:,.0123", min_size=1).map(lambda text: StreamStart.at("gtid", text)),
        st.datetimes(timezones=st.timezones()).map(
            lambda moment: StreamStart.at("timestamp", moment.isoformat())
        ),
    )
)
def test_a_start_is_read_back_from_its_text(start: StreamStart) -> None:
    assert StreamStart.parse(str(start)) == start


def test_no_text_is_a_start_behind_a_snapshot() -> None:
    assert not StreamStart.parse("")
    assert StreamStart.parse("latest")


def test_a_start_is_shown_as_the_file_has_it() -> None:
    assert StreamStart(StartKind.LATEST).as_written == "latest"
    place = StreamStart.at("position", "binlog.000001:4")
    assert place.as_written == '{position: "binlog.000001:4"}'


def test_a_moment_without_a_zone_is_none() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        StreamStart.at("timestamp", "2026-01-01T00:00:00")


def test_a_stream_keeps_where_it_began_and_one_of_an_earlier_release_began_with_a_snapshot() -> (
    None
):
    assert stream_from_text(stream_to_text(begun())) == begun()
    assert "began" not in stream_to_text(StreamSplit(at(400), None, ()))
    (alone,) = stopped_in(begun(), {ORDERS})
    assert alone.began == begun().began


def test_definitions_are_known_from_the_end_of_then_on_also_at_another_server() -> None:
    began = begun().began
    assert began is not None
    assert began.is_before_known(at(400))
    assert not began.is_before_known(at(500))
    assert began.is_before_known(at(4711, server="two", last=8))
    assert not began.is_before_known(at(120, server="two", last=9))


def test_a_history_that_is_accepted_has_the_definitions_of_the_plan() -> None:
    moved = begun().gone_on_from(at(100, last=3), ())
    assert moved.began is not None
    assert not moved.began.is_before_known(moved.start)
