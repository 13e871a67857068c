"""Any order of calls leaves the state store equal to a model made of dictionaries."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_cdc_provider.core.errors import FencedError, StateMovedError
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, Wanted, check_move
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.state.store import open_store
from tests.behaviours.state_behaviours import ORDERS, SHOP, at, plan_of, report_of, splits_of

SPLITS = splits_of(6)
NOT_AFTER = {
    SplitStatus.FINISHED: {SplitStatus.READING, SplitStatus.CUT, SplitStatus.FAILED},
    SplitStatus.CUT: set(SplitStatus) - {SplitStatus.CUT},
}


@dataclass
class Remembered:
    generation: int = 0
    phase: Phase = Phase.NEW
    wanted: Wanted = Wanted.RUN
    plan_id: str = ""
    status: dict[str, SplitStatus] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    stream: StreamState | None = None


class StoreMachine(RuleBasedStateMachine):
    """Drives the SQLite store and the model with the same calls; owners come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_store(f"sqlite:///{self.folder.name}/state.db")
        self.model = Remembered()
        self.store.ensure(SHOP)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def fenced(self, generation: int) -> bool:
        return generation != self.model.generation

    generations = st.integers(0, 5)

    @rule(at_least=st.integers(0, 3))
    def take_over(self, at_least: int) -> None:
        taken = self.store.take_over(SHOP, "owner", at_least=at_least).generation
        assert taken > self.model.generation
        assert taken > at_least
        self.model.generation = taken
        if self.model.phase is Phase.STREAMING:
            self.model.phase = Phase.HANDED_OFF  # a stream is its owner's

    @rule(wanted=st.sampled_from(Wanted))
    def want(self, wanted: Wanted) -> None:
        self.store.want(SHOP, wanted)
        self.model.wanted = wanted

    @rule(back=st.integers(0, 1), expected=st.sampled_from(Phase), to=st.sampled_from(Phase))
    def move(self, back: int, expected: Phase, to: Phase) -> None:
        generation = self.model.generation - back
        try:
            check_move(expected, to)
            is_shown = True
        except StateMovedError:
            is_shown = False
        if not is_shown or (not self.fenced(generation) and expected is not self.model.phase):
            with pytest.raises(StateMovedError):
                self.store.move(SHOP, generation, expected=expected, to=to)
        elif self.fenced(generation):
            with pytest.raises(FencedError):
                self.store.move(SHOP, generation, expected=expected, to=to)
        else:
            self.store.move(SHOP, generation, expected=expected, to=to)
            self.model.phase = to

    @rule(back=st.integers(0, 1), name=st.sampled_from(["p1", "p2"]))
    def start_plan(self, back: int, name: str) -> None:
        generation = self.model.generation - back
        if self.fenced(generation):
            with pytest.raises(FencedError):
                self.store.start_plan(SHOP, generation, name, [plan_of()])
            return
        self.store.start_plan(SHOP, generation, name, [plan_of()])
        self.model.plan_id = name
        self.model.status, self.model.attempts, self.model.stream = {}, {}, None

    @rule(some=st.lists(st.sampled_from(SPLITS)))
    def add_splits(self, some: list[SnapshotSplit]) -> None:
        self.store.add_splits(SHOP, self.model.generation, some)
        for split in some:
            self.model.status.setdefault(split.split_id, SplitStatus.PLANNED)
            self.model.attempts.setdefault(split.split_id, 0)

    @precondition(lambda self: self.model.status)
    @rule(
        split=st.sampled_from(SPLITS), status=st.sampled_from(SplitStatus), back=st.integers(0, 1)
    )
    def mark_split(self, split: SnapshotSplit, status: SplitStatus, back: int) -> None:
        generation = self.model.generation - back
        report = report_of(split) if status is SplitStatus.FINISHED else None
        now = self.model.status.get(split.split_id)
        refused: type[Exception] | None = None
        if self.fenced(generation):
            refused = FencedError
        elif now is None or status in NOT_AFTER.get(now, set()):
            refused = StateMovedError
        if refused is not None:
            with pytest.raises(refused):
                self.store.mark_split(SHOP, generation, split, status, report=report)
            return
        self.store.mark_split(SHOP, generation, split, status, report=report)
        self.model.status[split.split_id] = status
        self.model.attempts[split.split_id] += status is SplitStatus.READING

    @rule(offset=st.integers(1, 1000), back=st.integers(0, 1))
    def beat(self, offset: int, back: int) -> None:
        generation = self.model.generation - back
        stream = StreamState(at(offset), changes=offset)
        if self.fenced(generation):
            with pytest.raises(FencedError):
                self.store.beat(SHOP, generation, stream)
            return
        self.store.beat(SHOP, generation, stream)
        self.model.stream = stream

    @invariant()
    def store_equals_model(self) -> None:
        state = self.store.ensure(SHOP)
        assert (state.generation, state.phase, state.wanted, state.plan_id) == (
            self.model.generation,
            self.model.phase,
            self.model.wanted,
            self.model.plan_id,
        )
        splits = self.store.splits(SHOP)
        assert {s.split.split_id: s.status for s in splits} == self.model.status
        assert {s.split.split_id: s.attempt for s in splits} == self.model.attempts
        assert self.store.stream(SHOP) == self.model.stream
        for table in self.store.tables(SHOP):
            statuses = list(self.model.status.values())
            assert table.table == ORDERS
            assert table.splits_finished == statuses.count(SplitStatus.FINISHED)
            assert table.splits_planned == len(statuses) - statuses.count(SplitStatus.CUT)
            assert table.rows == 10 * table.splits_finished


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
