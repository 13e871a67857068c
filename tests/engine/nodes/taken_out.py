"""Rules of the engine, each with a schedule that goes wrong where it is taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_cdc_provider.columns.plain_changes import PlainChanges
from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.known_log import KnownLog, TableApart, TablesApart
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink import guarded_writes, settled_few, settling, touched_rows
from airflow_cdc_provider.engine.sink.beaten import BeatenChanges
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.guarded_joins import JoinLook
from airflow_cdc_provider.engine.sink.guarded_writes import GuardedWrites
from airflow_cdc_provider.engine.sink.join_sink import StreamJoinSink
from airflow_cdc_provider.engine.sink.selection import Selection
from airflow_cdc_provider.engine.sink.their_changes import TheirChanges
from tests.engine.nodes import edges
from tests.engine.nodes.log_reading import Reading
from tests.engine.nodes.node import StoppedRow
from tests.engine.nodes.nodes_world import Start, Write
from tests.engine.nodes.schedules import (
    Alone,
    Crash,
    Deliver,
    Drift,
    Idle,
    Meanwhile,
    Reread,
    Step,
    Stop,
    Writes,
)
from tests.engine.nodes.stores import NodeJoinLedger, NodeSlotStore, Writing

Patch = pytest.MonkeyPatch
A, B = 0, 1
THERE, BACK = 0, 1
"""The edges of a pair: from a to b, and from b to a."""
COLUMN = ("column", "column")
STEPWISE = Writing(at_once=False)


@dataclass(frozen=True)
class TakenOut:
    """A rule that is taken out, and where that is seen."""

    take_out: Callable[[Patch], None]
    schedule: list[Step]
    start: Start = field(default_factory=Start)
    seen_as: str = "differ"


def _wins(node: int, **others: Any) -> Start:
    """Return a pair whose conflicts that node wins."""
    return Start(winners=(node, 0, 0), **others)


def _put(node: int, key: int = 10, at: int | None = 1) -> Writes:
    return Writes(node, (Write("put", 0, key, at),))


def _change(node: int, kind: str, key: int = 10, at: int | None = 1) -> Writes:
    return Writes(node, (Write(kind, 0, key, at),))


# --- how rules are taken out --------------------------------------------------------------------


def _all_is_kept(patch: Patch) -> None:
    patch.setattr(EdgeOrigins, "leaves_out", lambda self, marker: False)


def _knew_all(patch: Patch) -> None:
    def known(self: GuardedWrites, *_: object) -> Any:
        return KnownLog(self.guard._own_log.log_end(purpose="").now())

    patch.setattr(GuardedWrites, "known", known)


def _not_asked_again(patch: Patch) -> None:
    def conflicts(self: Any) -> Any:
        found = [each for table in self._settled for each in table.conflicts()]
        self._writes.beaten.note(found)
        return found

    patch.setattr(guarded_writes._Look, "conflicts", conflicts)


def _forgets(patch: Patch) -> None:
    catch_up = Guard.catch_up

    def forgetting(self: Guard, known: Any) -> bool:
        self._touched.clear()
        return catch_up(self, known)

    patch.setattr(Guard, "catch_up", forgetting)


def _nothing_is_undone(patch: Patch) -> None:
    patch.setattr(NodeSlotStore, "undo_to_savepoint", lambda self: None)


def _none_is_beaten(patch: Patch) -> None:
    patch.setattr(BeatenChanges, "places", lambda self, *_: {})


def _none_was_beaten(patch: Patch) -> None:
    patch.setattr(NodeSlotStore, "beaten", lambda self, *_: ())


def _deletes_count_as_their_rows(patch: Patch) -> None:
    strength, steps = settled_few.strength, settling._steps

    def few(changes: PlainChanges, column: str, change: int, *, takes: bool) -> Any:
        return *strength(changes, column, change, takes=takes)[:2], False

    def columns(*given: Any) -> Any:
        found = steps(*given)
        return settling._Steps(found.row, found.values, found.deletes * 0, found.change)

    patch.setattr(settled_few, "strength", few)
    patch.setattr(settling, "_steps", columns)


def _last_change_counts(patch: Patch) -> None:
    def strongest(self: settled_few.OurRows, key: Any) -> Any:
        part, step = self._steps[key][-1]
        return settled_few.strength(part, self.column, step.change, takes=step.takes)

    patch.setattr(settled_few.OurRows, "strongest", strongest)


def _source_wins_ties(patch: Patch) -> None:
    rule_of = Topology.rule_of

    def rule(self: Topology, table: Any) -> ConflictRule:
        return ConflictRule(self.src_node, rule_of(self, table).column)

    patch.setattr(Topology, "rule_of", rule)


def _moves_touch_one_key(patch: Patch) -> None:
    steps_of, keys = touched_rows.steps_of, TheirChanges.keys

    def steps(changes: PlainChanges, *given: Any) -> Any:
        found = list(steps_of(changes, *given))
        put = {step.change for step in found if not step.takes}
        return (step for step in found if not (step.takes and step.change in put))

    patch.setattr(touched_rows, "steps_of", steps)
    patch.setattr(TheirChanges, "keys", lambda self, names: keys(self, names)[1:])


def _idle_log_says_nothing(patch: Patch) -> None:
    passes_over = Selection.passes_over

    def passes(self: Selection, stream: Any) -> Any:
        found = passes_over(self, stream)
        return found and type(found)(found.start, found.end, found.only_ledgers)

    patch.setattr(Selection, "passes_over", passes)


def _stored_knew_is_lost(patch: Patch) -> None:
    locked_row = NodeSlotStore.locked_row

    def row(self: NodeSlotStore) -> Any:
        found = locked_row(self)
        return type(found)(found.position, found.name, found.stream)

    patch.setattr(NodeSlotStore, "locked_row", row)


def _somebody_decides(patch: Patch) -> None:
    patch.setattr(ConflictRule, "stops", False)


def _joins_look_late(patch: Patch) -> None:
    patch.setattr(JoinLook, "without_theirs", lambda self, wanted: (wanted, 0))


def _joins_look_once(patch: Patch) -> None:
    patch.setattr(JoinLook, "require_not_overtaken", lambda self, *_: None)


def _joins_know_all(patch: Patch) -> None:
    patch.setattr(NodeJoinLedger, "knew", lambda self: KnownLog(self._session.node.end))


def _joins_do_not_wait(patch: Patch) -> None:
    patch.setattr(StreamJoinSink, "_may_join", lambda self, *_: True)


def _not_asked_before(patch: Patch) -> None:
    def begin(self: Any, work: Any) -> None:
        self._work = work

    patch.setattr(guarded_writes._Look, "begin", begin)


def _null_is_great(patch: Patch) -> None:
    strength = settled_few.strength

    def few(changes: PlainChanges, column: str, change: int, *, takes: bool) -> Any:
        there, value, taken = strength(changes, column, change, takes=takes)
        return True, value if there else 99, taken

    patch.setattr(settled_few, "strength", few)


def _conflicts_are_not_stored(patch: Patch) -> None:
    patch.setattr(NodeSlotStore, "note_conflicts", lambda self, _: None)


def _joins_write_nothing(patch: Patch) -> None:
    patch.setattr(StreamJoinSink, "_replace_guarded", lambda self, *_, again: ((), 0))


def _none_is_apart(patch: Patch) -> None:
    patch.setattr(KnownLog, "of", lambda self, _: self.position)


def _back_at_once(patch: Patch) -> None:
    def back(self: TablesApart, table: Any, _: object) -> TablesApart:
        return self.without([table])

    patch.setattr(TablesApart, "back", back)


def _stopped_anew(patch: Patch) -> None:
    def stopped(self: TablesApart, tables: Any, stream: Any) -> TablesApart:
        return self._with({table: TableApart(table, stream) for table in tables})

    def moved(self: TablesApart, table: Any, to: Any) -> TablesApart:
        return self._with({table: TableApart(table, to)})

    patch.setattr(TablesApart, "stopped", stopped)
    patch.setattr(TablesApart, "moved", moved)


def _stops_with_nothing_known(patch: Patch) -> None:
    patch.setattr(edges, "StoppedRow", lambda stream, _: StoppedRow(stream, None))


def _alone_knows_nothing_more(patch: Patch) -> None:
    patch.setattr(TablesApart, "moved", lambda self, *_: self)


def _nothing(patch: Patch) -> None:
    """What is taken out is said by the start."""


LATE_B = Meanwhile("before write", (Write("put", 0, 10, 1),))
BOTH: list[Step] = [_put(A), _put(B)]
OTHER = Write("put", 1, 12, 1)
NAMED: list[Step] = [Writes(A, (OTHER,)), Deliver(THERE)]
"""From then on the log says what the edge there has brought."""
RULES = {
    "markers are judged": TakenOut(
        _all_is_kept,
        [_put(A, 0), Deliver(THERE), _put(A, 0), Deliver(BACK)],
        Start(policies=("none", "none")),
        seen_as="was changed by others",
    ),
    "what was known is in the ledger's row": TakenOut(_knew_all, BOTH),
    "batches end where what was known moves": TakenOut(
        _nothing,
        [*BOTH, Deliver(THERE), Deliver(BACK)],
        Start(reading=Reading(cuts=False)),
    ),
    "what was known is stored": TakenOut(
        _stored_knew_is_lost,
        [_put(B), Deliver(BACK), _put(A, 11), Deliver(THERE), Crash(THERE), _put(A)],
        _wins(B),
    ),
    "idle log says what was known": TakenOut(
        _idle_log_says_nothing,
        [
            _put(A, 11),
            Deliver(THERE),
            _put(B),
            Deliver(BACK),
            Deliver(THERE),
            Idle(THERE),
            Crash(THERE),
            _put(A),
        ],
        _wins(B),
    ),
    "the guard is asked again after the write": TakenOut(
        _not_asked_again, [_put(A), Deliver(THERE, meanwhile=LATE_B)], _wins(B)
    ),
    "the guard is asked before the write": TakenOut(
        _not_asked_before, BOTH, _wins(B), seen_as="does not get on"
    ),
    "what was written before is undone": TakenOut(
        _nothing_is_undone,
        [_put(B, 11), _put(A), Deliver(THERE, meanwhile=LATE_B)],
        _wins(B, writing=STEPWISE),
    ),
    "the guard forgets nothing that is not known": TakenOut(
        _forgets, [_put(B), _put(A, 11), _put(A), Deliver(THERE, most=1)], _wins(B)
    ),
    "beaten changes are remembered": TakenOut(
        _none_is_beaten,
        [_put(A, at=9), _put(A, at=2), _put(B, at=5), Deliver(THERE, most=1)],
        Start(policies=COLUMN),
    ),
    "beaten changes are stored": TakenOut(
        _none_was_beaten,
        [_put(A, at=9), _put(A, at=2), _put(B, at=5), Deliver(THERE, 1), Crash(THERE)],
        Start(policies=COLUMN),
    ),
    "the greatest of a node's changes counts": TakenOut(
        _last_change_counts,
        [_put(A, at=9), _put(A, at=2), _put(B, at=5)],
        Start(policies=COLUMN),
    ),
    "a delete counts just above its row": TakenOut(
        _deletes_count_as_their_rows,
        [_change(A, "delete"), _put(B, at=1)],
        _wins(B, policies=COLUMN),
        seen_as="should stay",
    ),
    "NULL counts below all values": TakenOut(
        _null_is_great,
        [_put(A, at=None), _put(B, at=1)],
        Start(policies=COLUMN),
        seen_as="should stay",
    ),
    "conflicts are stored": TakenOut(
        _conflicts_are_not_stored, BOTH, seen_as="has no conflict with"
    ),
    "the winner's change stays where both count the same": TakenOut(
        _source_wins_ties, [_put(A, at=3), _put(B, at=3)], Start(policies=COLUMN)
    ),
    "a key that moves is two keys": TakenOut(_moves_touch_one_key, [_change(A, "move"), _put(B)]),
    "a person decides": TakenOut(
        _somebody_decides, BOTH, Start(policies=("stop", "priority")), seen_as="differ"
    ),
    "a table that stops is known as it stands": TakenOut(
        _none_is_apart,
        [Stop(THERE), _put(A), _put(A, 11), Writes(A, (OTHER,)), Deliver(THERE), _put(B)],
        seen_as="differ",
    ),
    "a table that comes back is where it was brought": TakenOut(
        _back_at_once,
        [*NAMED, Stop(THERE), _put(A, at=2), Writes(A, (OTHER,)), Alone(THERE), _put(B, at=3)],
    ),
    "what was known of a table never becomes less": TakenOut(
        _stopped_anew,
        [
            *NAMED,
            Stop(THERE),
            _put(A, at=2),
            Writes(A, (OTHER,)),
            Alone(THERE),
            Stop(THERE),
            _put(B, at=3),
        ],
    ),
    "a table that is brought alone is known further": TakenOut(
        _alone_knows_nothing_more,
        [*NAMED, Stop(THERE), _put(A, at=2), Alone(THERE, transactions=1), _put(B, at=3)],
    ),
    "a table stops with what was known": TakenOut(
        _stops_with_nothing_known,
        [
            _put(B, at=2),
            Deliver(BACK),
            _put(A, 11),
            Deliver(THERE),
            Stop(THERE),
            _put(A, at=3),
        ],
        _wins(B),
    ),
    "a join looks before it writes": TakenOut(
        _joins_look_late, [_put(B, 1), Reread(THERE)], seen_as="changes its rows all the time"
    ),
    "a join looks when it has written": TakenOut(
        _joins_look_once,
        [Drift(B, Write("put", 0, 10, 7)), Reread(THERE, meanwhile=LATE_B)],
        seen_as="has written over",
    ),
    "a join knows what the source knew": TakenOut(
        _joins_know_all, [_put(B, 1), Reread(THERE)], seen_as="was changed by others"
    ),
    "a join writes what differs": TakenOut(
        _joins_write_nothing,
        [Drift(B, Write("put", 0, 10, 7)), Reread(THERE)],
        seen_as="has left 10 as it was",
    ),
    "a join waits for the stream": TakenOut(
        _joins_do_not_wait,
        [_put(A, 0), _put(A, 0), Reread(THERE, is_pushed=False), Deliver(THERE, 1)],
        seen_as="goes back",
    ),
}
IN_COLUMNS = [
    "a key that moves is two keys",
    "a delete counts just above its row",
    "beaten changes are remembered",
    "beaten changes are stored",
    "the winner's change stays where both count the same",
    "what was known is in the ledger's row",
    "the guard forgets nothing that is not known",
]
"""Rules that are kept in another place where changes are compared as columns."""
