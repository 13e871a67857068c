"""Rows of a lake that are read again while their table flows."""

from __future__ import annotations

from tests.behaviours.sink_join_behaviours import JoinSinkBehaviours


class TestJoinsInALake(JoinSinkBehaviours):
    pass
