"""Whether all that a node of a pair has written has come back to the other one.

The opposite edge's ledger is at this edge's source, and says how far it has brought the log of
this edge's sink. Log behind that place which holds rows of the tables is still on its way. Log that
holds none is nothing to wait for: no edge need ever commit it.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    IncomparablePositionsError,
    RefusedError,
    RetryableError,
)
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, TableId
from airflow_cdc_provider.engine.sink.own_log import HasOwnLog, OwnLog, open_changes_of_others
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.seeding import opposite_file
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.systems.registry import open_sink

if TYPE_CHECKING:
    from airflow_cdc_provider.core.positions import LogPosition
    from airflow_cdc_provider.core.topology import Topology
    from airflow_cdc_provider.engine.ledger.ledger import Ledger

log = logging.getLogger(__name__)
_LOOK_EVERY_S, _POLL_S, _BATCH_S = 1.0, 0.05, 1.0
_READER = 1
"""Of the readers of the sink's own log: the first is the guard's."""


class WayBack:
    """The opposite edge of a pipeline's, as its ledger shows it."""

    def __init__(self, run: Run, edge: Topology, own_log: OwnLog, ledger: Ledger) -> None:
        self._run = run
        self._edge = edge
        self._own_log = own_log
        self._ledger = ledger

    @classmethod
    def of(cls, run: Run) -> WayBack | None:
        """Return the edge back to the source; None if there is none, or its ledger may not be read.

        There is none if no file of the folder is the opposite edge.
        """
        edge, sink = run.model.edge, sink_of(run)
        if edge is None or not isinstance(sink, HasOwnLog):
            return None
        try:
            model = load_pipeline(opposite_file(run)).model
            back = open_sink(model.sink.type, run.servers.source, Owner(model.name, 0), ())
            return cls(run, edge, sink.own_log(), back.open_ledger())
        except AccessDeniedError as denied:
            log.warning(
                "how far the edge back to %s is cannot be seen, so rows on their way may be told "
                "as different: pipeline=%s cause=%s; what to do: let the source's account read %s",
                edge.src_node,
                run.name,
                denied.what,
                LEDGER_DATABASE,
            )
        except RefusedError:
            log.debug("no file beside is the edge back: pipeline=%s", run.name)
        return None

    def close(self) -> None:
        """Close the connection."""
        self._ledger.close()

    def stopped(self) -> frozenset[TableId]:
        """Return the tables of this edge's sink that the edge back leaves alone."""
        return frozenset(each.table for each in self._ledger.stopped())

    def wait(self, *, timeout_s: float) -> None:
        """Wait until all that the sink's node has written by now has come to the source's."""
        deadline, look_s = time.monotonic() + timeout_s, 0.0
        with closing(self._own_log.log_end(purpose="position")) as log_end:
            end = log_end.now()
        while True:
            stream = self._ledger.stream()
            if stream is None or covers(stream.start, end):
                return
            if time.monotonic() >= look_s:
                if not self._has_rows(stream.start, end):
                    return
                look_s = time.monotonic() + _LOOK_EVERY_S
            if time.monotonic() >= deadline:
                raise RetryableError(
                    f"what was written at {self._edge.dst_node} did not come to "
                    f"{self._edge.src_node} within {timeout_s:g} s",
                    where=f"verify of {self._run.name}",
                    risk="none: rows on their way are neither equal nor different yet",
                    remedy="look at the edge back: is it running, and what is its lag? Then verify "
                    "again, with more time to settle",
                )
            time.sleep(_POLL_S)

    def _has_rows(self, start: LogPosition, end: LogPosition) -> bool:
        """Tell whether the sink's node has written rows of the tables between two places."""
        _, reader = open_changes_of_others(
            self._own_log,
            self._edge,
            [state.plan.sink_table for state in self._run.store.tables(self._run.name)],
            start,
            options=self._run.model.source_options,
            reader=_READER,
        )
        with closing(reader):
            return any(batch.changes for batch in reader.read_up_to(end, batch_s=_BATCH_S))


def covers(position: LogPosition, end: LogPosition) -> bool:
    """Tell whether a position covers another; False if they cannot be compared."""
    try:
        return position.covers(end)
    except IncomparablePositionsError:
        return False  # right after the hand-off a position may have no place in the log
