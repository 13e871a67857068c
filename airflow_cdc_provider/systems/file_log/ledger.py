"""The ledger's store in a change log: what its manifests say is committed.

A decision becomes one version of the manifest. What follows from it without being said, such as
which tables the stream owns after a hand-off, is not in the manifest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from airflow_cdc_provider.core.codec import position_to_json, stream_to_text
from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.ledger.decisions import require_owner
from airflow_cdc_provider.engine.ledger.records import (
    ChangesCounted,
    GenerationMoved,
    PlanBegun,
    Records,
    SlotMoved,
    SlotsRewritten,
    StreamStored,
    TablesOwned,
)
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part
from airflow_cdc_provider.engine.ledger.store import Ask, Hold
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.layout import TRANSACTION, generation_of, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.stored_records import record_to_json
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import Root

log = logging.getLogger(__name__)


class LogLedgerStore:
    """A pipeline's ledger, kept in the manifest of its change log."""

    def __init__(
        self,
        root: Root,
        owner: Owner,
        *,
        types: str = "",
        is_exact: bool = True,
        swept: Collection[str] = ("*",),
    ) -> None:
        self._types, self._is_exact, self._swept = types, is_exact, swept
        self._manifest = Manifest(root, str(owner.pipeline))
        self._owner = owner

    def close(self) -> None:
        """Do nothing: a folder needs no connection."""

    def read(self, parts: Part) -> LedgerState:
        """Return these parts as last committed."""
        return self._parts(self._manifest.read(), parts)

    def commit(self, ask: Ask) -> LedgerState:
        """Decide by the latest manifest and commit the next one, unless nothing is to be stored.

        What older generations left behind without a commit is deleted: it can never count.
        """

        def judge(state: LogState) -> Record | None:
            before = self._parts(state, ask.reads)
            if ask.hold is not Hold.ARRIVAL:
                require_owner(before, ask.by)
            return self._form(ask.decide(before), state)

        last_owner = self._manifest.read().generation
        state = self._manifest.commit(ask.by, judge)
        if state.generation != last_owner:
            _sweep(self._manifest.root, state, self._swept)
        return self._parts(state, ask.reads)

    def _form(self, records: Records, state: LogState) -> Record | None:
        """Return records as one commit of the manifest, None if they change nothing."""
        match records:
            case (GenerationMoved(generation),) if generation != state.generation:
                return {"do": "take over"}
            case (PlanBegun(plan_id),):
                return {"do": "start plan", "plan": plan_id, "types": self._types}
            case (StreamStored(stream), TablesOwned(), ChangesCounted()):
                _require_published(stream, state, is_exact=self._is_exact)
                return {"do": "hand off", "stream": stream_to_text(stream)}
            case (SlotMoved(_, position),):
                return {"do": "pass over", "position": position_to_json(position)}
            case (SlotsRewritten((stream,)),):  # alone: it ends elsewhere
                stop = None if stream.stop is None else position_to_json(stream.stop)
                return {"do": "set end", "stop": stop, "stop_by": stream.stop_by}
            case () | (GenerationMoved(),):
                return None
            case _:
                for record in records:
                    if isinstance(record, StreamStored):
                        _require_published(record.stream, state, is_exact=self._is_exact)
                return {"do": "records", "records": [record_to_json(each) for each in records]}

    def _parts(self, state: LogState, parts: Part) -> LedgerState:
        """Return the parts of a change log's state that decisions are made from."""
        reports = state.reports() if Part.REPORTS in parts else None
        return state.as_ledger(self._manifest.place(state), reports)

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits."""
        return {each.split.split_id for each in self._manifest.read().splits.values()}

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits with their reports, except the ids in `but`."""
        found = self._manifest.read().reports()
        return [each for each in found if each[0].split_id not in but]

    def counts(self) -> StreamCounts:
        """Return the stream's numbers of batches, changes and transactions, and its age."""
        counts = self._manifest.read().counts
        known = counts.source_committed_us
        age_us = max(0, time.time_ns() // 1000 - known) if known else None
        return StreamCounts(counts.batches, counts.changes, counts.transactions, age_us)

    def changed_tables(self, *, handed_off: bool = False) -> Mapping[TableId, TableChangeCount]:  # noqa: ARG002 - only changes are in a manifest
        """Return the counts of changes of each source table that has any."""
        return dict(self._manifest.read().changed)


def _require_published(stream: StreamSplit, state: LogState, *, is_exact: bool) -> None:
    """Refuse a hand-off of tables whose rows are not in the log, each once if `is_exact`."""
    before = {progress.table for progress in (state.stream.tables if state.stream else ())}
    for progress in stream.tables:
        if progress.table in before:
            continue
        if is_exact and progress.consistent_at and not progress.finished:
            _require_at_one_place(progress, state)
        for finished in progress.finished:
            if finished.split.split_id not in state.splits:
                raise IntegrityError(
                    f"split {finished.split.split_id} is handed off and not in the log",
                    where=f"hand-off at {stream.start}",
                    risk="its rows would be missing; nothing was changed",
                    remedy="read the split, then hand off again",
                )


def _require_at_one_place(progress: TableProgress, state: LogState) -> None:
    """Refuse a table that is not filtered by keys, unless it has none and was read at one place."""
    splits = [each.split for each in state.splits.values() if each.split.table == progress.table]
    is_keyless = bool(splits) and not any(split.key_columns for split in splits)
    highs = progress.consistent_at
    if not (is_keyless and all(map(progress.applied_through.covers, highs))):
        raise not_exact(str(progress.table))


def not_exact(table: str) -> RefusedError:
    """Return the error for a table whose changes may be among its snapshot's rows already."""
    return RefusedError(
        f"changes of {table} cannot be told from the rows its snapshot has read",
        where=f"table {table}",
        risk="a change log would hold them twice; nothing was written",
        remedy="a change log takes tables whose key is of whole numbers, decimals, times or "
        "bytes, with snapshot.backfill on; leave the table out",
    )


def _sweep(store: ObjectStore, state: LogState, patterns: Collection[str]) -> None:
    """Delete files of older generations that no manifest names, in folders of claimed tables."""
    generation = state.generation
    named = {file.path for folder in state.folders for file in state.files(folder)}
    owned = [table_folder(table) for table in state.targets]
    swept = 0
    for folder in [*owned, TRANSACTION] if owned else []:
        for path in {*store.list(f"{folder}/"), *store.unfinished(f"{folder}/")} - named:
            name = path.rpartition("/")[2]
            written = generation_of(name)
            is_swept = any(fnmatchcase(name, pattern) for pattern in patterns)
            if is_swept and written is not None and written < generation:
                store.delete(path)
                swept += 1
    if swept:
        log.info("files without a commit deleted: place=%s files=%d", store, swept)
