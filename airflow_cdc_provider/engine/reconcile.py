"""Correct the state store from the sink's ledger, which has the truth.

Rows and progress are committed together in the sink; the state store is told afterwards, so it
may lag behind the ledger and must never lead. Whoever takes a pipeline over calls this first:

- a split the ledger holds is finished, whatever the store says;
- a split the store calls finished and the ledger does not hold is to be read (the sink was
  restored from a backup, or emptied);
- a split under way belongs to a reader of an older generation, which is fenced: it is to be read;
- a stream in the ledger means that the hand-off is done; its position is the store's.

If the ledger holds another plan than the store, the store was reset or the sink exchanged. Then
nothing can be carried over here, and the answer says so: planning decides what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit

_BEFORE_HAND_OFF = {Phase.PLANNING, Phase.SNAPSHOT, Phase.FAILED}


class Ledger(Protocol):
    """What reconciling needs of the sink's ledger."""

    def plan_id(self) -> str: ...

    def finished_ids(self) -> AbstractSet[str]: ...

    def reports(
        self, *, but: AbstractSet[str] = ...
    ) -> Sequence[tuple[SnapshotSplit, SplitReport]]: ...

    def stream(self) -> StreamSplit | None: ...


@dataclass(frozen=True, slots=True)
class Correction:
    """What reconciling corrected in the state store: counts of splits, and the hand-off."""

    same_plan: bool
    """False: the ledger holds another plan, and nothing was changed."""
    finished: int = 0
    """Splits that the sink held and the store did not know of."""
    given_back: int = 0
    """Splits to be read that the store thought were finished or under way."""
    handed_off: bool = False
    """The ledger streams already."""


def reconcile(store: StateStore, ledger: Ledger, name: PipelineName, generation: int) -> Correction:
    """Correct the state store from the sink's ledger; doing it twice is harmless."""
    state = store.ensure(name)
    if not state.plan_id or state.plan_id != ledger.plan_id():
        return Correction(same_plan=False)
    stream = ledger.stream()
    if stream is not None:
        _follow_stream(store, name, generation, stream, state.phase)
        return Correction(same_plan=True, handed_off=True)
    finished, given_back = _follow_reports(store, ledger, name, generation)
    return Correction(same_plan=True, finished=finished, given_back=given_back)


def _follow_stream(
    store: StateStore, name: PipelineName, generation: int, stream: StreamSplit, phase: Phase
) -> None:
    """Bring the state store's hand-off, phase and stream position in line with the ledger."""
    if not store.is_handed_off(name):
        store.store_hand_off(name, generation, stream)
    if phase in _BEFORE_HAND_OFF:
        steps = (
            [Phase.SNAPSHOT, Phase.HANDED_OFF] if phase is Phase.PLANNING else [Phase.HANDED_OFF]
        )
        for step in steps:
            phase = store.move(name, generation, expected=phase, to=step).phase
    told = store.stream(name)
    if told is None or told.position != stream.start:
        before = told or StreamState(position=stream.start)
        corrected = StreamState(
            position=stream.start,
            source_end=before.source_end,
            batch=before.batch,
            changes=before.changes,
            transactions=before.transactions,
            inconsistent=stream.inconsistent,  # lag and heartbeat were another generation's
        )
        store.beat(name, generation, corrected)


def _follow_reports(
    store: StateStore, ledger: Ledger, name: PipelineName, generation: int
) -> tuple[int, int]:
    """Mark splits as finished or as planned again, as the ledger has them; return both counts."""
    held, told = ledger.finished_ids(), store.split_statuses(name)
    known = {split_id for split_id, status in told.items() if status is SplitStatus.FINISHED}
    missed = ledger.reports(but=known) if held - known else ()
    planned = {table.table for table in store.tables(name)} if missed else frozenset()
    finished = [each for each in missed if each[0].table in planned]  # some were removed since
    # halves that were published before the store heard of the cut
    fresh = [split for split, _ in finished if split.split_id not in told]
    store.add_splits(name, generation, fresh)
    store.finish_splits(name, generation, finished)
    to_read = (SplitStatus.FINISHED, SplitStatus.READING)
    given_back = {key for key, status in told.items() if key not in held and status in to_read}
    for state in store.splits(name) if given_back else ():
        if state.split.split_id in given_back:
            store.mark_split(name, generation, state.split, SplitStatus.PLANNED)
    return len(finished), len(given_back)
