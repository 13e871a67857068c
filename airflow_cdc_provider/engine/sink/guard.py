"""The guard of an edge: which rows the sink's node has changed without the source's knowing.

It reads the sink's own log as the edge back does: what this edge wrote is left out by its marker,
the rest are changes of that node, or of nodes behind it. A change of the source was made knowing
that log up to a position (`ChangeBatch.knew`). Changes of the same key behind it are concurrent
with it, and nothing else is.

A writer writes first and then asks: its row locks keep others from these keys, and a commit is in
the log before its locks go. So what the log has by then is all there is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of
from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    LogPurgedError,
    RetryableError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.table_drift import (
    WAY_BACK_OF_NODES,
    TableDrift,
    drift_error,
    firing_text,
)
from airflow_cdc_provider.engine.sink.own_log import open_changes_of_others
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows, RowIdentity, Weights
from airflow_cdc_provider.engine.sink.selection import TableWork
from airflow_cdc_provider.engine.sink.their_changes import TheirChanges, kept_changes
from airflow_cdc_provider.engine.sink.touched_rows import TouchedRows

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.source_port import LogEnd, TailReader
    from airflow_cdc_provider.core.identifiers import TableId
    from airflow_cdc_provider.core.jobspec import SourceOptions
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.core.table_schema import TableSchema
    from airflow_cdc_provider.core.topology import Topology
    from airflow_cdc_provider.engine.sink.own_log import OwnLog

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 30
"""Of the sink's own changes that are kept at most, in memory."""
_BATCH_S, _IDLE_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Clash:
    """Rows of one table's changes that the sink's node has changed, too."""

    work: TableWork
    rows: KeyedRows
    """With their keys as the source writes them."""
    theirs: tuple[TheirChanges, ...]
    """All changes of the table at the sink's node that the source did not know."""


class Guard:
    """Reads the sink's own log and says which keys its node has changed; lazily connected."""

    def __init__(
        self,
        own_log: OwnLog,
        edge: Topology,
        plans: Sequence[TablePlan],
        options: SourceOptions,
        known: LogPosition | None,
        *,
        reader: int = 0,
    ) -> None:
        """`reader` is its number among the readers of the sink's log: no other may have it."""
        self.edge = edge
        self.known = None if known is None else KnownLog(known)
        """What the source knew of the sink's log when the edge began; None if that is not known."""
        self._own_log = own_log
        self._plans = {plan.sink_table: plan for plan in plans}
        self._options = options
        self._number = reader
        self._end: LogEnd | None = None
        self._reader: TailReader | None = None
        self._schemas: Mapping[TableId, TableSchema] = {}
        self._identities: dict[TableId, RowIdentity] = {}
        self._touched: dict[TableId, TouchedRows] = {}
        self._bytes = 0
        self._read_s = 0.0
        self._defined: set[TableId] = set()

    @property
    def may_have_changes(self) -> bool:
        """Tell whether the sink's node had changed anything when its log was read last, if ever."""
        return self._reader is None or any(self._touched.values())

    def close(self) -> None:
        """Close the connections."""
        for each in (self._end, self._reader):
            if each is not None:
                each.close()
        self._end = self._reader = None

    def required(self, known: KnownLog | None) -> KnownLog:
        """Return what the source knew, or what it knew at first; refuse if that is not known."""
        known = known or self.known
        if known is None:
            raise IntegrityError(
                f"what {self.edge.src_node} knew of {self.edge.dst_node} when it made its changes "
                "is not known",
                where=self.edge.where,
                risk="a conflict could not be told from a later change; nothing was written",
                remedy="copy the node anew, as the page 'Two nodes' says",
            )
        return known

    def catch_up(self, known: KnownLog) -> bool:
        """Read the sink's log to its end; tell whether its node changed anything after `known`.

        What is before `known` is forgotten: a later change of the source knew it, too.
        """
        self._forget(known)
        if time.monotonic() - self._read_s > _IDLE_S and self._is_past(known):
            self._begin_again()
        try:
            self._read(known)
        except RetryableError as error:  # the server ends a reader that has not read for a while
            log.info("the sink's log is read anew: cause=%s", error)
            self._begin_again()
            self._read(known)
        self._read_s = time.monotonic()
        return any(self._touched.values())

    def _forget(self, known: KnownLog) -> None:
        """Forget the changes that the source knew of."""
        for table, touched in self._touched.items():
            up_to = known.of(table)
            while touched and touched.first.is_passed(up_to):
                self._bytes -= touched.first.nbytes
                touched.drop_first()

    def _is_past(self, known: KnownLog) -> bool:
        """Tell whether a position has all that was read of the log."""
        return self._reader is not None and known.of_all(self._plans).covers(self._reader.position)

    def _begin_again(self) -> None:
        """Forget what was read: the log is read again from what the source knew."""
        self.close()
        self._touched.clear()
        self._bytes = 0

    def look_at_triggers(self) -> None:
        """Refuse triggers that were made at the sink and may have changed what was just written.

        None can be dropped before the commit: the tables are in use until then. The look is not of
        the writer's session, which may see the catalogue as it was when its transaction began.
        """
        if not self._defined:
            return
        firing = self._own_log.firing_triggers(sorted(self._defined))
        self._defined.clear()
        drifts = [
            TableDrift(plan.schema.table, table, firing_text(firing[table]))
            for table, plan in self._plans.items()
            if table in firing
        ]
        if drifts:
            raise drift_error(drifts, str(self._own_log)).with_remedy(WAY_BACK_OF_NODES)

    def clash(
        self, work: TableWork, known: KnownLog, weights: Callable[[], Weights]
    ) -> Clash | None:
        """Return the rows of one table's work that the sink's node has changed after `known`.

        None if there are none. `weights` gives what asks the sink's server which texts are equal.
        """
        name = work.plan.sink_table
        fresh = (each.columns().behind(known.of(name)) for each in self._touched.get(name, ()))
        theirs = tuple(each for each in fresh if each is not None)
        if not theirs or not len(work.merged):
            return None
        identity = self.identity(name, weights)
        names = work.plan.target.primary_key
        rows = _met(work, [keys for each in theirs for keys in each.keys(names)], identity)
        return Clash(work, rows, theirs) if len(rows) else None

    def touched(self, table: TableId) -> TouchedRows | None:
        """Return what the sink's node has changed of one of its tables, None if nothing."""
        return self._touched.get(table) or None

    def identity(self, table: TableId, weights: Callable[[], Weights]) -> RowIdentity:
        """Return what tells apart the rows of one of the sink's tables."""
        identity = self._identities.get(table)
        if identity is None or identity.is_large:
            identity = self._identities[table] = RowIdentity(self._schemas[table], weights())
        return identity

    def _read(self, known: KnownLog) -> None:
        """Read the sink's log from where it was read before, or from `known`, to its end."""
        if self._end is None:
            self._end = self._own_log.log_end(purpose="guard of an edge")
        end = self._end.now()
        if self._reader is None:
            with self._alone_if_purged(known):
                self._reader = self._opened(known)
        if self._reader.position.server != end.server:
            raise SinkUnreachableError(
                "another server answers for the sink than the one whose log was read",
                where=str(self._own_log),
                risk="none: nothing was written",
                remedy="nothing: its log is read anew",
            )
        if not self._reader.position.reaches(end):
            with self._named_as_at_source(), self._alone_if_purged(known):
                for batch in self._reader.read_up_to(end, batch_s=_BATCH_S):
                    self._take(batch)
                    if self._bytes > MOST_BYTES:
                        raise self._too_much(known)

    def _opened(self, known: KnownLog) -> TailReader:
        """Open a reader of others' changes in the sink's own log, after a position."""
        self._identities.clear()
        self._schemas, reader = open_changes_of_others(
            self._own_log,
            self.edge,
            list(self._plans),
            known.of_all(self._plans),
            options=self._options,
            reader=self._number,
        )
        return reader

    @contextmanager
    def _alone_if_purged(self, known: KnownLog) -> Iterator[None]:
        """Have the tables stop alone of which alone the log would be needed that is gone."""
        try:
            yield
        except LogPurgedError as error:
            apart = self._apart(known)
            if not apart:
                raise
            names = ", ".join(map(str, apart))
            what = f"{error.what}; it is needed for {names}, which the edge back leaves alone"
            raise error.saying(what).about(*(self._plans[t].schema.table for t in apart)) from error

    def _apart(self, known: KnownLog) -> list[TableId]:
        """Return the sink's tables of which the source knows another part of the log."""
        return [table for table in self._plans if known.of(table) is not known.position]

    @contextmanager
    def _named_as_at_source(self) -> Iterator[None]:
        """Name the tables of errors as the source does: they may stop alone there."""
        try:
            yield
        except CdcError as error:
            names = {str(sink): str(plan.schema.table) for sink, plan in self._plans.items()}
            named = [names.get(table, table) for table in error.tables]
            if named == list(error.tables):
                raise
            raise error.about(*named) from error

    def _take(self, batch: ChangeBatch) -> None:
        """Keep what the sink's node changed."""
        if batch.barrier is not None:
            self._defined.update(batch.barrier.effect.tables)
        if not batch.changes:
            return
        for part in kept_changes(batch):
            self._touched.setdefault(part.table, TouchedRows()).add(part)
            self._bytes += part.nbytes

    def _too_much(self, known: KnownLog) -> IntegrityError:
        """Return the error for more changes than can be kept.

        Where the edge back leaves a table alone, its changes are those that are not brought.
        """
        error = IntegrityError(
            f"node {self.edge.dst_node} has changed more than can be kept in memory since "
            f"what {self.edge.src_node} knows of it",
            where=str(self._own_log),
            risk="conflicts with these changes could not be seen; nothing was written",
            remedy="copy one node anew, as the page 'Two nodes' says, and keep the edge from "
            f"{self.edge.dst_node} to {self.edge.src_node} running: it is too far behind",
        )
        apart = [table for table in self._apart(known) if table in self._touched]
        if not apart:
            return error
        sizes = {table: sum(part.nbytes for part in self._touched[table]) for table in apart}
        return error.about(max(apart, key=sizes.__getitem__))


def without_rows(work: TableWork, rows: KeyedRows) -> TableWork:
    """Return one table's work without some rows."""
    names, merged = list(work.plan.target.primary_key), work.merged
    sides = (merged.deletes.select(names), merged.upserts.select(names), rows.keys)
    groups = key_codes([rows.identity.of(each) for each in sides]).groups
    kept = [mask_of(~np.isin(group, groups[2])) for group in groups[:2]]
    return TableWork(
        work.plan, MergedChanges(merged.deletes.filter(kept[0]), merged.upserts.filter(kept[1]))
    )


def _met(work: TableWork, theirs: Sequence[pa.RecordBatch], identity: RowIdentity) -> KeyedRows:
    """Return the rows of one table's work that are among those of the sink's node.

    A key that the work both deletes and writes, in two spellings, is there as it is written.
    """
    names = list(work.plan.target.primary_key)
    merged = work.merged
    ours = pa.concat_batches([merged.upserts.select(names), merged.deletes.select(names)])
    found = pa.concat_batches([each.cast(ours.schema) for each in theirs])
    groups = key_codes([identity.of(ours), identity.of(found)]).groups
    once = np.zeros(len(groups[0]), np.bool_)
    once[np.unique(groups[0], return_index=True)[1]] = True
    return KeyedRows(ours, identity).only(once & np.isin(groups[0], groups[1]))
