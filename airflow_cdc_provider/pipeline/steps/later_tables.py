"""Looking for tables that appear at the source while the stream runs.

Every minute, and as soon as the stream tells of a statement by which one comes, the source is asked
for the names of the tables that the file picks. A table that is new is told; if it is to be added,
and nothing speaks against it, this run takes its pipeline over once more. That ends its own stream
at a transaction's end, as it would end anybody's, and what planning does before a stream begins is
done again.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.table_picks import tells_of_table
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.following_file import wanted_tables
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.tables import captured_tables, picked_now

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
_LATEST_EVENTS = 20


class LaterTables:
    """Looks now and then, from the thread that waits for the stream."""

    def __init__(self, run: Run, every_s: float | None = None) -> None:
        self.is_found = False
        """There are tables to add, and the stream was ended for them."""
        self._run = run
        self._every_s = LOOK_EVERY_S if every_s is None else every_s
        self._looked_s = time.monotonic()
        self._heard_us = run.store.now_us()
        self._known = frozenset(_not_planned(run, run.store.not_copied(run.name)))

    def look(self) -> None:
        """Look if it is time; a server that does not answer is asked again later."""
        is_due = time.monotonic() - self._looked_s >= self._every_s
        if self.is_found or not (is_due or self._hears()):
            return
        self._looked_s = time.monotonic()
        try:
            self._look()
        except CdcError as error:
            log.warning("no look for later tables: pipeline=%s cause=%s", self._run.name, error)

    def _hears(self) -> bool:
        """Tell whether the stream has told of a table since it was asked for last."""
        latest = self._run.store.events(self._run.name, _LATEST_EVENTS)
        told = [event.at_us for event in latest if tells_of_table(event.text)]
        before, self._heard_us = self._heard_us, max([self._heard_us, *told])
        return self._heard_us > before

    def _look(self) -> None:
        if self._run.store.ensure(self._run.name).wanted is Wanted.STOP:
            return
        found = _not_planned(self._run, picked_now(self._run))
        if found <= self._known:
            return
        if wanted_tables(self._run, captured_tables(self._run)):
            with closing(open_ledger(self._run)) as ledger:
                take_over(self._run, ledger)
            self.is_found = True
            return
        self._tell(found)

    def _tell(self, found: frozenset[TableId]) -> None:
        run = self._run
        for table in sorted(found - self._known):
            run.store.tell(run.name, left_out_text(table), level="warning")
        origin = run.store.origin(run.name)
        if origin is not None:
            generation = run.store.ensure(run.name).generation
            run.store.keep_origin(run.name, generation, origin, sorted(found))
        self._known = found


def _not_planned(run: Run, tables: tuple[TableId, ...]) -> frozenset[TableId]:
    return frozenset(tables) - {state.table for state in run.store.tables(run.name)}
