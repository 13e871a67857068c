"""The sink behaviours on the log of a lake, and what its rows say of changes."""

from __future__ import annotations

import pytest

from tests.behaviours.ledger_behaviours import ChangingTablesBehaviours
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_world import delete, insert, update
from tests.behaviours.target_behaviours import TargetBehaviours
from tests.behaviours.unlike_target_behaviours import UnlikeTargetBehaviours
from tests.systems.lake.world import FORMATS, LakeWorld

whatever_tables_hold = pytest.mark.parametrize("world", FORMATS, indirect=True)


@whatever_tables_hold
class TestSplitsInALake(SplitSinkBehaviours):
    pass


@whatever_tables_hold
class TestChangesInALake(ChangeSinkBehaviours):
    pass


@whatever_tables_hold
class TestTargetsOfALake(TargetBehaviours):
    pass


@whatever_tables_hold
class TestUnlikeTargetsInALake(UnlikeTargetBehaviours):
    pass


@whatever_tables_hold
class TestLedgerOfALake(ChangingTablesBehaviours):
    pass


def test_each_row_says_what_became_of_it_and_in_which_order(world: LakeWorld) -> None:
    world.ledger.store_stream(world.hand_off(orders=[(1, "a"), (2, "b")]))
    sink = world.changes()
    sink.apply(world.batch([update((1, "a"), (1, "A")), insert(3, "c")]))
    sink.apply(world.batch([update((3, "c"), (4, "c")), delete(2, "b")], start=110))
    assert [
        (each["_op"], each["id"], each["name"], each["_order"])
        for each in world.logged().to_pylist()
    ] == [
        ("r", 1, "a", -1),
        ("r", 2, "b", -1),
        ("u", 1, "A", 0),
        ("c", 3, "c", 1),
        ("d", 3, "c", 2),
        ("c", 4, "c", 3),
        ("d", 2, "b", 4),
    ]
    assert world.held() == [(1, "A"), (4, "c")]
