"""Positions: order where there is one, questions where there is not."""

from __future__ import annotations

import pytest
from hypothesis import given

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from tests.strategies import UUIDS, binlog_positions, log_positions

HERE, THERE, _ = UUIDS


@given(binlog_positions)
def test_printing_and_parsing_are_inverse(position: BinlogPosition) -> None:
    assert BinlogPosition.parse(str(position)) == position


def test_files_are_ordered_by_number_not_by_text() -> None:
    assert BinlogPosition.of("bin.999999", 9) < BinlogPosition.of("bin.1000000", 4)


def point(number: int, *, server: str = HERE, gtid: bool = True) -> MySqlPoint:
    return MySqlPoint(
        server_uuid=server,
        gtid=Gtid.parse(f"{HERE}:{number}") if gtid else None,
        start=BinlogPosition(1, number * 100),
        end=BinlogPosition(1, number * 100 + 100),
        committed_us=0,
    )


def test_a_gap_in_the_gtid_set_is_not_contained_though_its_position_is_passed() -> None:
    low = MySqlPosition(HERE, BinlogPosition(1, 500), GtidSet.parse(f"{HERE}:1:3"))
    assert low.contains(point(3))
    assert not low.contains(point(2))


def test_a_transaction_that_ends_at_the_position_is_contained_and_the_next_is_not() -> None:
    high = MySqlPosition(HERE, BinlogPosition(1, 300))
    assert high.contains(point(2, gtid=False))
    assert not high.contains(point(3, gtid=False))


def test_another_servers_offsets_are_never_compared() -> None:
    high = MySqlPosition(HERE, BinlogPosition(1, 300))
    with pytest.raises(IncomparablePositionsError):
        high.contains(point(2, server=THERE, gtid=False))
    with pytest.raises(IncomparablePositionsError):
        high.covers(MySqlPosition(THERE, BinlogPosition(1, 200)))


@given(log_positions, log_positions)
def test_both_positions_cover_their_meet(left: MySqlPosition, right: MySqlPosition) -> None:
    try:
        both = left.meet(right)
    except IncomparablePositionsError:
        return
    assert left.covers(both)
    assert right.covers(both)


def test_moving_past_a_transaction_contains_it() -> None:
    start = MySqlPosition(HERE, BinlogPosition(1, 200), GtidSet.parse(f"{HERE}:1"))
    moved = start.after(point(2))
    assert moved.contains(point(2))
    assert str(moved.gtids) == f"{HERE}:1-2"
    assert moved.binlog == BinlogPosition(1, 300)


def test_gtids_alone_are_at_the_latest_place_whose_gtids_they_cover() -> None:
    start = MySqlPosition(HERE, None, GtidSet.parse(f"{HERE}:1-7"))
    highs = [
        MySqlPosition(HERE, BinlogPosition(1, 500), GtidSet.parse(f"{HERE}:1-5")),
        MySqlPosition(HERE, BinlogPosition(2, 70), GtidSet.parse(f"{HERE}:1-7")),
        MySqlPosition(HERE, BinlogPosition(2, 80), GtidSet.parse(f"{HERE}:1-8")),
        MySqlPosition(THERE, BinlogPosition(9, 4), GtidSet.parse(f"{HERE}:1-2")),
        MySqlPosition(HERE, BinlogPosition(9, 4)),
    ]
    placed = start.placed_by(highs)
    assert (placed.binlog, placed.gtids) == (BinlogPosition(2, 70), start.gtids)
    assert placed.reaches(highs[1])
    assert not placed.reaches(highs[2])


def test_a_position_that_has_a_place_keeps_it() -> None:
    start = MySqlPosition(HERE, BinlogPosition(1, 4), GtidSet.parse(f"{HERE}:1-7"))
    high = MySqlPosition(HERE, BinlogPosition(2, 70), GtidSet.parse(f"{HERE}:1-7"))
    assert start.placed_by([high]) == start
    by_file = MySqlPosition(HERE, BinlogPosition(1, 4))
    assert by_file.placed_by([high]) == by_file
