"""The GTID algebra against plain Python sets."""

from __future__ import annotations

import pytest
from hypothesis import given

from airflow_cdc_provider.systems.mysql.positions.gtid import (
    Gtid,
    GtidSet,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from tests.strategies import UUIDS, gtid_sets, gtids, mariadb_gtids, mariadb_positions


def members(gtid_set: GtidSet) -> set[Gtid]:
    return {
        Gtid(source, number)
        for source, spans in gtid_set.intervals.items()
        for start, end in spans
        for number in range(start, end)
    }


@given(gtid_sets)
def test_printing_and_parsing_are_inverse(gtid_set: GtidSet) -> None:
    assert GtidSet.parse(str(gtid_set)) == gtid_set


@given(gtid_sets, gtid_sets)
def test_equal_sets_print_the_same_text(left: GtidSet, right: GtidSet) -> None:
    assert (str(left) == str(right)) == (members(left) == members(right))


@given(gtid_sets, gtid_sets)
def test_algebra_is_that_of_sets(left: GtidSet, right: GtidSet) -> None:
    assert members(left.union(right)) == members(left) | members(right)
    assert members(left.intersection(right)) == members(left) & members(right)
    assert members(left.subtract(right)) == members(left) - members(right)
    assert left.covers(right) == (members(left) >= members(right))
    assert len(left) == len(members(left))


@given(gtid_sets, gtids)
def test_adding_one_transaction_adds_just_that_one(gtid_set: GtidSet, gtid: Gtid) -> None:
    grown = gtid_set.add(gtid)
    assert members(grown) == members(gtid_set) | {gtid}
    assert gtid in grown
    assert (gtid in gtid_set) == (gtid in members(gtid_set))


def test_the_servers_own_text_forms_are_read() -> None:
    text = f"{UUIDS[0].upper()}:1-5:7:tag_a:1-3:9,\n{UUIDS[1]}:4"
    assert str(GtidSet.parse(text)) == f"{UUIDS[0]}:1-5:7:tag_a:1-3:9,{UUIDS[1]}:4"
    assert not GtidSet.parse(" ")


@pytest.mark.parametrize(
    "text",
    ["nonsense", UUIDS[0], f"{UUIDS[0]}:", f"{UUIDS[0]}:0", f"{UUIDS[0]}:1-2-3", f"{UUIDS[0]}:5-3"],
)
def test_what_is_not_a_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        GtidSet.parse(text)


@given(mariadb_positions, mariadb_positions)
def test_a_mariadb_position_is_a_prefix_of_each_domain(
    left: MariaDbGtidPosition, right: MariaDbGtidPosition
) -> None:
    assert MariaDbGtidPosition.parse(str(left)) == left
    both = left.intersection(right)
    assert left.covers(both)
    assert right.covers(both)


@given(mariadb_positions, mariadb_gtids)
def test_a_mariadb_position_contains_what_was_added(
    position: MariaDbGtidPosition, gtid: MariaDbGtid
) -> None:
    assert gtid in position.add(gtid)
