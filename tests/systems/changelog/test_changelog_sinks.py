"""The sink behaviours on change logs of each form."""

from __future__ import annotations

from tests.behaviours.sink_behaviours import SplitSinkBehaviours
from tests.behaviours.sink_change_behaviours import ChangeSinkBehaviours


class TestSplitsInAChangeLog(SplitSinkBehaviours):
    pass


class TestChangesInAChangeLog(ChangeSinkBehaviours):
    pass
