"""The ledger's store on MySQL and MariaDB."""

from __future__ import annotations

from tests.behaviours.ledger_behaviours import ChangingTablesBehaviours
from tests.systems.mysql.sink.mysql_sinks import MariaDbByInsert, MySqlByLoad


class TestLedgerOnMySql(MySqlByLoad, ChangingTablesBehaviours):
    pass


class TestLedgerOnMariaDb(MariaDbByInsert, ChangingTablesBehaviours):
    pass
