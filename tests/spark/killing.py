"""A sink whose first publishing reader dies between a split's rows and its report.

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
from airflow_cdc_provider.mysql.connection import connect, query
from airflow_cdc_provider.sinks import ledger
from airflow_cdc_provider.sinks.mysql_splits import MySqlSplitSink
from airflow_cdc_provider.sinks.opening import Sink


@dataclass(frozen=True, slots=True)
class KillingSink(Sink):
    """Deletes a row at the source and kills its own process, once."""

    source: Endpoint | None = None
    before_death: str = ""
    """The statement at the source."""
    died: Path | None = None
    """Made just before the end, so that it comes once."""

    def open_splits(self) -> MySqlSplitSink:
        store_report = ledger.store_report

        def die(session: Any, *rest: Any) -> None:
            if self.died is not None and self.source is not None and not self.died.exists():
                with closing(connect(self.source, purpose="test")) as connection:
                    query(connection, self.before_death)
                self.died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            store_report(session, *rest)

        ledger.store_report = die  # type: ignore[assignment]
        return Sink.open_splits(self)
