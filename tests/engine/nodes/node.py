"""A node of the model: rows, a log of what was committed, and the ledgers of the edges to it.

A transaction notes what it changes and locks each row that it changes or deletes, absent ones as
well; all of it is committed at once. Whoever wants a row that another transaction has locked would
wait: here it is told so (`WouldWaitError`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.conflicts import Conflict
from airflow_cdc_provider.core.errors import SinkBusyError, SinkUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import NONE_APART, KnownLog, TablesApart
from airflow_cdc_provider.core.markers import Marker
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import JoinedSplit
from airflow_cdc_provider.engine.sink.session import Result
from tests.engine.counter_log import CounterPosition
from tests.engine.nodes.rows import TABLES, Change, Row

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 5


class WouldWaitError(SinkUnreachableError):
    """Another transaction has locked the row."""


@dataclass(frozen=True)
class Committed:
    """A transaction in a node's log."""

    changes: tuple[Change, ...]
    marks: tuple[Marker, ...] = ()
    moved: tuple[str, KnownLog] | None = None
    """The edge whose row of the ledger was written, and where it says that the edge is."""


@dataclass
class StoppedRow:
    """A table that an edge's stream leaves alone."""

    stream: StreamSplit
    knew: KnownLog | None


@dataclass
class EdgeLedger:
    """The ledger of one edge to a node."""

    position: LogPosition
    stream: StreamSplit
    knew: KnownLog | None = None
    apart: TablesApart = NONE_APART
    stopped: dict[TableId, StoppedRow] = field(default_factory=dict)
    is_named: bool = False
    """The row has the edge's name, so that its moves are seen in the log."""
    conflicts: list[Conflict] = field(default_factory=list)
    epochs: dict[tuple[str, TableId], int] = field(default_factory=dict)
    joined: dict[tuple[str, TableId, int], tuple[JoinedSplit, tuple[pa.Table, ...]]] = field(
        default_factory=dict
    )


class Node:
    """A database server that takes part."""

    def __init__(self, name: str, rows: Collection[Row] = ()) -> None:
        self.name = name
        self.rows: dict[TableId, dict[int, Row]] = {
            table: {row[0]: row for row in rows} for table in TABLES
        }
        self.log: list[Committed] = []
        self.ledgers: dict[str, EdgeLedger] = {}
        self.sessions: list[NodeSession] = []
        self.watch: Callable[[Node], None] = lambda _node: None
        """Called when something was committed."""

    @property
    def end(self) -> CounterPosition:
        return self.at(len(self.log))

    def at(self, number: int) -> CounterPosition:
        """Return a place in this node's log."""
        return CounterPosition(number, self.name)

    def is_locked(self, table: TableId, key: int, *, but: object = None) -> bool:
        return any(
            (table, key) in session.locked for session in self.sessions if session is not but
        )

    def commit(self, committed: Committed) -> None:
        for change in committed.changes:
            rows = self.rows[change.table]
            if change.before is not None:
                assert rows.pop(change.before[0], None) == change.before, "a before image is wrong"
            if change.after is not None:
                assert change.after[0] not in rows, "two rows have one key"
                rows[change.after[0]] = change.after
        self.log.append(committed)
        self.watch(self)


class NodeSession:
    """A connection of an edge to the node it writes to.

    A fuse counts what is asked of it, and ends it when it has burnt down: before that act, or after
    a commit whose answer is then lost.
    """

    where = "a node in memory"

    def __init__(self, node: Node, interrupts: Interrupts, fuse: list[int]) -> None:
        self.node = node
        self.interrupts = interrupts
        self._fuse = fuse
        self.locked: set[tuple[TableId, int]] = set()
        self._is_open = self._is_lost = False
        self._reset()
        node.sessions.append(self)

    def _reset(self) -> None:
        self.changes: list[Change] = []
        self.marks: tuple[Marker, ...] = ()
        self.moved: tuple[str, KnownLog] | None = None
        self._overlay: dict[tuple[TableId, int], Row | None] = {}
        self._acts: list[Callable[[], None]] = []
        self._savepoint = 0
        self.locked.clear()

    def step(self) -> None:
        """Burn the fuse."""
        if self._fuse:
            self._fuse[0] -= 1
        if self._is_lost or self._fuse == [0]:
            self._is_lost = True
            raise SinkUnreachableError("the session was ended", self.where, "none", "nothing")

    def begin(self) -> None:
        self.step()
        assert not self._is_open, "a transaction is open already"
        self._is_open = True

    def commit(self) -> None:
        assert self._is_open
        self.interrupts.happen("before commit")
        self.step()
        assert self.marks or not self.changes, "rows were changed without a marker"
        committed = Committed(tuple(self.changes), self.marks, self.moved)
        acts = self._acts
        self.rollback()
        for act in acts:
            act()
        if committed != Committed(()) or acts:
            self.node.commit(committed)
        self.interrupts.wake()
        self.step()  # the answer

    def rollback(self) -> None:
        self._is_open = False
        self._reset()

    def transaction(self, work: Callable[[], Result]) -> Result:
        for attempt in range(_TRIES):
            try:
                self.begin()
                result = work()
                self.commit()
                return result
            except SinkBusyError:
                if attempt + 1 == _TRIES:
                    raise
            finally:
                self.rollback()
        raise AssertionError

    def close(self) -> None:
        self.rollback()
        self._is_lost = True
        if self in self.node.sessions:
            self.node.sessions.remove(self)

    # --- what a transaction does --------------------------------------------------------------

    def at_commit(self, act: Callable[[], None]) -> None:
        """Have something done when the transaction commits."""
        self.step()
        assert self._is_open, "no transaction is open"
        self._acts.append(act)

    def mark(self, marks: Sequence[Marker]) -> None:
        self.step()
        assert self._is_open, "no transaction is open"
        assert not self.changes or self.marks, "the marker is not the transaction's first row"
        self.marks = tuple(sorted({*self.marks, *marks}))

    def held(self, table: TableId, key: int) -> Row | None:
        """Return a row as this transaction sees it."""
        if (table, key) in self._overlay:
            return self._overlay[table, key]
        return self.node.rows[table].get(key)

    def put(self, table: TableId, key: int, row: Row | None) -> None:
        """Write a row, or delete it; it is locked, and logged if it differs."""
        self.step()
        assert self._is_open, "no transaction is open"
        if self.node.is_locked(table, key, but=self):
            raise WouldWaitError("the row is locked", self.where, "none", "nothing")
        self.locked.add((table, key))
        before = self.held(table, key)
        if before != row:
            self._overlay[table, key] = row
            self.changes.append(Change(table, before, row))

    def set_savepoint(self) -> None:
        self._savepoint = len(self.changes)

    def undo_to_savepoint(self) -> None:
        """Undo what was written since; the rows stay locked."""
        for change in reversed(self.changes[self._savepoint :]):
            (key,) = change.keys
            self._overlay[change.table, key] = change.before
        del self.changes[self._savepoint :]


class Interrupts:
    """What others commit at a node while a transaction of an edge is open there.

    Each happens once; one that has to wait for a lock happens after the commit.
    """

    def __init__(self) -> None:
        self._due: dict[str, Callable[[], bool]] = {}
        self._waiting: list[Callable[[], bool]] = []
        self.happened = False

    def plan(self, moment: str, act: Callable[[], bool]) -> None:
        """Have something happen at a moment; it returns whether it did not have to wait."""
        self._due[moment] = act

    def happen(self, moment: str) -> None:
        act = self._due.pop(moment, None)
        if act is None:
            return
        self.happened = True
        if not act():
            self._waiting.append(act)

    def wake(self) -> None:
        """Let happen what has waited."""
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def clear(self) -> None:
        self._due.clear()
        self.wake()
        self.happened = False
