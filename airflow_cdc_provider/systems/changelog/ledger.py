"""The ledger of a change log: what its manifests say is committed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from airflow_cdc_provider.columns.sink_port import (
    NO_TABLES,
    Owner,
)
from airflow_cdc_provider.core.codec import position_to_json, stream_to_text
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    FencedError,
    IntegrityError,
    RefusedError,
)
from airflow_cdc_provider.core.hand_off_check import Report, require_may_hand_off
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.systems.changelog.layout import TRANSACTION, generation_of, table_folder
from airflow_cdc_provider.systems.changelog.manifest import Manifest
from airflow_cdc_provider.systems.changelog.state import LogState, Record

log = logging.getLogger(__name__)


class ChangelogLedger:
    """A pipeline's ledger, kept in the manifest of its change log."""

    def __init__(self, root: Path, owner: Owner, *, types: str = "") -> None:
        self._types = types
        self._manifest = Manifest(root, str(owner.pipeline))
        self._owner = owner

    def close(self) -> None:
        """Do nothing: a folder needs no connection."""

    def take_over(self, generation: int) -> None:
        """Make `generation` the only one that may commit; `FencedError` if a newer one is there.

        What older generations left behind without a commit is deleted: it can never count.
        """

        def judge(state: LogState) -> Record | None:
            if state.generation > generation:
                raise FencedError(
                    f"generation {state.generation} owns {self._owner.pipeline}, not {generation}",
                    where=f"manifest {state.version} in {self._manifest.root}",
                    risk=NOTHING_CHANGED,
                    remedy="a newer run is the owner; look at the pipeline's status",
                )
            return None if state.generation == generation else {"do": "take over"}

        before = self._manifest.read().generation
        state = self._manifest.commit(generation, judge)
        self._owner = Owner(self._owner.pipeline, generation)
        if before != generation:
            _sweep(self._manifest.root, state, generation)

    def generation(self) -> int:
        """Return the generation that may commit, 0 for a pipeline that the ledger does not know."""
        return self._manifest.read().generation

    def plan_id(self) -> str:
        """Return the id of the plan whose splits are in the ledger, empty for none."""
        return self._manifest.read().plan_id

    def start_plan(self, plan_id: str) -> None:
        """Forget the splits and the stream of older plans, unless this plan is current."""

        def judge(state: LogState) -> Record | None:
            self._manifest.require_owner(state, self._owner.generation)
            if state.plan_id == plan_id:
                return None
            return {"do": "start plan", "plan": plan_id, "types": self._types}

        self._manifest.commit(self._owner.generation, judge)

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits."""
        return {each.split.split_id for each in self._manifest.read().splits.values()}

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits with their reports, except the ids in `but`."""
        found = _reports(self._manifest.read())
        return [each for each in found if each[0].split_id not in but]

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None before the hand-off."""
        return self._manifest.read().stream

    def counts(self) -> StreamCounts:
        """Return the stream's numbers of batches, changes and transactions, and its lag."""
        counts = self._manifest.read().counts
        known = counts.source_committed_us
        lag_us = max(0, counts.committed_us - known) if known else None
        return StreamCounts(counts.batches, counts.changes, counts.transactions, lag_us)

    def table_changes(self) -> Mapping[TableId, TableChangeCount]:
        """Return the counts of changes of each source table."""
        return dict(self._manifest.read().changed)

    def last_changes(self) -> Mapping[TableId, LogPosition]:
        """Return the position of each table's last change."""
        return {table: count.position for table, count in self.table_changes().items()}

    def store_stream(self, stream: StreamSplit, begun: Sequence[SchemaChange] = ()) -> None:
        """Store the stream split at hand-off; refused if the ledger's stream is further already."""
        if begun:
            self.begin_changes(begun)

        def judge(state: LogState) -> Record | None:
            self._manifest.require_owner(state, self._owner.generation)
            if state.stream == stream:
                return None
            require_may_hand_off(state.stream, stream, _reports(state))
            _require_exact(stream, state)
            return {"do": "hand off", "stream": stream_to_text(stream)}

        self._manifest.commit(self._owner.generation, judge)

    def change_tables(
        self,
        *,
        added: Mapping[TableId, LogPosition] = NO_TABLES,
        removed: Collection[TableId] = (),
        read: Collection[TableId] = (),
    ) -> StreamSplit:
        """Refuse: tables of a change log's stream cannot be added, removed or read again."""
        raise self._refusal([*added, *removed, *read])

    def go_on_from(self, position: LogPosition, begun: Collection[TableId]) -> StreamSplit:  # noqa: ARG002
        """Refuse: a change log's stream cannot be set to another position."""
        raise self._refusal(begun)

    def open_changes(self) -> tuple[SchemaChange, ...]:
        """Return nothing: a change log has no schema changes."""
        return ()

    def begin_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Refuse: a change log cannot follow schema changes."""
        raise self._refusal([change.table for change in changes])

    def end_change(self, change: SchemaChange) -> StreamSplit:
        """Refuse: a change log cannot follow schema changes."""
        raise self._refusal([change.table])

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return nothing: a change log's tables cannot be stopped singly."""
        return ()

    def stop_tables(
        self, tables: Collection[TableId], _error: StoredError = NO_ERROR, /
    ) -> StreamSplit:
        """Refuse: a change log's tables cannot be stopped singly."""
        raise self._refusal(tables)

    def say_of_stopped(self, table: TableId, _error: StoredError, /) -> None:
        """Refuse: a change log's tables cannot be stopped singly."""
        raise self._refusal([table])

    def rejoin(self, table: TableId) -> StreamSplit:
        """Refuse: a change log's tables cannot be stopped singly."""
        raise self._refusal([table])

    def _refusal(self, tables: Iterable[TableId]) -> RefusedError:
        """Return the error for a change of a change log's tables."""
        names = ", ".join(map(str, tables))
        return RefusedError(
            f"a change log's tables stay as they were planned, and {names} would change them",
            where=f"change log of {self._owner.pipeline}",
            risk=NOTHING_CHANGED,
            remedy="make another pipeline for new tables, or `reset` this one",
        )

    def pass_over(self, quiet: IdleRange) -> None:
        """Move the stream to the end of an idle range of the log that begins at its position."""

        def judge(state: LogState) -> Record | None:
            self._manifest.require_owner(state, self._owner.generation)
            if state.stream is None or not quiet.moves(state.stream.start):
                return None
            return {"do": "pass over", "position": position_to_json(quiet.end)}

        self._manifest.commit(self._owner.generation, judge)


def _reports(state: LogState) -> list[Report]:
    """Return the finished splits with their reports, in order."""
    splits = sorted(state.splits.values(), key=lambda each: (each.split.table, each.split.number))
    return [(each.split, each.report) for each in splits]


def _require_exact(stream: StreamSplit, state: LogState) -> None:
    """Refuse a hand-off of tables whose rows are not in the change log exactly once (law 6)."""
    before = {progress.table for progress in (state.stream.tables if state.stream else ())}
    for progress in stream.tables:
        if progress.table in before:
            continue
        if progress.consistent_at and not progress.finished:
            raise not_exact(str(progress.table))
        for finished in progress.finished:
            if finished.split.split_id not in state.splits:
                raise IntegrityError(
                    f"split {finished.split.split_id} is handed off and not in the log",
                    where=f"hand-off at {stream.start}",
                    risk="its rows would be missing; nothing was changed",
                    remedy="read the split, then hand off again",
                )


def not_exact(table: str) -> RefusedError:
    """Return the error for a table whose changes may be among its snapshot's rows already."""
    return RefusedError(
        f"changes of {table} cannot be told from the rows its snapshot has read",
        where=f"table {table}",
        risk="a change log would hold them twice; nothing was written",
        remedy="a change log takes tables whose key is of whole numbers, decimals, times or "
        "bytes, with snapshot.backfill on; leave the table out",
    )


def _sweep(root: Path, state: LogState, generation: int) -> None:
    """Delete files of older generations that no manifest names, in folders of claimed tables."""
    named = {root / file.path for folder in state.folders for file in state.files(folder)}
    owned = [table_folder(table) for table in state.targets]
    swept = 0
    for folder in [*owned, TRANSACTION] if owned else []:
        for file in (root / folder).glob("*"):
            written = generation_of(file)
            if written is not None and written < generation and file not in named:
                file.unlink(missing_ok=True)
                swept += 1
    if swept:
        log.info("files without a commit deleted: folder=%s files=%d", root, swept)
