"""Follow transactions through runs of ordinary events, without looking at them one by one.

In a run, the events that open, begin and commit alternate; that is checked in one vector step.
Then the transaction of any event is a running count of the events that open one, and what is
known of the transactions (name, place, time, number of changes) stays in columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import RESET, CorruptLogError, IntegrityError, only_of
from airflow_cdc_provider.systems.mysql.binlog.events.event_kinds import Kind
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import (
    GtidColumns,
    is_prepared_xa,
    is_standalone,
    joined,
    read_gtids,
)
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps
from airflow_cdc_provider.systems.mysql.binlog.transactions.assembly import BatchAssembly, Commits
from airflow_cdc_provider.systems.mysql.binlog.transactions.known_positions import KnownPositions
from airflow_cdc_provider.systems.mysql.binlog.transactions.origins import TransactionOrigins
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import AnyPiece, Piece
from airflow_cdc_provider.systems.mysql.binlog.transactions.row_facts import RowFacts
from airflow_cdc_provider.systems.mysql.binlog.transactions.savepoints import Savepoints
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_points import (
    TransactionPoints,
)
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPoint

_SECOND = 1_000_000
_WEIGHINGS = 64
"""How often the memory of an XA transaction's rows is looked at until it is full, by the log."""
_MAY_FOLLOW = np.zeros((4, 4), np.bool_)
"""By what came before (COMMIT stands for no transaction) and what comes."""
_MAY_FOLLOW[Kind.COMMIT, Kind.OPEN] = True
_MAY_FOLLOW[Kind.OPEN, [Kind.BEGIN, Kind.COMMIT]] = True
_MAY_FOLLOW[Kind.BEGIN, Kind.COMMIT] = True
_COMMIT, _OPEN = int(Kind.COMMIT), int(Kind.OPEN)
_BEGIN, _ROWS = int(Kind.BEGIN), int(Kind.ROWS)
_SKIP, _QUERY = int(Kind.SKIP), int(EventType.QUERY)
"""Plain numbers: reading an enumeration's member costs more than comparing with it."""


@dataclass(slots=True)
class OpenTransaction:
    """The transaction that is open where decoding has stopped."""

    gtids: GtidColumns
    """One name."""
    start: BinlogPosition
    first_ordinal: int
    second: int
    """When its first event was logged: MariaDB does not say when it was committed."""
    begun: bool = False
    """Statements belong to it until something commits; else the first ends it."""
    distributed: bool = False
    """XA: its rows wait for XA COMMIT."""
    captured: bool = False
    """Some of its rows are of captured tables."""
    in_parts: bool = False
    """Some of its rows have been handed on."""
    shed: bool = False
    """XA: its rows are too many to be kept; they are read again at the commit."""
    weighed_byte: int = 0
    """Up to which byte of the log the memory its rows take was looked at."""
    savepoints: Savepoints = field(default_factory=Savepoints)


class TransactionRuns:
    """Follows transactions through runs of usual events, and decodes their rows."""

    def __init__(
        self,
        assembly: BatchAssembly,
        maps: TableMaps,
        *,
        kept_bytes: int | None,
        facts: RowFacts,
        origins: TransactionOrigins,
        known: KnownPositions,
    ) -> None:
        self.open: OpenTransaction | None = None
        self.ordinal = 0
        self.byte = 0
        self._assembly = assembly
        self._maps = maps
        self._kept_bytes = kept_bytes
        """What the rows of one XA transaction may take; None if they do not wait at all."""
        self.facts = facts
        self.origins = origins
        self.known = known
        self.next_number = 0
        """The open transaction's number, or the next one's."""

    def follow(self, frames: Frames, kinds: ByteArray, log_ends: IntArray) -> Iterator[ChangeBatch]:
        """Decode a run of usual events; yield the batches that end."""
        self._check_order(kinds, log_ends)
        opens = np.flatnonzero(kinds == _OPEN)
        commits = np.flatnonzero(kinds == _COMMIT)
        bytes_after = self.byte + np.cumsum(frames.stored_bytes)
        self._note_others(frames, kinds, bytes_after)
        counts, ordinals = self._rows(frames, kinds, opens, log_ends)
        if len(commits):
            self._check_complete()
            ended = self._ended(frames, opens, commits, log_ends)
            captured = self._captured(kinds, counts, opens, len(commits))
            finished = Commits(
                self.next_number + np.arange(len(commits)),
                ordinals[commits],
                bytes_after[commits],
                captured,
                ended,
            )
            self.next_number += len(commits)
            yield from self._assembly.add_commits(finished)
            self.open = None
        self.ordinal = int(ordinals[-1])
        self.byte = int(bytes_after[-1])
        if len(opens) and (not len(commits) or opens[-1] > commits[-1]):
            last = int(opens[-1])
            self.open = self._opened(frames, last, int(log_ends[last]), int(ordinals[last]))
            self.open.weighed_byte = int(bytes_after[last])
        begins = np.flatnonzero(kinds == _BEGIN)
        if self.open is not None and len(begins) and (not len(opens) or begins[-1] > opens[-1]):
            self.open.begun = True
        if self.open is not None:
            self.open.captured |= self.ordinal > self.open.first_ordinal
            since = int(opens[-1]) if len(opens) else 0
            self._note_savepoints(self.open, frames, kinds, ordinals, since)
            self._shed(self.open)
            yield from self.hand_on_part(int(log_ends.max()))
        elif log_ends.any():
            self._assembly.move_to(self._assembly.at(int(log_ends.max())))

    def _note_savepoints(
        self,
        opened: OpenTransaction,
        frames: Frames,
        kinds: ByteArray,
        ordinals: IntArray,
        since: int,
    ) -> None:
        """Remember the savepoints of the transaction that stays open."""
        found = (frames.types[since:] == _QUERY) & (kinds[since:] == _SKIP)
        for place in (np.flatnonzero(found) + since).tolist():
            sql = LoggedStatement.read(frames.body(place)).sql
            opened.savepoints.set(sql, int(ordinals[place]))

    def roll_back_to(self, sql: str) -> None:
        """Drop the open transaction's changes after a savepoint."""
        self.origins.require_no_marker(self.next_number)
        opened = self.open
        if opened is None or not opened.captured:
            return
        place = opened.savepoints.roll_back(sql)
        if place < self._assembly.committed_ordinal:
            raise parts_were_handed_on()
        self._assembly.pending.since(place)
        self.ordinal = place
        opened.captured = place > opened.first_ordinal

    def _check_order(self, kinds: ByteArray, log_ends: IntArray) -> None:
        """Refuse events that are not in the order of a transaction."""
        structure = (kinds >= _COMMIT) & (kinds <= _BEGIN)
        places = np.flatnonzero(structure)
        before = np.empty(len(places), np.int64)
        steps = kinds[places].astype(np.int64)
        state = _COMMIT
        if self.open is not None:
            state = _BEGIN if self.open.begun else _OPEN
        if len(places):
            before[0], before[1:] = state, steps[:-1]
            wrong = np.flatnonzero(~_MAY_FOLLOW[before, steps])
            if len(wrong):
                raise self._out_of_order(int(log_ends[places[wrong[0]]]))
        rows = np.flatnonzero(kinds == _ROWS)
        if len(rows):
            last = np.searchsorted(places, rows) - 1
            inside = np.where(last >= 0, steps[np.maximum(last, 0)] if len(steps) else state, state)
            if (inside == _COMMIT).any():
                outside = rows[np.flatnonzero(inside == _COMMIT)[0]]
                raise self._out_of_order(int(log_ends[outside]))

    def _out_of_order(self, log_end: int) -> CorruptLogError:
        """Return the error for events that are not in the order of a transaction."""
        return CorruptLogError(
            "events do not follow each other as in a transaction",
            where=str(self._assembly.at(log_end)),
            risk="changes could be taken for another transaction's",
            remedy=f"{CHECK_LOG}; a log without GTID events (MySQL before 5.7) is not supported",
        )

    def _note_others(self, frames: Frames, kinds: ByteArray, bytes_after: IntArray) -> None:
        """Note up to which byte there are rows of other tables than pipelines' ledgers."""
        rows = np.flatnonzero(kinds == _ROWS)
        if not len(rows):
            return
        ids = frames.data.little(frames.starts[rows] + 19, 6)
        others = rows[~np.isin(ids, list(self._maps.ledgers))]
        if len(others):
            self._assembly.note_others(int(bytes_after[others[-1]]))

    def _rows(
        self, frames: Frames, kinds: ByteArray, opens: IntArray, log_ends: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Decode all row events.

        Return each event's number of changes and the ordinal behind them.
        """
        facts = self.facts.note(frames, kinds, log_ends) if self.facts else None
        counts = np.zeros(len(frames), np.int64)
        rows = np.flatnonzero(kinds == _ROWS)
        if not len(rows):
            return counts, np.full(len(frames), self.ordinal, np.int64)
        carried = 0 if self.open is None else 1
        numbers = self.next_number + np.searchsorted(opens, rows, side="right") - 1 + carried
        if self._maps.progress:
            others = self.known.note(frames, rows, numbers)
            rows, numbers = rows[others], numbers[others]
        if self.origins.is_judging:
            kept = self.origins.kept(frames, rows, numbers)
            rows, numbers = rows[kept], numbers[kept]
        ids = frames.data.little(frames.starts[rows] + 19, 6)
        decoded = []
        for table_id in distinct(ids):
            decoder = self._maps.decoder(table_id)
            if decoder is None:
                continue
            places = rows[ids == table_id]
            with only_of(decoder.map.table):
                changes = decoder.decode(frames, places)
            counts[places] = changes.counts
            decoded.append((decoder.map.table, places, changes))
        after = self.ordinal + np.cumsum(counts)
        first = after - counts
        number_of = np.zeros(len(frames), np.int64)
        number_of[rows] = numbers
        for table, places, changes in decoded:
            total = int(changes.counts.sum())
            within = np.arange(total) - np.repeat(
                np.cumsum(changes.counts) - changes.counts, changes.counts
            )
            self._assembly.pending.add(
                Piece(
                    table,
                    np.repeat(number_of[places], changes.counts),
                    np.repeat(first[places], changes.counts) + within,
                    changes.op,
                    changes.before,
                    changes.after,
                    None
                    if facts is None
                    else facts.of(
                        places,
                        changes.counts,
                        within if changes.row is None else changes.row,
                        self._assembly.at(0).file,
                    ),
                )
            )
        return counts, after

    def _captured(
        self, kinds: ByteArray, counts: IntArray, opens: IntArray, ended: int
    ) -> BoolArray:
        """Tell which of the ended transactions have changes of captured tables."""
        carried = 0 if self.open is None else 1
        with_rows = np.flatnonzero((kinds == _ROWS) & (counts > 0))
        number = np.searchsorted(opens, with_rows, side="right") - 1 + carried
        captured = np.zeros(ended + 1, np.bool_)
        captured[number] = True
        if self.open is not None and (self.open.captured or self.open.in_parts):
            captured[0] = True
        return captured[:ended]

    def _ended(
        self, frames: Frames, opens: IntArray, commits: IntArray, log_ends: IntArray
    ) -> TransactionPoints:
        """Return the positions and GTIDs of the transactions that end in this run."""
        inner = opens[: len(commits) - (self.open is not None)]
        parts = [] if self.open is None else [self.open.gtids]
        if len(inner):
            parts.append(read_gtids(frames, inner))
        gtids = joined(parts)
        sizes = frames.data.little(frames.starts[inner] + 9, 4)
        starts = log_ends[inner] - sizes
        if self.open is not None:
            starts = np.concatenate([[self.open.start.offset], starts])
        ends = log_ends[commits]
        seconds = frames.data.little(frames.starts[commits], 4)
        return self._points(gtids, starts, ends, seconds)

    def _points(
        self, gtids: GtidColumns, starts: IntArray, ends: IntArray, seconds: IntArray
    ) -> TransactionPoints:
        """Return points in the current log file from columns."""
        file = self._assembly.at(0)
        files = np.full(len(ends), file.file_number, np.int64)
        committed = np.where(gtids.committed_us > 0, gtids.committed_us, seconds * _SECOND)
        return TransactionPoints(
            self._assembly.server_uuid, file.base, files, starts, files, ends, gtids, committed
        )

    def _opened(self, frames: Frames, place: int, log_end: int, ordinal: int) -> OpenTransaction:
        """Return a new open transaction, which begins with a GTID event."""
        start = frames.starts[place : place + 1]
        size = int(frames.data.little(start + 9, 4)[0])
        grouped = frames.types[place] == EventType.MARIADB_GTID and not is_standalone(frames, place)
        return OpenTransaction(
            gtids=read_gtids(frames, np.array([place])),
            start=self._assembly.at(log_end - size),
            first_ordinal=ordinal,
            second=int(frames.data.little(start, 4)[0]),
            begun=bool(grouped),
            distributed=grouped and self._kept_bytes is not None and is_prepared_xa(frames, place),
        )

    def _shed(self, opened: OpenTransaction) -> None:
        """Drop an XA transaction's rows if they take too much memory; they are read again later."""
        if self._kept_bytes is None or not opened.distributed:
            return
        if not opened.shed:
            if self.byte - opened.weighed_byte < self._kept_bytes // _WEIGHINGS:
                return
            opened.weighed_byte = self.byte
            held = self._assembly.pending.nbytes_since(opened.first_ordinal)
            opened.shed = held > self._kept_bytes
        if opened.shed:
            self.take_rows()
            opened.captured = False

    def _check_complete(self) -> None:
        """Refuse the end of a transaction whose dropped rows would be lost."""
        if self.open is not None and self.open.shed:
            raise IntegrityError(
                "a large XA transaction ended in a way that is not known",
                risk="its rows would be lost",
                remedy="report it with the server's version",
            )

    def point(self, log_end: int, second: int) -> TransactionPoints:
        """Return the open transaction's position and GTID, as if it ended here, as columns."""
        if self.open is None:
            raise self._out_of_order(log_end)
        return self._points(
            self.open.gtids,
            np.array([self.open.start.offset]),
            np.array([log_end]),
            np.array([second]),
        )

    def hand_on_part(self, log_end: int) -> Iterator[ChangeBatch]:
        """Yield the open transaction's changes so far if they alone exceed the batch limits."""
        if self.open is None or self.open.distributed or not self.open.captured:
            return
        for batch in self._assembly.overflow(
            self.next_number, self.point(log_end, self.open.second), self.ordinal, self.byte
        ):
            self.open.in_parts |= batch.end is None
            yield batch

    def end(self, log_end: int, second: int, *, dropped: bool = False) -> Iterator[ChangeBatch]:
        """End the open transaction at an event that was decoded alone.

        Yield the batches that end.
        """
        if not dropped:
            self._check_complete()
        point = self.point(log_end, second)
        opened = self.open
        captured = opened is not None and not dropped and (opened.captured or opened.in_parts)
        self.open = None
        finished = Commits(
            np.array([self.next_number]),
            np.array([self.ordinal]),
            np.array([self.byte]),
            np.array([captured]),
            point,
        )
        self.next_number += 1
        yield from self._assembly.add_commits(finished)

    def first_point(self, log_end: int, second: int) -> MySqlPoint:
        """Return the open transaction's position and GTID, as if it ended here."""
        return self.point(log_end, second)[0]

    def take_rows(self) -> list[AnyPiece]:
        """Remove and return the open transaction's changes."""
        if self.open is None:
            return []
        self.ordinal = self.open.first_ordinal
        return self._assembly.pending.since(self.open.first_ordinal)

    def put_rows(self, pieces: list[Piece]) -> None:
        """Add changes read elsewhere to the open transaction."""
        if self.open is None:
            return
        for piece in pieces:
            self._assembly.pending.add(piece)
            self.ordinal = max(self.ordinal, int(piece.ordinal[-1]) + 1)
            self.open.captured = True


def parts_were_handed_on() -> IntegrityError:
    """Return the error for a rollback of changes that were handed out already."""
    return IntegrityError(
        "a transaction was rolled back of which parts were handed on already",
        risk="none yet: the sink has not committed them",
        remedy=RESET,
    )
