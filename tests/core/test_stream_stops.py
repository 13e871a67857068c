"""Where a stream ends: read from the file, kept as text, and compared with where a stream is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.codec import stream_from_text, stream_to_text
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_stops import StopKind, StreamStop, has_ended
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

STOP = StreamStop(StopKind.POSITION, "binlog.000001:500")


def at(offset: int, server: str = "one") -> MySqlPosition:
    return MySqlPosition(server, BinlogPosition(1, offset))


@given(
    st.one_of(
        st.sampled_from([StopKind.NEVER, StopKind.CONSISTENT, StopKind.SNAPSHOT_ONLY]).map(
            StreamStop
        ),
        st.text("abc-:,.0123", min_size=1).map(lambda text: StreamStop.at("gtid", text)),
        st.datetimes(timezones=st.timezones()).map(
            lambda moment: StreamStop.at("timestamp", moment.isoformat())
        ),
    )
)
def test_a_stop_is_read_back_from_its_text(stop: StreamStop) -> None:
    assert StreamStop.parse(str(stop)) == stop


def test_no_text_is_no_stop() -> None:
    assert not StreamStop.parse("")


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 01:00:00.000001+01:00", 1),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000_000),
    ],
)
def test_a_moment_is_counted_to_the_microsecond(text: str, time_us: int) -> None:
    assert StreamStop.at("timestamp", text).time_us == time_us


def test_a_moment_without_a_zone_is_none() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        StreamStop.at("timestamp", "2026-01-01T00:00:00")


def test_a_stream_has_ended_where_it_has_reached_the_place_of_the_same_words() -> None:
    stream = StreamSplit(at(500), None, ()).ending_at(at(500), str(STOP))
    assert has_ended(stream, STOP)
    assert not has_ended(stream, StreamStop(StopKind.POSITION, "binlog.000001:900"))
    assert not has_ended(stream, StreamStop())
    assert not has_ended(stream.ending_at(at(501), str(STOP)), STOP)
    assert not has_ended(stream.ending_at(at(500, "two"), str(STOP)), STOP)
    assert not has_ended(StreamSplit(at(500), None, ()), STOP)


def test_a_stream_keeps_its_end_and_one_of_an_earlier_release_has_none() -> None:
    stream = StreamSplit(at(400), at(500), (), str(STOP))
    assert stream_from_text(stream_to_text(stream)) == stream
    assert "stop_by" not in stream_to_text(StreamSplit(at(400), None, ()))
