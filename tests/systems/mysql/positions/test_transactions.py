"""Transactions as columns answer what each of them would answer alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.positions import TransactionPoint
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_points import (
    TransactionPoints,
)
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from airflow_cdc_provider.systems.mysql.positions.transactions import (
    facts_of,
    from_columns,
    index_of,
    to_columns,
)
from tests.strategies import UUIDS, gtid_sets, gtids, mariadb_gtids, mariadb_positions

places = st.builds(BinlogPosition, st.integers(1, 2), st.sampled_from([4, 8]))
positions = st.builds(
    MySqlPosition,
    st.sampled_from(UUIDS[:2]),
    places,
    st.none() | gtid_sets | mariadb_positions,
) | st.builds(MySqlPosition, st.sampled_from(UUIDS[:2]), st.none(), gtid_sets)


def points_of(
    servers: st.SearchStrategy[str], names: st.SearchStrategy[object]
) -> st.SearchStrategy:
    point = st.builds(MySqlPoint, servers, names, places, places, st.integers(0, 1 << 50))
    return st.lists(point, max_size=6).map(tuple)


points = st.one_of(
    points_of(st.just(UUIDS[0]), gtids),
    points_of(st.just(UUIDS[0]), mariadb_gtids),
    points_of(st.just(UUIDS[0]), st.none()),
    points_of(st.sampled_from(UUIDS[:2]), st.one_of(st.none(), gtids, mariadb_gtids)),
)


def asked_one_by_one(each: Sequence[TransactionPoint], position: MySqlPosition) -> object:
    try:
        return [position.contains(point) for point in each]
    except IncomparablePositionsError:
        return "not comparable"


def asked_at_once(each: Sequence[TransactionPoint], position: MySqlPosition) -> object:
    try:
        return index_of(each).within(position, np.arange(len(each))).tolist()
    except IncomparablePositionsError:
        return "not comparable"


@given(points, positions)
def test_an_index_answers_as_each_transaction_does(
    records: tuple[MySqlPoint, ...], position: MySqlPosition
) -> None:
    expected = asked_one_by_one(records, position)
    assert asked_at_once(records, position) == expected
    assert asked_at_once(from_columns(to_columns(records)), position) == expected


@given(points)
def test_columns_read_back_equal_to_the_records(records: tuple[MySqlPoint, ...]) -> None:
    read = from_columns(to_columns(records))
    assert tuple(read) == records
    assert tuple(from_columns(to_columns(read))) == records
    assert facts_of(read) == facts_of(records)


def test_an_origin_that_none_of_the_chosen_transactions_has_changes_no_answer() -> None:
    """Columns that were cut out of a larger batch keep its origins."""
    named = MySqlPoint(
        UUIDS[0], Gtid(GtidSource(UUIDS[0]), 7), BinlogPosition(1, 4), BinlogPosition(1, 9), 0
    )
    anonymous = MySqlPoint(UUIDS[0], None, BinlogPosition(1, 9), BinlogPosition(1, 12), 0)
    both = from_columns(to_columns((named, anonymous)))
    assert isinstance(both, TransactionPoints)
    first = both.chosen(np.array([0]))
    seven = MySqlPosition(UUIDS[0], None, GtidSet.parse(f"{UUIDS[0]}:7"))
    assert asked_at_once(first, seven) == [True]


def test_a_transaction_without_a_gtid_is_told_by_its_place() -> None:
    place = BinlogPosition(7, 120)
    point = MySqlPoint(UUIDS[0], None, place, BinlogPosition(7, 300), 0)
    assert point.where == f"log at {place}, a transaction without GTID"
