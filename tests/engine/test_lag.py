"""The lag that is told grows while a stream stands still before log that waits."""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.engine.stream.lag import Lag
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

SECOND = 1_000_000


def place(offset: int) -> MySqlPosition:
    return MySqlPosition("3e11fa47-71ca-11e1-9e33-c80aa9429562", BinlogPosition(1, offset))


def test_a_stream_that_stands_before_more_log_is_further_and_further_behind() -> None:
    lag = Lag()
    assert lag.at(place(10), place(90), 5, 9 * SECOND) == 5
    assert lag.at(place(10), place(90), 5, 11 * SECOND) == 2 * SECOND + 5
    assert lag.at(place(20), place(99), 7, 12 * SECOND) == 7


def test_a_stream_that_was_behind_already_is_further_behind_from_the_first_second_on() -> None:
    lag = Lag()
    assert lag.at(place(10), place(90), 600 * SECOND, 1_000 * SECOND) == 600 * SECOND
    assert lag.at(place(10), place(90), 600 * SECOND, 1_002 * SECOND) == 602 * SECOND
    assert lag.at(place(20), place(90), 590 * SECOND, 1_003 * SECOND) == 590 * SECOND


def test_at_the_end_of_the_log_nothing_is_behind_however_long_it_stands() -> None:
    lag = Lag()
    assert lag.at(place(10), place(10), 5, 0) == 0
    assert lag.at(place(10), place(10), 5, 60 * SECOND) == 0
    assert lag.at(place(10), place(20), 5, 70 * SECOND) == 10 * SECOND


def test_a_stream_that_has_caught_up_is_never_again_as_late_as_it_was_before() -> None:
    lag = Lag()
    assert lag.at(place(10), place(90), 600 * SECOND, 1_000 * SECOND) == 600 * SECOND
    assert lag.at(place(90), place(90), 600 * SECOND, 1_001 * SECOND) == 0
    assert lag.at(place(90), place(95), 600 * SECOND, 1_003 * SECOND) == 2 * SECOND


def test_who_was_at_the_end_may_be_behind_since_that_was_last_known() -> None:
    lag = Lag()
    assert lag.at(place(10), place(10), 5, 1 * SECOND) == 0
    assert lag.at(place(10), None, 5, 4 * SECOND) == 3 * SECOND
    assert lag.at(place(10), None, 5, 61 * SECOND) == 60 * SECOND
    assert lag.at(place(10), place(10), 5, 62 * SECOND) == 0


def test_without_the_end_of_the_log_a_stream_that_stands_is_further_and_further_behind() -> None:
    lag = Lag()
    assert lag.at(place(10), None, 5, 1 * SECOND) == 5
    assert lag.at(place(10), None, 5, 61 * SECOND) == 60 * SECOND + 5
    assert lag.at(place(20), None, 7, 62 * SECOND) == 7
    assert Lag().at(place(10), None, None, 62 * SECOND) is None


def test_before_the_first_change_no_lag_is_known() -> None:
    lag = Lag()
    assert lag.at(place(10), place(90), None, 0) is None
    assert lag.at(place(10), place(90), None, 60 * SECOND) is None


def test_who_was_at_the_end_before_the_first_change_is_behind_since_then() -> None:
    lag = Lag()
    assert lag.at(place(10), place(10), None, 1 * SECOND) == 0
    assert lag.at(place(10), place(90), None, 4 * SECOND) == 3 * SECOND
    assert lag.at(place(10), None, None, 5 * SECOND) == 4 * SECOND
    assert lag.at(place(20), place(90), None, 6 * SECOND) is None
    unknown = Lag(StreamState(place(10), lag_us=None, heartbeat_us=2 * SECOND))
    assert unknown.at(place(10), place(90), None, 9 * SECOND) is None


def test_a_stream_that_begins_where_another_ended_is_behind_since_that_one_was_heard_of() -> None:
    told = StreamState(place(10), lag_us=0, heartbeat_us=100 * SECOND)
    assert Lag(told).at(place(10), place(90), 5, 150 * SECOND) == 50 * SECOND
    behind = replace(told, lag_us=7 * SECOND)
    lag = Lag(behind)
    assert lag.at(place(10), place(90), 5, 150 * SECOND) == 57 * SECOND
    assert lag.at(place(20), place(90), 6, 151 * SECOND) == 6
    assert Lag(behind).at(place(10), place(10), 5, 150 * SECOND) == 0
    assert Lag(behind).at(place(20), place(90), 5, 150 * SECOND) == 5
    never_heard_of = replace(told, heartbeat_us=0)
    assert Lag(never_heard_of).at(place(10), place(90), 5, 150 * SECOND) == 5
