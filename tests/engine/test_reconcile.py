"""At start the state store is corrected from the ledger, which has the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.behaviours.state_behaviours import SHOP, at, plan_of, report_of, splits_of

SPLITS = splits_of(4)


@dataclass
class LedgerRows:
    """The ledger's rows; what the real one answers is tested with the sinks."""

    plan: str = "plan-1"
    held: dict[str, tuple[SnapshotSplit, SplitReport]] = field(default_factory=dict)
    streaming: StreamSplit | None = None
    read: int = 0
    """How many reports were asked for."""

    def plan_id(self) -> str:
        return self.plan

    def finished_ids(self) -> AbstractSet[str]:
        return self.held.keys()

    def reports(
        self, *, but: AbstractSet[str] = frozenset()
    ) -> Sequence[tuple[SnapshotSplit, SplitReport]]:
        found = [held for split_id, held in self.held.items() if split_id not in but]
        self.read += len(found)
        return found

    def stream(self) -> StreamSplit | None:
        return self.streaming

    def hold(self, *splits: SnapshotSplit) -> None:
        self.held |= {split.split_id: (split, report_of(split)) for split in splits}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    opened = open_store(f"sqlite:///{tmp_path / 'state.db'}")
    generation = opened.take_over(SHOP, "me").generation
    opened.start_plan(SHOP, generation, "plan-1", [plan_of()])
    opened.add_splits(SHOP, generation, SPLITS)
    opened.move(SHOP, generation, expected=Phase.NEW, to=Phase.PLANNING)
    yield opened
    opened.close()


def statuses(store: SqlStateStore) -> list[SplitStatus]:
    return [state.status for state in store.splits(SHOP)]


def test_splits_that_the_sink_holds_are_finished_and_others_are_to_be_read(
    store: SqlStateStore,
) -> None:
    ledger = LedgerRows()
    ledger.hold(SPLITS[0], SPLITS[1])
    store.mark_split(SHOP, 1, SPLITS[1], SplitStatus.FINISHED, report=report_of(SPLITS[1]))
    store.mark_split(SHOP, 1, SPLITS[2], SplitStatus.FINISHED, report=report_of(SPLITS[2]))
    store.mark_split(SHOP, 1, SPLITS[3], SplitStatus.READING)
    correction = reconcile(store, ledger, SHOP, 1)
    assert statuses(store) == [SplitStatus.FINISHED] * 2 + [SplitStatus.PLANNED] * 2
    assert (correction.finished, correction.given_back) == (1, 2)
    assert store.tables(SHOP)[0].rows == 20
    assert ledger.read == 1
    again = reconcile(store, ledger, SHOP, 1)
    assert (again.finished, again.given_back) == (0, 0)
    assert ledger.read == 1


def test_a_ledger_of_another_plan_changes_nothing(store: SqlStateStore) -> None:
    ledger = LedgerRows(plan="plan-2")
    ledger.hold(*SPLITS)
    assert not reconcile(store, ledger, SHOP, 1).same_plan
    assert statuses(store) == [SplitStatus.PLANNED] * 4


@pytest.mark.parametrize("phase", [Phase.PLANNING, Phase.SNAPSHOT, Phase.FAILED])
def test_a_ledger_that_streams_means_that_the_hand_off_is_done(
    store: SqlStateStore, phase: Phase
) -> None:
    stream = hand_off([FinishedSplit(split, at(200), at(200)) for split in SPLITS])
    if phase is not Phase.PLANNING:
        store.move(SHOP, 1, expected=Phase.PLANNING, to=phase)
    store.beat(SHOP, 1, StreamState(at(100), changes=7))
    assert reconcile(store, LedgerRows(streaming=stream), SHOP, 1).handed_off
    assert store.hand_off(SHOP) == stream
    assert store.ensure(SHOP).phase is Phase.HANDED_OFF
    told = store.stream(SHOP)
    assert told is not None
    assert (told.position, told.changes) == (stream.start, 7)
