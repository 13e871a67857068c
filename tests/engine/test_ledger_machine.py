"""Any order of requests to a ledger keeps its laws; no server and no file is needed to say so.

The machine asks `decisions` and takes the records into a `LedgerState`. Beside it, `ledger_model`
plays the log and the rows, so that each law is a sentence about rows:

- only the generation that took over last commits anything;
- no position goes back, but for a source with another history;
- a table that the stream owns takes no split;
- an isolated table stays where it is, whatever the stream does, until it is brought further;
- it rejoins only where the stream is, or beyond;
- a change of a definition that is made is not made again;
- a hand-off is made from the reports that are there;
- nothing that has happened up to a position is missing in the rows of a table there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    LedgerSetBackError,
    SnapshotRequiredError,
    SplitOutdatedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import stopped_in
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger import decisions
from airflow_cdc_provider.engine.ledger.records import (
    ChangeEnded,
    PositionSet,
    Record,
    Records,
    SlotMoved,
    SlotsRewritten,
    SplitPublished,
    StoppedMoved,
    TablesOwned,
)
from airflow_cdc_provider.engine.ledger.state import LedgerState, Slot, known
from tests.engine.counter_log import CounterPosition
from tests.engine.ledger_model import EMPTY, HALVES, TABLES, Model, change_of, number_of, split_of

Decide = Callable[[LedgerState, int], Records]
tables = st.sampled_from(TABLES)
some_tables = st.sets(tables)
few_tables = st.sets(tables, max_size=1)
halves = st.sampled_from(HALVES)
reads = st.lists(st.integers(0, 2), min_size=6, max_size=6)
"""How much is written before each half of a table is read."""
seldom = st.sampled_from([False] * 4 + [True])
others = st.sampled_from([0] * 8 + [-1, 1])
"""By how much the generation that asks differs from the ledger's."""


class LedgerMachine(RuleBasedStateMachine):
    """Asks for anything at any time, also what is to be refused."""

    def __init__(self) -> None:
        super().__init__()
        self.state = EMPTY
        self.model = Model()
        self.positions: list[int] = []

    def commit(self, decide: Decide, off: int, refusal: type[CdcError] | None = None) -> bool:
        """Have it decided; tell whether it was. What is to be refused is."""
        refusal = {-1: FencedError, 1: LedgerSetBackError}.get(off, refusal)
        try:
            records = decide(self.state, self.state.generation + off)
        except CdcError as error:
            if refusal is None or not isinstance(error, refusal):
                raise
            return False
        assert refusal is None, f"{refusal} is due, not {records}"
        self.state = self.state.with_records(records)
        return True

    @property
    def slots(self) -> tuple[Slot, ...]:
        return known(self.state.slots)

    @property
    def stream(self) -> StreamSplit:
        return self.state.required_stream()

    @property
    def flowing(self) -> set[TableId]:
        """The tables in the stream."""
        return {progress.table for progress in self.stream.tables} if self.slots else set()

    @property
    def without_stream(self) -> type[CdcError] | None:
        return None if self.slots else SnapshotRequiredError

    def are_together(self) -> bool:
        return len({slot.position for slot in self.slots}) == 1

    @initialize(handed=some_tables, writes=reads)
    def begin(self, handed: set[TableId], writes: list[int]) -> None:
        """Most runs begin behind a hand-off: most rules are about the stream."""
        self.take_over(1)
        self.start_plan("one", 0)
        self.snapshot(handed, writes)

    @precondition(lambda self: not self.slots)
    @rule(writes=reads)
    def snapshot_all(self, writes: list[int]) -> None:
        self.snapshot({*TABLES}, writes)

    def snapshot(self, handed: set[TableId], writes: list[int]) -> None:
        """Read these tables while the source is written to, and hand them off."""
        for (table, half), count in zip(product(TABLES, HALVES), writes, strict=True):
            if table in handed:
                self.model.log += [True] * count
                self.publish(table, half, 0)
        self.prepare_hand_off(handed)
        if self.model.prepared is not None:
            self.hand_off(0)

    # --- the source ---------------------------------------------------------------------------

    @rule(what=st.lists(st.one_of(st.booleans(), tables), min_size=1, max_size=4))
    def write(self, what: list[bool | TableId]) -> None:
        self.model.log += what

    @rule(count=st.integers(1, 3))
    def write_elsewhere(self, count: int) -> None:
        self.model.log += [False] * count

    # --- ownership, plan and splits -----------------------------------------------------------

    @rule(more=st.sampled_from([-1, 0, 1]))
    def take_over(self, more: int) -> None:
        wanted = self.state.generation + more
        refusal = FencedError if more < 0 else None
        if self.commit(lambda state, _: decisions.take_over(state, wanted), 0, refusal):
            assert self.state.generation == wanted

    @rule(is_new=seldom, off=others)
    def start_plan_again(self, is_new: bool, off: int) -> None:
        self.start_plan("another" if is_new else self.state.plan_id, off)

    def start_plan(self, name: str, off: int) -> None:
        before = self.state.plan_id
        if self.commit(lambda state, by: decisions.start_plan(state, by, name), off):
            if name != before:
                self.model.forget()
                self.positions = []
            assert self.state.plan_id == name

    @rule(table=tables, half=halves, off=others)
    def publish(self, table: TableId, half: int, off: int) -> None:
        split, report = split_of(table, half), self.model.publish((table, half))
        refusal = FencedError if table in self.model.owned else None
        if self.commit(lambda s, by: decisions.publish(s, by, split, report), off, refusal):
            self.model.reports[table, half] = report
            assert decisions.publish(self.state, self.state.generation, split, report) == ()

    @precondition(lambda self: not self.slots)
    @rule(chosen=some_tables)
    def prepare_hand_off(self, chosen: set[TableId]) -> None:
        read = [t for t in chosen if all((t, half) in self.model.reports for half in HALVES)]
        if read:
            self.model.prepare(read)

    @precondition(lambda self: self.model.prepared is not None)
    @rule(off=others)
    def hand_off(self, off: int) -> None:
        stream, model = self.model.prepared, self.model
        assert stream is not None
        refusal = None
        if not self.slots:
            if model.outdated():
                refusal = StateMovedError
        elif self.stream != stream:
            behind = (
                self.stream.progress_of(each.table)
                and not each.applied_through.covers(self.stream.start)
                for each in stream.tables
            )
            if not any(behind):
                return
            refusal = StateMovedError
        is_first = not self.slots
        if self.commit(lambda s, by: decisions.hand_off(s, by, stream), off, refusal) and is_first:
            model.handed_off(stream)

    # --- the stream ---------------------------------------------------------------------------

    @precondition(lambda self: self.slots and self.are_together())
    @rule(count=st.integers(1, 2))
    def spread(self, count: int) -> None:
        """Another number of writers begins, all of them at the stream's position."""
        self.model.is_spread = self.model.is_spread or count > 1
        self.state = replace(self.state, slots=(self.slots[0],) * count)
        self.positions = []

    @precondition(lambda self: self.slots)
    @rule()
    def apply_all(self) -> None:
        for slot in range(len(self.slots)):
            self.apply(slot, self.model.end)

    @precondition(lambda self: self.slots)
    @rule(slot=st.integers(0, 1), count=st.integers(1, 4))
    def apply(self, slot: int, count: int) -> None:
        slot %= len(self.slots)
        found = self.slots[slot]
        first = at = number_of(found.position)
        mine = [half for half in HALVES if half % len(self.slots) == slot]
        for number in range(first + 1, min(first + count, self.model.end) + 1):
            if any(self.model.is_definition(number, each) for each in found.stored.tables):
                break
            for progress in found.stored.tables:
                for half in mine:
                    self.model.apply((progress.table, half), progress, number)
            at = number
        self.state = self.state.with_record(SlotMoved(slot, CounterPosition(at)))

    @precondition(lambda self: self.slots)
    @rule(slot=st.integers(0, 1), before=st.integers(0, 1), off=others)
    def pass_over(self, slot: int, before: int, off: int) -> None:
        at = number_of(self.slots[slot % len(self.slots)].position)
        start = end = max(0, at - before)
        while end < self.model.end and self.model.log[end] is False:
            end += 1
        quiet = IdleRange(CounterPosition(start), CounterPosition(end), only_ledgers=False)
        were = [number_of(slot.position) for slot in self.slots]
        if self.commit(lambda state, by: decisions.pass_over(state, by, quiet), off):
            moved = [end if start <= at < end else at for at in were]
            assert [number_of(slot.position) for slot in self.slots] == moved

    @rule(added=few_tables, removed=few_tables, behind=st.integers(0, 2), off=others)
    def change_tables(
        self, added: set[TableId], removed: set[TableId], behind: int, off: int
    ) -> None:
        removed -= added
        added -= self.model.owned
        if self.slots and self.flowing <= removed:
            return
        at = min(max([number_of(s.position) for s in self.slots] or [0]) + behind, self.model.end)
        new = dict.fromkeys(added, CounterPosition(at))
        done = self.commit(
            lambda s, by: decisions.change_tables(s, by, added=new, removed=removed, read=()),
            off,
            self.without_stream,
        )
        if done:
            for table in removed:
                self.model.stopped.pop(table, None)
            self.model.owned -= removed
            for table in added:
                self.model.unread(table)
            self.model.keep_reports(self.model.owned, but=self.stream.unread)
            assert self.flowing == self.model.owned - self.model.stopped.keys()

    @precondition(lambda self: self.slots and self.are_together() and self.stream.unread)
    @rule(off=others)
    def read_unread(self, off: int) -> None:
        """The rows of tables that begin anew are read at the stream's position, and join it."""
        at = self.stream.start
        read = [p.table for p in self.stream.tables if p.is_unread and at.covers(p.applied_through)]
        done = self.commit(
            lambda s, by: decisions.change_tables(s, by, added={}, removed=(), read=read), off
        )
        if done:
            rows = {(table, half): number_of(at) for table in read for half in HALVES}
            self.model.rows |= rows
            self.model.keep_reports(self.model.owned, but=self.stream.unread)

    @precondition(lambda self: self.slots and not self.state.changes)
    @rule(back=st.integers(0, 3), is_wanted=seldom, off=others)
    def set_position(self, back: int, is_wanted: bool, off: int) -> None:
        """The source has another history from a position on."""
        if not is_wanted:
            return
        at, model = max(0, number_of(self.stream.start) - back), self.model
        unread = {*self.stream.unread}
        begun = {t for t in self.flowing if not model.is_right_at(t, at)} - unread
        begun |= {table for table, own in model.stopped.items() if own > at}
        position = CounterPosition(at)
        if self.commit(lambda s, by: decisions.set_position(s, by, position, begun), off):
            model.other_history(at)
            for table in begun:
                model.unread(table)
            model.keep_reports(model.owned, but=self.stream.unread)
            assert [slot.position for slot in self.slots] == [position] * len(self.slots)
            self.positions = []

    # --- changes of definitions ---------------------------------------------------------------

    def definition_at(self, table: TableId) -> int | None:
        """The change of a table's definition that is the next thing to be done, if one is."""
        stopped = self.state.stopped_table(table)
        stream = self.stream if stopped is None else stopped.stream
        progress, at = stream.progress_of(table), number_of(stream.start)
        if (
            progress is None
            or at >= self.model.end
            or (stopped is None and not self.are_together())
        ):
            return None
        return at + 1 if self.model.is_definition(at + 1, progress) else None

    def due(self) -> list[TableId]:
        """The tables whose definition changes right behind where they are."""
        return [table for table in TABLES if self.slots and self.definition_at(table)]

    @precondition(lambda self: self.due())
    @rule(data=st.data(), rereads=st.booleans(), off=others)
    def begin_change(self, data: st.DataObject, rereads: bool, off: int) -> None:
        table = data.draw(st.sampled_from(self.due()))
        number = self.definition_at(table)
        assert number is not None
        in_step = self.model.is_right_at(table, number - 1)
        change = change_of(table, number, rereads=rereads or not in_step)
        if any(each.table == table and each != change for each in known(self.state.changes)):
            return
        for _ in range(2):
            if self.commit(lambda s, by: decisions.begin_changes(s, by, [change, change]), off):
                assert known(self.state.changes).count(change) == 1

    @precondition(lambda self: self.slots and self.state.changes)
    @rule(data=st.data(), off=others)
    def end_change(self, data: st.DataObject, off: int) -> None:
        change = data.draw(st.sampled_from(known(self.state.changes)))
        table, model = change.table, self.model
        if self.definition_at(table) != number_of(change.through):
            return
        if self.commit(lambda state, by: decisions.end_change(state, by, change), off):
            assert change not in known(self.state.changes)
            model.made.add((table, number_of(change.through)))
            if change.rereads:
                model.unread(table)
                assert table in self.stream.unread
                return
            model.rows |= {(table, half): number_of(change.through) for half in HALVES}
            if table in model.stopped:
                model.stopped[table] = number_of(change.through)

    # --- isolated tables ----------------------------------------------------------------------

    @rule(chosen=few_tables, off=others)
    def stop(self, chosen: set[TableId], off: int) -> None:
        if self.slots and self.flowing <= chosen:
            return
        stopping, error = chosen & self.flowing, StoredError.saying("refused")
        refusal = self.without_stream
        if self.commit(lambda s, by: decisions.stop(s, by, chosen, error), off, refusal):
            at = number_of(self.stream.start)
            self.model.stopped |= dict.fromkeys(stopping, at)
            assert not chosen & {change.table for change in known(self.state.changes)}

    @precondition(lambda self: self.model.stopped)
    @rule(table=tables, off=others)
    def say(self, table: TableId, off: int) -> None:
        self.commit(lambda s, by: decisions.say_of_stopped(s, by, table, NO_ERROR), off)
        found = self.state.stopped_table(table)
        assert found is None or off or found.is_paused

    @precondition(lambda self: self.model.stopped)
    @rule(data=st.data(), count=st.integers(1, 4))
    def catch_up_isolated(self, data: st.DataObject, count: int) -> None:
        """The writer of an isolated table applies what comes next."""
        table = data.draw(st.sampled_from(sorted(self.model.stopped)))
        found = self.state.stopped_table(table)
        assert found is not None
        first = at = number_of(found.stream.start)
        progress = found.stream.tables[0]
        for number in range(first + 1, min(first + count, self.model.end) + 1):
            if self.model.is_definition(number, progress):
                break
            for half in HALVES:
                self.model.apply((table, half), progress, number)
            at = number
        self.model.stopped[table] = at
        moved = StoppedMoved(found.stream.passed(CounterPosition(at)))
        self.state = self.state.with_record(moved)

    @rule(pick=st.integers(0, 5), off=others)
    def rejoin(self, pick: int, off: int) -> None:
        isolated = sorted(self.model.stopped) or TABLES
        table = isolated[pick % len(isolated)]
        own = self.model.stopped.get(table)
        refusal = self.without_stream
        if own is not None and any(number_of(slot.position) > own for slot in self.slots):
            refusal = SplitOutdatedError
        if self.commit(lambda state, by: decisions.rejoin(state, by, table), off, refusal):
            self.model.stopped.pop(table, None)
            assert own is None or table in self.flowing

    # --- the laws -----------------------------------------------------------------------------

    @invariant()
    def no_slot_goes_back(self) -> None:
        now = [number_of(slot.position) for slot in self.slots]
        if len(now) == len(self.positions):
            assert all(a <= b for a, b in zip(self.positions, now, strict=True))
        self.positions = now

    @invariant()
    def reports_are_those_that_are_of_use(self) -> None:
        held = {(split.table, split.number): each for split, each in known(self.state.reports)}
        assert held == self.model.reports

    @invariant()
    def an_isolated_table_is_where_it_was_brought_and_in_no_stream(self) -> None:
        held = {each.table: number_of(each.stream.start) for each in known(self.state.stopped)}
        assert held == self.model.stopped
        assert not held.keys() & self.flowing

    @invariant()
    def each_owned_table_is_in_the_stream_or_isolated(self) -> None:
        assert {table for table in TABLES if self.state.owns(table)} == self.model.owned

    @invariant()
    def nothing_is_missing_up_to_a_position(self) -> None:
        for table in self.flowing:
            for half in HALVES:
                slot = self.slots[half % len(self.slots)]
                self.holds(table, half, number_of(slot.position))
        for table, at in self.model.stopped.items():
            for half in HALVES:
                self.holds(table, half, at)

    def holds(self, table: TableId, half: int, through: int) -> None:
        if self.model.rows[table, half] is not None:
            missing = self.model.missing((table, half), through)
            assert not missing, f"{table}, half {half}, is at {through} and lacks {missing}"


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


# --- what the machine would not notice is no law of it --------------------------------------------


def _nobody_is_fenced(state: LedgerState, by: int) -> None:
    del state, by


def _passes_from_anywhere(state: LedgerState, by: int, quiet: IdleRange) -> Records:
    decisions.require_owner(state, by)
    return tuple(SlotMoved(number, quiet.end) for number in range(len(known(state.slots))))


def _takes_any_split(
    state: LedgerState, by: int, split: SnapshotSplit, report: SplitReport
) -> Records:
    decisions.require_owner(state, by)
    return () if (split, report) in known(state.reports) else (SplitPublished(split, report),)


def _stays_in_the_stream(*arguments: object) -> Records:
    return _but(SlotsRewritten, _DECISIONS.stop(*arguments))


def _isolates_where_the_log_ends(
    stream: StreamSplit, chosen: Collection[TableId]
) -> tuple[StreamSplit, ...]:
    ahead = CounterPosition(number_of(stream.start) + 1)
    return tuple(each.passed(ahead) for each in stopped_in(stream, chosen))


def _rejoins_anywhere(stream: StreamSplit, stopped: StreamSplit) -> StreamSplit:
    both = sorted((*stream.tables, *stopped.tables), key=lambda each: each.table)
    return replace(stream, tables=tuple(both))


def _does_not_pass_the_change(*arguments: object) -> Records:
    return _but(SlotsRewritten, _but(StoppedMoved, _DECISIONS.end_change(*arguments)))


def _leaves_the_change_begun(*arguments: object) -> Records:
    return _but(ChangeEnded, _DECISIONS.end_change(*arguments))


def _takes_any_hand_off(*arguments: object) -> None:
    del arguments


def _keeps_all_splits(state: LedgerState, stream: StreamSplit) -> TablesOwned:
    del state, stream
    return TablesOwned(frozenset(TABLES))


def _keeps_old_positions(
    state: LedgerState, by: int, position: LogPosition, begun: Collection[TableId]
) -> Records:
    return _but(PositionSet, _DECISIONS.set_position(state, by, position, begun))


def _but(kind: type[Record], records: Records) -> Records:
    return tuple(record for record in records if not isinstance(record, kind))


_DECISIONS = SimpleNamespace(**vars(decisions))
"""As they are before one is broken."""
BROKEN: dict[str, tuple[str, Callable[..., object]]] = {
    "an older generation commits": ("require_owner", _nobody_is_fenced),
    "idle log is passed from anywhere": ("pass_over", _passes_from_anywhere),
    "the stream's tables take splits": ("publish", _takes_any_split),
    "an isolated table stays in the stream": ("stop", _stays_in_the_stream),
    "a table is isolated beyond the stream": ("stopped_in", _isolates_where_the_log_ends),
    "a table rejoins behind the stream": ("rejoined", _rejoins_anywhere),
    "a change that is made is not passed": ("end_change", _does_not_pass_the_change),
    "a change that is made stays begun": ("end_change", _leaves_the_change_begun),
    "replaced reports are handed off": ("require_may_hand_off", _takes_any_hand_off),
    "splits of tables that left stay": ("_owned", _keeps_all_splits),
    "a source's other history is not begun": ("set_position", _keeps_old_positions),
}


@pytest.mark.parametrize("law", BROKEN)
@pytest.mark.sample(4)
def test_the_machine_notices_a_broken_law(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, *BROKEN[law])
    with pytest.raises((AssertionError, CdcError)):
        run_state_machine_as_test(
            LedgerMachine,
            settings=settings(
                max_examples=3_000,
                stateful_step_count=60,
                derandomize=True,  # the same search each time: it must find, not be lucky
                database=None,
                deadline=None,
                phases=[Phase.generate],  # that there is one is enough: it is not made smaller
                suppress_health_check=list(HealthCheck),
            ),
        )
