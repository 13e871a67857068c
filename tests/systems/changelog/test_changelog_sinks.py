"""The sink behaviours on change logs of each form."""

from __future__ import annotations

from airflow_cdc_provider.engine.sink.own_log import HasOwnLog
from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours
from tests.behaviours.sink_world import SinkWorld
from tests.behaviours.target_behaviours import TargetBehaviours
from tests.behaviours.unlike_target_behaviours import UnlikeTargetBehaviours


class TestSplitsInAChangeLog(SplitSinkBehaviours):
    pass


class TestChangesInAChangeLog(ChangeSinkBehaviours):
    pass


class TestTargetsOfAChangeLog(TargetBehaviours):
    pass


class TestUnlikeTargetsInAChangeLog(UnlikeTargetBehaviours):
    pass


def test_a_change_log_offers_no_log_of_its_own(world: SinkWorld) -> None:
    assert not isinstance(world.sink, HasOwnLog)
