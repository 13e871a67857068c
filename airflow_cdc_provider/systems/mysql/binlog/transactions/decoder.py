"""The column decoder: raw events in log order become batches of changes, many events at a time.

A log is mostly one pattern: GTID, BEGIN, table map, rows, XID. Runs of such events are followed in
vector steps (`_run`): which transaction each event belongs to is a running count of the events
that open one, the rows of one table are decoded together, and the transactions' names, places and
times stay columns. Only what is rare is looked at alone (`_single`): files' beginnings and ends,
new table maps, statements, distributed transactions. Where there are few events, `SmallChunks`
follows what is plain one by one.

What the decoder does not understand is an error that says where, never skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np

from airflow_cdc_provider.columns.changes import ChangeBatch, Statement
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.core.errors import CdcError, IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import UNREADABLE, damaged
from airflow_cdc_provider.systems.mysql.binlog.events.event_kinds import Kind, kinds_of
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    ARTIFICIAL_FLAG,
    EventType,
    type_name,
)
from airflow_cdc_provider.systems.mysql.binlog.events.frames import FrameReader, Frames
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import LogPlace
from airflow_cdc_provider.systems.mysql.binlog.events.special_events import (
    heartbeat_place,
    refuse,
    rotate_target,
)
from airflow_cdc_provider.systems.mysql.binlog.events.statements import (
    LoggedStatement,
    Meaning,
    judged,
)
from airflow_cdc_provider.systems.mysql.binlog.events.text_reach import (
    TextReach,
    UnknownReach,
    Unlogged,
    unlogged,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import SchemaSource, no_schema
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps
from airflow_cdc_provider.systems.mysql.binlog.transactions.assembly import BatchAssembly
from airflow_cdc_provider.systems.mysql.binlog.transactions.few_events import SmallChunks
from airflow_cdc_provider.systems.mysql.binlog.transactions.known_positions import KnownPositions
from airflow_cdc_provider.systems.mysql.binlog.transactions.origins import TransactionOrigins
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import restamped, without_few
from airflow_cdc_provider.systems.mysql.binlog.transactions.prepared import (
    Prepared,
    PreparedBefore,
    PreparedTransactions,
    RowsPart,
    XaName,
    nothing_before,
    read_xa_prepare,
    xa_name_of,
)
from airflow_cdc_provider.systems.mysql.binlog.transactions.row_facts import RowFacts
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_runs import (
    TransactionRuns,
    parts_were_handed_on,
)
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

_HELD_BATCHES = 4
"""Prepared transactions may hold this many times a batch's bytes."""
_MAY_BRING_TABLES = re.compile("create|rename", re.IGNORECASE)

Captured = Callable[[TableId], bool] | Collection[TableId]


class ColumnDecoder:
    """Decodes raw events of the log into batches of changes of the captured tables."""

    def __init__(  # noqa: PLR0913 - each option is one a caller chooses by name
        self,
        start: MySqlPosition,
        *,
        server_uuid: str,
        flavour: str = "mysql",
        captured: Captured,
        limits: BatchLimits | None = None,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        schemas: SchemaSource = no_schema,
        before: PreparedBefore = nothing_before,
        prepared_as_committed: bool = False,
        every_statement: bool = False,
        picks: TablePicks = NO_PICKS,
        facts: Collection[str] = (),
        reach: TextReach | None = None,
        origins: EdgeOrigins | None = None,
        opposite: str = "",
    ) -> None:
        """Prepare the decoder at a start position.

        With `prepared_as_committed`, rows of XA come at XA PREPARE, in parts if need be.
        With `every_statement`, harmless statements that name a captured table are barriers, too;
        so are those by which a table comes that `picks` pick. `facts` are told of each row. `reach`
        says which tables row changes reach that are logged as text. `origins` says which
        transactions are left out by the marker that they begin with. `opposite` names an edge, of
        which batches say how far it had come.
        """
        limits = limits or BatchLimits()
        kept_bytes = _HELD_BATCHES * limits.bytes
        self._holds_back = not prepared_as_committed
        self._captured, self._captures_in = _captured_by(captured)
        self._captures_any = callable(captured) or bool(captured)
        self._every_statement = every_statement
        self._picks = picks
        self._reach = reach or UnknownReach()
        self._frames = FrameReader()
        marker = None if origins is None else origins.is_marker
        self._maps = TableMaps(
            self._captured, zero_dates, schemas, flavour, marker=marker, progress=bool(opposite)
        )
        judged = TransactionOrigins(origins, self._maps)
        known = KnownPositions(opposite, self._maps)
        self._assembly = BatchAssembly(
            start, server_uuid, limits, origins=judged.take, moves=known.take
        )
        self._runs = TransactionRuns(
            self._assembly,
            self._maps,
            kept_bytes=kept_bytes if self._holds_back else None,
            facts=RowFacts(facts),
            origins=judged,
            known=known,
        )
        self._prepared = PreparedTransactions(kept_bytes, before)
        self._place = LogPlace(start.binlog.offset if start.binlog else 4)
        self._few = SmallChunks(self._maps, self._assembly, self._runs, self._place)

    @property
    def position(self) -> MySqlPosition:
        """Return the last boundary seen, with the GTIDs up to there."""
        return self._assembly.position

    @property
    def has_changes(self) -> bool:
        """Tell whether transactions with changes are complete and not handed out."""
        return self._assembly.has_changes

    @property
    def in_transaction(self) -> bool:
        """Tell whether the log goes on inside a transaction."""
        return self._runs.open is not None

    @property
    def nulled(self) -> Counter[str]:
        """Return how many zero dates became NULL, by `table.column`."""
        return self._maps.nulled()

    def prepared(self, name: XaName) -> Prepared | None:
        """Return an XA transaction that is prepared and not ended so far, None if it is not."""
        return self._prepared.named(name)

    def flush(self) -> ChangeBatch | None:
        """Return the complete transactions as a batch, up to the last boundary.

        A batch without changes still moves the position; None if nothing moved.
        """
        return self._assembly.flush()

    def feed(self, chunk: EventChunk) -> Iterator[ChangeBatch]:
        """Decode events in log order; yield the batches that limits or a barrier end."""
        try:
            few = self._few.take(chunk, checksums=self._frames.checksums)
            if few is not None:
                yield from few
                return
            for frames in self._frames.read(chunk):
                yield from self._take(frames)
        except CdcError as error:
            raise self._located(error) from error
        except UNREADABLE as error:
            found = damaged(f"an event cannot be read ({type(error).__name__}: {error})")
            raise self._located(found) from error

    def _located(self, error: CdcError) -> CdcError:
        """Add the place in the log to an error."""
        where = f"log behind {self.position.binlog or self.position}"
        if self._runs.open is not None:
            where += f", in transaction {self._runs.open.gtids.gtid(0) or 'without GTID'}"
        return error.located(where)

    def _take(self, frames: Frames) -> Iterator[ChangeBatch]:
        """Decode events: runs of usual ones together, special ones one by one."""
        kinds = kinds_of(frames, self._maps.known)
        first = 0
        for place in np.flatnonzero(kinds == Kind.SPECIAL).tolist():
            yield from self._run(frames.part(first, place), kinds[first:place])
            yield from self._single(frames.part(place, place + 1))
            first = place + 1
        yield from self._run(frames.part(first, len(frames)), kinds[first:])

    def _run(self, frames: Frames, kinds: ByteArray) -> Iterator[ChangeBatch]:
        """Decode a run of usual events together."""
        if len(frames):
            yield from self._runs.follow(frames, kinds, self._ends(frames))

    def _ends(self, frames: Frames) -> IntArray:
        """Return the whole end offsets of events."""
        return self._place.ends(frames.log_pos)

    def _single(self, frames: Frames) -> Iterator[ChangeBatch]:
        """Decode one special event."""
        kind = int(frames.types[0])
        start = int(frames.starts[0])
        self._runs.byte += int(frames.stored_bytes[0])
        match kind:
            case EventType.TABLE_MAP:
                self._ends(frames)
                self._maps.add(frames.body(0))
            case EventType.QUERY:
                yield from self._statement(frames)
            case EventType.XA_PREPARE:
                yield from self._xa_prepare(frames)
            case EventType.ROTATE:
                self._rotate(rotate_target(frames.body(0)))
            case EventType.FORMAT_DESCRIPTION:
                self._maps.begin_file()
                artificial = frames.data.u8[start + 17] & ARTIFICIAL_FLAG
                if not artificial and frames.log_pos[0]:
                    self._assembly.move_to(self._assembly.at(int(self._ends(frames)[0])))
            case EventType.HEARTBEAT | EventType.HEARTBEAT_V2:
                self._heartbeat(kind, frames)
            case _:
                refused = refuse(kind, self._where(frames), frames.body(0))
                yield from self._not_understood(kind, refused, frames)

    def _where(self, frames: Frames) -> str:
        """Return an event's place in the log as text."""
        return f"event ending at {self._assembly.at(int(self._ends(frames)[0]))}"

    def _rotate(self, target: BinlogPosition) -> None:
        """Go on in the log file that a rotation names; inside a transaction this is an error."""
        if self._runs.open is not None:
            raise IntegrityError(
                "the log file ends inside a transaction",
                risk="the transaction's end is missing; the server may have crashed",
                remedy="start again from the last position; the server does not send such a tail",
            )
        self._maps.begin_file()
        self._place.begin_file(target.offset)
        self._assembly.begin_file(target)

    def _heartbeat(self, kind: int, frames: Frames) -> None:
        """Move the boundary to a heartbeat's offset, past events that the server left out."""
        file, offset = heartbeat_place(kind, frames.body(0), int(frames.log_pos[0]))
        current = self._assembly.at(offset)
        if self._runs.open is None and offset and file == current.file:
            self._assembly.move_to(current)

    def _statement(self, frames: Frames) -> Iterator[ChangeBatch]:
        """Take a logged statement: transaction control, DDL, or row changes as text."""
        self._assembly.note_others(self._runs.byte)
        end = int(self._ends(frames)[0])
        second = int(frames.data.little(frames.starts, 4)[0])
        readings = LoggedStatement.readings(frames.body(0))
        logged, meaning, refused = self._judged(readings, end)
        match meaning:
            case Meaning.BARRIER:
                facts = self._runs.facts.of_statement(frames, end, self._assembly.at(0).file)
                statement = Statement(
                    logged.database,
                    logged.shown,
                    self._runs.first_point(end, second),
                    logged.effect,
                    facts,
                )
                yield from self._barrier(statement, end, second)
            case Meaning.UNLOGGED if refused is not None:
                yield from self._refused(refused, f"{logged.verb} ...", end, second)
            case Meaning.BEGIN:
                self._begin(distributed=False)
            case Meaning.ROLLBACK:
                yield from self._roll_back(end, second)
            case Meaning.ROLLBACK_TO_SAVEPOINT:
                self._runs.roll_back_to(logged.sql)
            case Meaning.COMMIT:
                yield from self._runs.end(end, second)
            case Meaning.HARMLESS:
                if not self._is_begun:
                    yield from self._runs.end(end, second)
            case _:
                yield from self._xa(meaning, logged.sql, end, second)

    def _judged(
        self, readings: tuple[LoggedStatement, ...], end: int
    ) -> tuple[LoggedStatement, Meaning, Unlogged | None]:
        """Return a statement's reading and meaning, and the error if its rows are not logged."""
        self._reach.heed(readings[0])
        refused: Unlogged | None = None
        logged, meaning = judged(readings, self._captured, self._captures_in)
        if meaning is Meaning.UNLOGGED:
            if self._captures_any:
                refused = unlogged(readings, self._reach, self._captured, self._opened_at(end))
            meaning = Meaning.HARMLESS if refused is None else meaning
        if meaning is Meaning.HARMLESS:
            meaning = self._as_named(logged, meaning)
        return logged, meaning, refused

    def _as_named(self, logged: LoggedStatement, meaning: Meaning) -> Meaning:
        """Return BARRIER for a harmless statement that names a captured or a coming table."""
        is_coming = self._picks.include and _MAY_BRING_TABLES.search(logged.sql)
        if not (self._every_statement or is_coming):
            return meaning
        effect = logged.effect  # its text is read once more
        named = self._every_statement and any(map(self._captured, effect.tables))
        named = named or any(table in self._picks for table in effect.coming)
        return Meaning.BARRIER if named and not self._is_begun else meaning

    def _xa(self, meaning: Meaning, sql: str, end: int, second: int) -> Iterator[ChangeBatch]:
        """Follow an XA statement: begin, commit or roll back; rows come with the commit."""
        if meaning is Meaning.XA_START:
            self._begin(distributed=self._holds_back)
        elif meaning is Meaning.XA_COMMIT:
            parts = self._prepared.commit(xa_name_of(sql), self._opened_at(end))
            yield from self._commit(parts, end, second)
        elif meaning is Meaning.XA_ROLLBACK:
            self._prepared.roll_back(xa_name_of(sql))
            yield from self._runs.end(end, second)

    def _commit(self, parts: Iterator[RowsPart], end: int, second: int) -> Iterator[ChangeBatch]:
        """End the open transaction with rows read elsewhere, in several batches if many."""
        for part in parts:
            self._runs.put_rows(restamped(part.pieces, self._runs.next_number, self._runs.ordinal))
            self._runs.byte += part.bytes
            yield from self._runs.hand_on_part(end)
        is_in_parts = self._runs.open is not None and self._runs.open.in_parts
        yield from self._runs.end(end, second)
        # Reading them took a while: nobody should have to do it again if the log's end is lost.
        batch = self.flush() if is_in_parts else None
        if batch is not None:
            yield batch

    def _opened_at(self, end: int) -> BinlogPosition:
        """Return the position at which the open transaction begins."""
        opened = self._runs.open
        return self._assembly.at(end) if opened is None else opened.start

    @property
    def _is_begun(self) -> bool:
        """Tell whether the open transaction goes on after a statement."""
        opened = self._runs.open
        if opened is None:
            return False
        return opened.begun or opened.distributed

    def _begin(self, *, distributed: bool) -> None:
        """Mark the open transaction as begun."""
        if self._runs.open is not None:
            self._runs.open.begun = True
            self._runs.open.distributed = distributed

    def _barrier(self, statement: Statement, end: int, second: int) -> Iterator[ChangeBatch]:
        """End the batch with a DDL statement as its barrier.

        DDL inside a transaction (CREATE TABLE ... SELECT logs its rows behind it) ends a batch
        at the boundary before that transaction: what comes behind it is not applied yet.
        """
        if not self._is_begun:
            yield from self._runs.end(end, second)
        self._maps.forget_schemas()
        yield self._assembly.emit(statement)

    def _refused(
        self, refused: Unlogged, text: str, end: int, second: int
    ) -> Iterator[ChangeBatch]:
        """End the batch with a barrier before rows that may be lost: the sink decides.

        There is no such place inside a transaction whose rows are applied elsewhere, or are
        handed on in part.
        """
        opened = self._runs.open
        if opened is None or opened.distributed or opened.in_parts or not self._holds_back:
            raise refused.refusal
        point = self._runs.first_point(end, second)
        refusal = refused.refusal.located(point.where)
        statement = Statement("", text, point, refused.effect, refusal=refusal)
        yield from self._barrier(statement, end, second)

    def _not_understood(
        self, kind: int, refusal: CdcError, frames: Frames
    ) -> Iterator[ChangeBatch]:
        """End the batch with a barrier before an event that is not understood."""
        if kind == EventType.MARIADB_START_ENCRYPTION:
            raise refusal  # nothing behind it can be read
        end = int(self._ends(frames)[0])
        second = int(frames.data.little(frames.starts, 4)[0])
        if not self._captures_any and self._runs.open is not None:
            if not self._is_begun:
                yield from self._runs.end(end, second)
            return
        effect = StatementEffect(StatementKind.UNKNOWN, reaches_all=True)
        yield from self._refused(Unlogged(effect, refusal), type_name(kind), end, second)

    def _roll_back(self, end: int, second: int) -> Iterator[ChangeBatch]:
        """Drop the open transaction's rows and end it."""
        opened = self._runs.open
        if opened is not None and opened.in_parts:
            raise parts_were_handed_on()
        self._runs.take_rows()
        yield from self._runs.end(end, second, dropped=True)

    def _xa_prepare(self, frames: Frames) -> Iterator[ChangeBatch]:
        """Hold the rows of a prepared XA transaction back, or end it if it commits in one phase."""
        end = int(self._ends(frames)[0])
        second = int(frames.data.little(frames.starts, 4)[0])
        one_phase, name = read_xa_prepare(frames.body(0))
        opened = self._runs.open
        is_shed = opened is not None and opened.shed
        place = Prepared(self._opened_at(end), self._assembly.at(end), None)
        if one_phase and opened is not None and is_shed:
            opened.distributed = opened.shed = False
            yield from self._commit(self._prepared.again(place), end, second)
        elif one_phase or not self._holds_back:
            yield from self._runs.end(end, second)
        else:
            pieces = list(without_few(self._runs.take_rows()))
            self._prepared.hold(name, place if is_shed else replace(place, pieces=pieces))
            yield from self._runs.end(end, second, dropped=True)


def _captured_by(captured: Captured) -> tuple[Callable[[TableId], bool], Callable[[str], bool]]:
    """Return two tests: for captured tables, and for databases that may hold captured tables."""
    if callable(captured):
        return captured, lambda _database: True
    tables = frozenset(captured)
    databases = frozenset(table.database for table in tables)
    return tables.__contains__, databases.__contains__
