"""The ledger's store in a change log."""

from __future__ import annotations

from tests.behaviours.ledger_behaviours import FixedTablesBehaviours


class TestLedgerOfAChangeLog(FixedTablesBehaviours):
    pass
