"""Looking, while the stream runs, for what its tables are to become.

- A request to add, remove or reset tables is found within a second.
- Tables that appear at the source are looked for every minute, and as soon as the stream tells of a
  statement by which one comes. One that is not to be added is told.

Where there is something to do that nothing speaks against, this run takes its pipeline over once
more. That ends its own stream at a transaction's end, as it would end anybody's, and what planning
does before a stream begins is done again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.core.table_picks import is_new_table_event
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.pipeline.steps.plan_sync import tables_to_add
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.table_requests import (
    may_be_done,
    note_waiting,
    reloaded,
)
from airflow_cdc_provider.pipeline.steps.tables import captured_tables, picked_now

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
_LATEST_EVENTS = 20


class NewTableWatch:
    """Checks during a stream whether requests or new tables need a plan step."""

    def __init__(self, run: Run, every_s: float | None = None) -> None:
        self.is_found = False
        """There is something to do, and the stream was ended for it."""
        self.run = run
        """With its file as it was when it was looked at last."""
        self._every_s = LOOK_EVERY_S if every_s is None else every_s
        self._looked_s = time.monotonic()
        self._heard_us = run.store.now_us()
        self._known = frozenset(_not_planned(run, run.store.not_copied(run.name)))

    def look(self) -> None:
        """Check if it is time; a server that does not answer is asked again later."""
        if self.is_found:
            return
        is_due = time.monotonic() - self._looked_s >= self._every_s
        try:
            # one that waits for something is looked at again as seldom as the source is
            asked = [each for each in self._asked() if is_due or not each.error]
            if not (is_due or asked or self._hears()):
                return
            self._looked_s = time.monotonic()
            self._look(asked)
        except CdcError as error:
            log.warning("no look for later tables: pipeline=%s cause=%s", self.run.name, error)

    def _asked(self) -> Sequence[Request]:
        """Return the open requests that add, remove or restart tables."""
        return self.run.store.table_requests(self.run.name)

    def _hears(self) -> bool:
        """Tell whether the stream has recorded a new table since the last call."""
        latest = self.run.store.events(self.run.name, _LATEST_EVENTS)
        told = [event.at_us for event in latest if is_new_table_event(event.text)]
        before, self._heard_us = self._heard_us, max([self._heard_us, *told])
        return self._heard_us > before

    def _look(self, asked: Sequence[Request]) -> None:
        """Check requests and new tables; if there is one to do, take the pipeline over."""
        if self.run.store.ensure(self.run.name).wanted is Wanted.STOP:
            return
        if self._may_be_done(asked) or self._has_come():
            with closing(open_ledger(self.run)) as ledger:
                take_over(self.run, ledger)
            self.is_found = True

    def _may_be_done(self, asked: Sequence[Request]) -> bool:
        """Tell whether one of the requests can be done, by the file as it is now."""
        if not asked:
            return False
        generation = self.run.store.ensure(self.run.name).generation
        try:
            self.run = reloaded(self.run)
        except CdcError as error:
            for request in asked:
                note_waiting(self.run, generation, request, error)
            raise
        return any(may_be_done(self.run, request, generation) for request in asked)

    def _has_come(self) -> bool:
        """Tell whether there are tables to add; tables that cannot be added are reported."""
        found = _not_planned(self.run, picked_now(self.run))
        if found <= self._known:
            return False
        if tables_to_add(self.run, captured_tables(self.run)):
            return True
        self._tell(found)
        return False

    def _tell(self, found: frozenset[TableId]) -> None:
        """Report picked tables that are not copied, and store their names."""
        run = self.run
        for table in sorted(found - self._known):
            run.store.tell(run.name, left_out_text(table), level="warning")
        origin = run.store.origin(run.name)
        if origin is not None:
            generation = run.store.ensure(run.name).generation
            run.store.keep_origin(run.name, generation, origin, sorted(found))
        self._known = found


def _not_planned(run: Run, tables: tuple[TableId, ...]) -> frozenset[TableId]:
    """Return the tables that are not in the plan."""
    return frozenset(tables) - {state.table for state in run.store.tables(run.name)}
