"""A sink whose first publishing reader dies before or just after its split is committed.

It lives in a module of its own because Spark's Python workers have to import it.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.engine.sink.split_sink import RangeSplitSink
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.sink import ledger

BETWEEN_ROWS_AND_REPORT = "between rows and report"
BETWEEN_COMMIT_AND_TELLING = "between commit and telling the assigner"


@dataclass(frozen=True, slots=True)
class KillingSink(MySqlSink):
    """Deletes a row at the source and kills its own process, once."""

    source: Endpoint | None = None
    before_death: str = ""
    """The statement at the source."""
    died: Path | None = None
    """Made just before the end, so that it comes once."""
    moment: str = BETWEEN_ROWS_AND_REPORT

    def open_splits(self) -> RangeSplitSink:
        sink = MySqlSink.open_splits(self)
        store_report, publish = ledger.store_report, sink.publish

        def report_after_death(*arguments: Any) -> None:
            self.die(BETWEEN_ROWS_AND_REPORT)
            store_report(*arguments)

        def publish_before_death(*arguments: Any) -> None:
            publish(*arguments)
            self.die(BETWEEN_COMMIT_AND_TELLING)

        ledger.store_report = report_after_death  # type: ignore[assignment]
        sink.publish = publish_before_death  # type: ignore[assignment, method-assign]
        return sink

    def die(self, moment: str) -> None:
        if moment != self.moment or self.source is None or self.died is None or self.died.exists():
            return
        with closing(connect(self.source, purpose="test")) as connection:
            query(connection, self.before_death)
        self.died.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
