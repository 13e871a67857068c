"""What every sink must do, by `engine.sink` over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviours.ledger_behaviours import ChangingTablesBehaviours
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_join_behaviours import JoinSinkBehaviours
from tests.behaviours.sink_world import worlds
from tests.engine.sink.world import MemoryWorld


@pytest.fixture
def world() -> Iterator[MemoryWorld]:
    yield from worlds(MemoryWorld())


class TestSplitsInMemory(SplitSinkBehaviours):
    pass


class TestChangesInMemory(ChangeSinkBehaviours):
    pass


class TestJoinsInMemory(JoinSinkBehaviours):
    pass


class TestLedgerInMemory(ChangingTablesBehaviours):
    pass


class TestSeveralWritersInMemory(ChangeSinkBehaviours):
    @pytest.fixture
    def world(self) -> Iterator[MemoryWorld]:
        yield from worlds(MemoryWorld(writers=3))
