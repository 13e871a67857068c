"""An edge of the model: the engine's own writer, guard and joins between two nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import pyarrow as pa

from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.core.errors import (
    SinkBusyError,
    SinkUnreachableError,
    UndecidedConflictError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.ledger.decisions import pass_over, rejoin, stop
from airflow_cdc_provider.engine.ledger.records import Records, SlotMoved
from airflow_cdc_provider.engine.ledger.state import LedgerState, Place, Slot
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows
from airflow_cdc_provider.engine.sink.change_sink import SlotChangeSink
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.join_sink import StreamJoinSink
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from tests.engine.counter_log import CounterPosition
from tests.engine.nodes.log_reading import NodeLog, NodeReader, Reading
from tests.engine.nodes.node import Committed, EdgeLedger, Interrupts, Node, NodeSession, StoppedRow
from tests.engine.nodes.rows import (
    COLUMNS,
    PLANS,
    TABLES,
    Row,
    Scope,
    batch_of,
    from_columns,
    is_in,
    listed_of,
    tables_of,
)
from tests.engine.nodes.stores import NodeChangeStore, NodeJoinStore, Writing

REQUEST = "again"


@dataclass
class Rereading:
    """A split that is read again, step by step."""

    split: SnapshotSplit
    low: int
    rows: list[Row] | None = None
    high: int | None = None


@dataclass
class Edge:
    """A pipeline between two nodes, and what its process has in memory."""

    topology: Topology
    src: Node
    dst: Node
    reading: Reading = field(default_factory=Reading)
    writing: Writing = field(default_factory=Writing)
    isolates: bool = False
    """A table whose conflict a person decides is left alone; the edge goes on."""
    ended_by: UndecidedConflictError | None = None
    undecided: set[TableId] = field(default_factory=set)
    """Tables with a conflict that a person decides."""
    rereading: Rereading | None = None

    def __post_init__(self) -> None:
        start = self.src.end
        progress = [TableProgress(table, start) for table in TABLES]
        self.name = self.topology.name_in_ledger
        self.dst.ledgers[self.name] = EdgeLedger(start, StreamSplit(start, None, (*progress,)))
        self.known = self.dst.end
        self.interrupts = Interrupts()
        self.fuse: list[int] = []
        self.guard_fuse: list[int] = []
        self.splits = 0
        self.joined_rows: dict[int, Row | None] = {}
        """Of the split that has joined last: what the source has of its keys."""
        self._sink: SlotChangeSink | None = None
        self._reader: NodeReader | None = None
        self._joins: tuple[StreamJoinSink, int] | None = None
        self._quiet: IdleRange | None = None

    @property
    def ledger(self) -> EdgeLedger:
        return self.dst.ledgers[self.name]

    @property
    def place(self) -> int:
        """Return where the ledger is in the source's log."""
        position = self.ledger.position
        assert isinstance(position, CounterPosition)
        return position.number

    @property
    def is_done(self) -> bool:
        """Tell whether all of the source's log is read."""
        return self._reader is not None and self._reader.position == self.src.end

    def crash(self) -> None:
        """Lose what is in memory."""
        for each in (self._sink, self._joins[0] if self._joins else None):
            if each is not None:
                each.close()
        self._sink = self._reader = self._joins = self._quiet = None

    def _session(self) -> NodeSession:
        return NodeSession(self.dst, self.interrupts, self.fuse)

    def _guard(self, tables: Collection[TableId] = TABLES) -> Guard | None:
        if not self.topology.is_guarded:
            return None
        log = NodeLog(self.dst, self.reading, self.guard_fuse)
        plans = [plan for table, plan in PLANS.items() if table in tables]
        return Guard(log, self.topology, plans, {}, self.known)

    def brought(self, table: TableId) -> int:
        """Return up to where in the source's log the sink has a table."""
        position = self.ledger.apart.at(table, self.ledger.position)
        assert isinstance(position, CounterPosition)
        return position.number

    @property
    def flowing(self) -> tuple[TableId, ...]:
        return tuple(each.table for each in self.ledger.stream.tables)

    # --- the stream ---------------------------------------------------------------------------

    def _opened(self) -> tuple[SlotChangeSink, NodeReader]:
        if self._sink is None or self._reader is None:
            store = NodeChangeStore(self._session(), self.topology, self.writing)
            tables = self.flowing
            captured = CapturedTables(tuple(PLANS.values()), dict.fromkeys(tables, COLUMNS))
            self._sink = SlotChangeSink(store, captured, guard=self._guard(tables))
            self._reader = self._reader_of(self.place, tables)
        return self._sink, self._reader

    def _reader_of(self, start: int, tables: Collection[TableId]) -> NodeReader:
        """Return a reader of the source's log, for some tables."""
        opposite = self.topology.opposite()
        name = opposite.name_in_ledger if self.topology.is_guarded else ""
        reader = NodeReader(self.src, start, self.topology.origins(), name, self.reading)
        reader.tables = frozenset(tables)
        return reader

    def deliver(self, transactions: int | None = None, *, most: int | None = None) -> None:
        """Bring so many of the source's next transactions, all if None; a crash ends it early."""
        if self.ended_by is not None:
            return
        before = len(self.dst.log), self.place
        try:
            sink, reader = self._opened()
            reader.reading = self.reading if most is None else replace(self.reading, most=most)
            last = len(self.src.log)
            if transactions is not None:
                last = min(last, reader.position.number + transactions)
            sink.quiet, self._quiet = self._quiet, None
            for batch in reader.read_up_to(self.src.at(last), batch_s=1.0):
                before = len(self.dst.log), self.place
                sink.apply(batch)
            self._quiet = sink.quiet
        except (SinkUnreachableError, SinkBusyError):
            self.crash()
        except UndecidedConflictError as error:
            if not self.interrupts.happened:
                assert before == (len(self.dst.log), self.place), "something was written"
            self.crash()
            self._undecided(error)
        finally:
            self.interrupts.clear()

    def _undecided(self, error: UndecidedConflictError) -> None:
        """Leave the table alone whose conflict a person decides, or end."""
        (table,) = (each for each in TABLES if str(each) in error.tables)
        if not (self.isolates and self.stop(table)):
            self.ended_by = error
        self.undecided.add(table)

    # --- a table that the stream leaves alone -------------------------------------------------

    def stop(self, table: TableId) -> bool:
        """Leave a table alone from here on; False if no other would flow."""
        if table not in self.flowing or len(self.flowing) == 1:
            return False
        self.crash()
        self._decide(lambda state: stop(state, 0, [table], NO_ERROR))
        return True

    def catch_up(self, table: TableId, transactions: int | None = None) -> None:
        """Bring a table that is left alone further, then back if it has come to the stream."""
        alone = self.ledger.stopped.get(table)
        if alone is None or self.ended_by is not None or table in self.undecided:
            return
        store = NodeChangeStore(self._session(), self.topology, self.writing, table)
        captured = CapturedTables(tuple(PLANS.values()), {table: COLUMNS})
        guard = self._guard([table])
        sink = SlotChangeSink(store, captured, of_stopped_table=True, guard=guard)
        assert isinstance(alone.stream.start, CounterPosition)
        start = alone.stream.start.number
        last = len(self.src.log)
        last = last if transactions is None else min(last, start + transactions)
        try:
            for batch in self._reader_of(start, [table]).read_up_to(self.src.at(last), batch_s=1.0):
                sink.apply(batch)
        except (SinkUnreachableError, SinkBusyError):
            pass
        except UndecidedConflictError:
            self.undecided.add(table)
        finally:
            sink.close()
            self.interrupts.clear()
        if alone.stream.start.covers(self.ledger.position) and table not in self.undecided:
            self.crash()
            self._decide(lambda state: rejoin(state, 0, table))

    def _decide(self, decide: Callable[[LedgerState], Records]) -> None:
        """Change the ledger as is decided, in one commit."""
        ledger = self.ledger
        stopped = [StoppedTable(each.stream, NO_ERROR, 0) for each in ledger.stopped.values()]
        state = LedgerState(
            self._at_sink,
            slots=(Slot(ledger.position, ledger.stream, ledger.apart),),
            stopped=tuple(stopped),
            changes=(),
        )
        after = state.with_records(decide(state))
        (slot,) = after.required_slots()
        ledger.stream, ledger.apart = slot.stored, slot.apart
        ledger.stopped = {
            each.table: ledger.stopped.get(each.table, StoppedRow(each.stream, ledger.knew))
            for each in after.stopped or ()
        }
        name = self.name if ledger.is_named else ""
        self.dst.commit(Committed((), moved=(name, KnownLog(ledger.position, ledger.apart))))

    @property
    def _at_sink(self) -> Place:
        return Place(PipelineName(f"{self.src.name}_to_{self.dst.name}"), self.dst.name)

    def commit_idle_log(self) -> None:
        """Move the ledger over log that holds nothing for the sink, as the heartbeat does."""
        quiet, ledger = self._quiet, self.ledger
        self._quiet = None
        if quiet is None:
            return
        slots = (Slot(ledger.position, ledger.stream),)
        state = LedgerState(self._at_sink, slots=slots)
        for record in pass_over(state, 0, quiet):
            assert isinstance(record, SlotMoved)
            ledger.position, ledger.knew = record.position, record.knew or ledger.knew
            name = self.name if ledger.is_named else ""
            known = KnownLog(record.position, ledger.apart)
            self.dst.commit(Committed((), moved=(name, known)))

    # --- joins --------------------------------------------------------------------------------

    def read_again(self, scope: Scope) -> None:
        """Begin to read rows again: L is noted."""
        self.splits += 1
        self.rereading = Rereading(scope.split(self.splits), len(self.src.log))

    def go_on_reading(self) -> bool:
        """Take the next step of the split that is read again; True if it has joined."""
        reading = self.rereading
        if reading is None or self.ended_by is not None:
            return False
        if reading.rows is None:
            rows = self.src.rows[reading.split.table].values()
            reading.rows = [row for row in rows if is_in(reading.split, row)]
        elif reading.high is None:
            reading.high = len(self.src.log)
        else:
            return self._join(reading, reading.rows, reading.high)
        return False

    def _join(self, reading: Rereading, rows: list[Row], high: int) -> bool:
        """Let the split join, if it may; False also after a crash."""
        split = reading.split
        report = SplitReport(
            split.split_id, self.src.at(reading.low), self.src.at(high), len(rows), 0, "", 1
        )

        def rows_at(position: LogPosition) -> JoinedRows:
            assert isinstance(position, CounterPosition)
            run = self.src.log[reading.low : position.number]
            changes = [(0, each) for tx in run for each in tx.changes if each.table == split.table]
            found = tables_of(changes, few=False)
            read = ArrowRows(pa.Table.from_batches([batch_of(rows)]))
            listed = listed_of(split)
            joined = joined_rows(read, found, PLANS[split.table].schema, split, listed=listed)
            self._note_joined(split, joined)
            return joined

        try:
            joins, epoch = self._opened_joins(split.table)
            place = joins.join(REQUEST, split, report, rows_at, epoch=epoch)
        except SinkUnreachableError:
            self.crash()
            return False
        finally:
            self.interrupts.clear()
        if place is not None:
            self.rereading = None
        return place is not None

    def _note_joined(self, split: SnapshotSplit, joined: JoinedRows) -> None:
        """Note which rows are to be there when the split has joined."""
        gone = set() if joined.touched is None else {*joined.touched.column("id").to_pylist()}
        if split.is_whole_range:
            gone |= {row[0] for row in self.dst.rows[split.table].values() if is_in(split, row)}
        rows = [row for batch in joined.rows.batches() for row in from_columns(batch)]
        self.joined_rows = {**dict.fromkeys(gone), **{row[0]: row for row in rows}}

    def _opened_joins(self, table: TableId) -> tuple[StreamJoinSink, int]:
        if self._joins is None:
            store = NodeJoinStore(self._session(), self.topology, self.writing)
            joins = StreamJoinSink(store, self._guard())
            self._joins = joins, 0
        joins, epoch = self._joins
        if not epoch:
            epoch = joins.begin(REQUEST, TABLES)
            self._joins = joins, epoch
        return joins, epoch
