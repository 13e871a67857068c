"""A node's log as the engine reads it: batches are cut where the real reader cuts them.

As in `systems.mysql.binlog.transactions`: a transaction is judged by its markers; a batch ends in
front of one in which the ledger of the edge back moved, if it has changes by then; one that is full
ends; and of a transaction larger than a batch parts are handed on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import LOOK_AT_TABLES, LogReading
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from tests.engine.counter_log import CounterPoint, CounterPosition
from tests.engine.nodes.node import Committed, Node
from tests.engine.nodes.rows import PLANS, TABLES, Change, tables_of


@dataclass(frozen=True)
class Reading:
    """How a log is read."""

    most: int = 100
    """As many changes are in a batch at most, and so many are handed on of a larger transaction."""
    few: bool = True
    """Changes come value by value, not as columns."""
    cuts: bool = True
    """A batch ends where what was known moves. Broken: one `knew` for all of its changes."""


@dataclass
class _Batch:
    """What is collected for the next batch."""

    points: list[CounterPoint] = field(default_factory=list)
    changes: list[tuple[int, Change]] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)

    def add(self, number: int, changes: Sequence[Change], origins: Collection[str]) -> None:
        self.points.append(CounterPoint(number, number))
        self.changes += [(len(self.points) - 1, change) for change in changes]
        self.origins |= {*origins}


class NodeReader:
    """Reads a node's log from a place on."""

    def __init__(
        self, node: Node, start: int, origins: EdgeOrigins, opposite: str, reading: Reading
    ) -> None:
        self._node = node
        self._start = self._at = start
        self._origins = origins
        self._opposite = opposite
        self.reading = reading
        self._knew: KnownLog | None = None
        self.tables = frozenset(TABLES)
        """Whose changes are read."""
        self._batch = _Batch()
        self.fuse: list[int] = []
        """Of one number: how many more transactions are read until the connection is lost."""

    @property
    def position(self) -> CounterPosition:
        return self._node.at(self._at)

    def close(self) -> None:
        pass

    def follow(self, *, batch_s: float, wait_s: float) -> Iterator[ChangeBatch | None]:
        raise NotImplementedError

    def read_up_to(self, end: LogPosition, *, batch_s: float) -> Iterator[ChangeBatch]:
        assert end.server == self._node.name, "a position of another log"
        assert isinstance(end, CounterPosition)
        for number in range(self._at + 1, end.number + 1):
            self._burn()
            yield from self._read(number, self._node.log[number - 1])
        if self._batch.points or self._at != self._start:
            yield self._emit(self._at)

    def _read(self, number: int, found: Committed) -> Iterator[ChangeBatch]:
        if found.moved is not None and found.moved[0] == self._opposite:
            if self._batch.points and self.reading.cuts:
                yield self._emit(self._at)
            self._knew = found.moved[1]
        kept, most = self._is_kept(found), self.reading.most
        changes = tuple(each for each in found.changes if kept and each.table in self.tables)
        origins = {mark.origin_node for mark in found.marks} or {self._node.name}
        if len(changes) > most:
            if self._batch.points:
                yield self._emit(self._at)
            while len(changes) > most:
                self._batch.add(number, changes[:most], origins)
                yield self._emit(None)
                changes = changes[most:]
        if changes:
            self._batch.add(number, changes, origins)
        self._at = number
        if len(self._batch.changes) >= most:
            yield self._emit(self._at)

    def _burn(self) -> None:
        if self.fuse:
            self.fuse[0] -= 1
        if self.fuse == [0]:
            self.fuse.clear()
            raise SinkUnreachableError("the log's reader was ended", self._node.name)

    def _is_kept(self, found: Committed) -> bool:
        """Tell whether a transaction is for the sink, by its markers."""
        if not found.changes:
            return False
        verdicts = {self._origins.leaves_out(mark) for mark in found.marks or (None,)}
        if len(verdicts) > 1:
            raise self._origins.mixed(self._node.name)
        return verdicts == {False}

    def _emit(self, end: int | None) -> ChangeBatch:
        batch, self._batch = self._batch, _Batch()
        found = ChangeBatch(
            self._node.at(self._start),
            None if end is None else self._node.at(end),
            tuple(batch.points),
            tables_of(batch.changes, few=self.reading.few),
            origins=frozenset(batch.origins),
            knew=self._knew,
        )
        if end is not None:
            self._start = end
        return found


@dataclass
class NodeLogEnd:
    """Returns the end of a node's log."""

    node: Node

    def now(self) -> LogPosition:
        return self.node.end

    def seen(self) -> LogPosition:
        return self.node.end

    def next_end(self, start: LogPosition, *, bound: LogPosition | None, batch_bytes: int) -> Any:
        raise NotImplementedError

    def bytes_behind(self, start: LogPosition) -> int | None:
        return None

    def close(self) -> None:
        pass


class NodeCatalogue:
    """The definitions of a node's tables, which are the same at all nodes."""

    identity = "a node"
    names_fold_case = False

    def picked(self, include: Any, exclude: Any = ()) -> Any:
        raise NotImplementedError

    def reserved_for(self, database: str) -> str:
        return ""

    def schemas(self, tables: Sequence[TableId]) -> Mapping[TableId, TableSchema]:
        return {table: PLANS[table].target for table in tables}


@dataclass
class NodeLog:
    """A node's own log, for the guard."""

    node: Node
    reading: Reading
    fuse: list[int]
    """Of its readers."""
    most_readers = 9

    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> AbstractContextManager[NodeCatalogue]:
        return nullcontext(NodeCatalogue())

    def firing_triggers(self, tables: Sequence[TableId]) -> Mapping[TableId, Sequence[str]]:
        return {}

    def log_end(self, *, purpose: str) -> NodeLogEnd:
        return NodeLogEnd(self.node)

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> NodeReader:
        assert isinstance(stream.start, CounterPosition)
        assert stream.start.server == self.node.name, "a position of another log"
        assert reading.origins is not None
        reader = NodeReader(
            self.node, stream.start.number, reading.origins, reading.opposite, self.reading
        )
        reader.fuse = self.fuse
        reader.tables = frozenset(reading.schemas)
        return reader

    def change_columns(self, reading: LogReading) -> Any:
        raise NotImplementedError

    def require_same_log(self, read: Any, held: Any, captured: Any) -> str:
        return ""

    def preflight(self, *, is_new: bool) -> tuple[()]:
        return ()
