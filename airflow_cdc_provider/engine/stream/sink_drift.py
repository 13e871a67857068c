"""Looking now and then whether the sink's tables are still as they were made.

Somebody may change a table of the sink behind the stream's back, and the server may then alter the
values that are written without a word. So a thread of the driver reads the definitions every few
minutes, over a connection of its own. What it finds stops the table, or the stream. Values that
were there may be others by then, so it asks for the table's rows too: once the table is as it was,
and flows, they are read again.

Our own changes are no drift: nothing is looked at while one is made, nor a table whose change was
begun and not ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import closing, suppress

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    SinkTableChangedError,
)
from airflow_cdc_provider.core.table_drift import TableDrift, drift_error
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.drifted import ask_for_drifted
from airflow_cdc_provider.engine.stream.isolated_tables import TableIsolation
from airflow_cdc_provider.engine.stream.stream_control import Following

log = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0


class TableLooks:
    """Checks now and then whether the sink's tables changed; a context manager."""

    def __init__(self, job: Job, following: Following, every_s: float | None = None) -> None:
        self._job = job
        self._following = following
        self._every_s = LOOK_EVERY_S if every_s is None else every_s
        self._found: SinkTableChangedError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-tables", daemon=True)

    def __enter__(self) -> TableLooks:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        if isinstance(error, CdcError) and not isinstance(error, (RetryableError, FencedError)):
            with suppress(CdcError):  # met by what writes, which cannot ask for rows
                self.look()
        elif error is None and self._found is not None:
            raise self._found

    def _run(self) -> None:
        """Check at each interval; stop the table that drifted, or the stream."""
        while not self._closing.wait(self._every_s):
            try:
                self.look()
            except SinkTableChangedError as found:
                if TableIsolation(self._job, self._following).stop(found):
                    self._following.begin_again()
                else:
                    self._found = found
                    self._following.ending.set()
                return
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except CdcError as error:
                cause = self._job.servers.secrets.scrub(str(error))
                log.warning("no look at the sink's tables: cause=%s", cause)

    def look(self) -> None:
        """Check once, unless a change is being made; raise the drift, and request a resync."""
        if not self._following.changing.acquire(blocking=False):
            return
        try:
            drifts = self._drifts()
        finally:
            self._following.changing.release()
        if drifts:
            tables = [drift.table for drift in drifts]
            spec = self._job.spec
            ask_for_drifted(self._job.store, spec.pipeline, tables, edge=spec.edge)
            raise drift_error(drifts, f"sink of {self._job.spec.pipeline}")

    def _drifts(self) -> Sequence[TableDrift]:
        """Return the stream's tables that changed at the sink."""
        sink = self._job.sink()
        with closing(sink.open_targets()) as targets:
            ours = self._following.tables - targets.changing()
        plans = [plan for plan in self._job.plans() if plan.schema.table in ours]
        with closing(sink.open_tables()) as tables:
            return tables.drifted(plans)
