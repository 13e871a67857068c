"""Follow transactions through a few events, one by one.

`transaction_runs` takes many events in vector steps, which cost half a millisecond however few they
are. A stream that keeps up gets one small transaction at a time, so that is most of what it does.
Here events are looked at one by one, with the same outcome; the two share all that goes on from one
chunk to the next: the open transaction, the table maps in force, the batch that is put together.

First everything is read and nothing is changed. Only the plainest log is read: transactions that
open with a name, begin, have rows by table maps already in force, and commit. Any other event, a
checksum that is wrong, or an order that no transaction has, and the whole chunk is left to the
vector steps, which know what to do or what is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.few_changes import FewChange
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    EventType,
)
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import (
    OpenedBy,
    few_gtids,
    joined,
    read_opening,
)
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import LogPlace
from airflow_cdc_provider.systems.mysql.binlog.rows.few_rows import OPS, NotFewError
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps
from airflow_cdc_provider.systems.mysql.binlog.transactions.assembly import BatchAssembly, Commits
from airflow_cdc_provider.systems.mysql.binlog.transactions.known_positions import KnownText
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import FewPiece
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_points import (
    TransactionPoints,
)
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_runs import (
    OpenTransaction,
    TransactionRuns,
)

MOST_EVENTS, MOST_BYTES = 64, 1 << 15
"""Of a chunk: more are quicker in vector steps."""

_SECOND = 1_000_000
_TYPE_AT, _SIZE_AT, _LOG_POS_AT = 4, 9, 13
_NEAR = 1 << 31
"""Offsets below it are whole in an event's header: its 32 bits have not turned over."""
_XID, _QUERY, _TABLE_MAP = int(EventType.XID), int(EventType.QUERY), int(EventType.TABLE_MAP)
_OPENS = frozenset(
    {int(EventType.GTID), int(EventType.ANONYMOUS_GTID), int(EventType.MARIADB_GTID)}
)
_PASSED = frozenset({int(EventType.ROWS_QUERY), int(EventType.MARIADB_ANNOTATE_ROWS)})
_QUERY_HEAD = 13


@dataclass(slots=True)
class _Rows:
    """The changes of one row event, and the transaction it belongs to."""

    decoder: TableDecoder
    transaction: int
    """Which of the chunk's transactions it belongs to, counted from 0."""
    changes: list[FewChange]


@dataclass(slots=True)
class _Transaction:
    """A transaction in a chunk of few events."""

    opened: OpenedBy | None
    """None if it was open before."""
    start: int = 0
    """Where its first event begins in the file."""
    second: int = 0
    begun: bool = False
    end: int = 0
    """Where it ends in the file, 0 while it goes on."""
    end_second: int = 0
    byte: int = 0
    """Bytes of the chunk up to its end; up to its beginning while it goes on."""
    changes: int = 0
    has_rows: bool = False
    """Row events came, of whatever table, the first of which is no marker."""
    is_left_out: bool = False
    """The markers that it begins with say so."""
    is_leading: bool = True
    """All row events so far are its markers."""


class _Reading:
    """Reads a chunk of few events without changing the decoder's state."""

    def __init__(self, runs: TransactionRuns, maps: TableMaps, log_end: int) -> None:
        opened = runs.open
        self._origins, self._known = runs.origins, runs.known
        self._maps = maps
        self._current: _Transaction | None = None
        self.transactions: list[_Transaction] = []
        self.rows: list[_Rows] = []
        self.moves: list[tuple[int, KnownText]] = []
        """What was known from a transaction on, which is counted from 0."""
        self.log_end = log_end
        """Where the last event ends in its file."""
        self.bytes = 0
        self.others_at = 0
        """Up to which of the chunk's bytes there are rows of other tables than ledgers."""
        if opened is not None:
            self._current = _Transaction(None, begun=opened.begun)
            self.transactions.append(self._current)

    def take(self, data: bytes, start: int, stop: int, checksum: int) -> None:
        """Read one event; `NotFewError` if it is not plain."""
        end = stop - checksum
        if end - start < HEADER_BYTES:
            raise NotFewError
        if checksum and zlib.crc32(data[start:end]) != int.from_bytes(data[end:stop], "little"):
            raise NotFewError
        log_end = int.from_bytes(data[start + _LOG_POS_AT : start + _LOG_POS_AT + 4], "little")
        if not self.log_end < log_end < _NEAR:
            raise NotFewError
        self.log_end = log_end
        self.bytes += stop - start
        kind = data[start + _TYPE_AT]
        if kind in OPS:
            self._take_rows(data, start, end)
        elif kind == _TABLE_MAP:
            self._require_known(data[start + HEADER_BYTES : end])
        elif kind in _OPENS:
            self._begin(_opened(data, start, end, log_end, self.bytes))
        elif kind == _XID:
            self._commit(data, start)
        elif kind == _QUERY:
            self._take_statement(data, start, end)
        elif kind not in _PASSED:
            raise NotFewError

    def _take_rows(self, data: bytes, start: int, end: int) -> None:
        """Read a row event's changes."""
        at = start + HEADER_BYTES
        table_id = int.from_bytes(data[at : at + 6], "little")
        decoder = self._maps.decoder(table_id)
        if self._current is None:
            raise NotFewError
        if table_id not in self._maps.ledgers:
            self.others_at = self.bytes
        if table_id in self._maps.progress and decoder is not None:
            known = self._known.few(decoder, decoder.few.read(data, start, end))
            if known is not None:
                self.moves.append((len(self.transactions) - 1, known))
            return
        if table_id in self._maps.markers and decoder is not None:
            self._take_marker(self._current, decoder, decoder.few.read(data, start, end))
            return
        self._current.is_leading = False
        if self._current.is_left_out:
            return
        self._current.has_rows = True
        if decoder is None:
            return
        changes = decoder.few.read(data, start, end)
        self._current.changes += len(changes)
        self.rows.append(_Rows(decoder, len(self.transactions) - 1, changes))

    def _take_marker(
        self, current: _Transaction, decoder: TableDecoder, changes: Sequence[FewChange]
    ) -> None:
        """Read a marker that a transaction begins with, and by which it is left out."""
        is_first = current.opened is not None and current.is_leading
        if not is_first or not self._origins.leave_out_few(decoder, changes):
            raise NotFewError
        current.is_left_out = True

    def _require_known(self, body: bytes) -> None:
        """Refuse a table map that is not in force already."""
        if self._maps.known.get(int.from_bytes(body[:6], "little")) != body:
            raise NotFewError

    def _begin(self, transaction: _Transaction) -> None:
        """Begin a transaction; inside another one it is refused."""
        if self._current is not None:
            raise NotFewError
        self._current = transaction
        self.transactions.append(transaction)

    def _take_statement(self, data: bytes, start: int, end: int) -> None:
        """Read a BEGIN or COMMIT; any other statement is refused as not plain."""
        body = start + HEADER_BYTES
        variables = int.from_bytes(data[body + 11 : body + 13], "little")
        text = data[body + _QUERY_HEAD + variables + data[body + 8] + 1 : end]
        if text == b"COMMIT":
            self._commit(data, start)
        elif text == b"BEGIN" and self._current is not None and not self._current.begun:
            self._current.begun = True
        else:
            raise NotFewError

    def _commit(self, data: bytes, start: int) -> None:
        """End the current transaction."""
        current, self._current = self._current, None
        if current is None:
            raise NotFewError
        current.end, current.byte = self.log_end, self.bytes
        current.end_second = int.from_bytes(data[start : start + 4], "little")


class SmallChunks:
    """Decodes small chunks of plain events one by one, for the column decoder."""

    def __init__(
        self, maps: TableMaps, assembly: BatchAssembly, runs: TransactionRuns, place: LogPlace
    ) -> None:
        self._maps = maps
        self._assembly = assembly
        self._runs = runs
        self._place = place

    def take(self, chunk: EventChunk, *, checksums: bool | None) -> Iterator[ChangeBatch] | None:
        """Return the batches that a chunk of few plain events ends.

        None if it is not such a chunk.
        """
        if checksums is None or self._runs.facts or not 0 < len(chunk.starts) <= MOST_EVENTS:
            return None
        opened = self._runs.open
        if opened is not None and (opened.distributed or opened.shed):
            return None
        if self._runs.origins.needs_columns(self._runs.next_number):
            return None
        if chunk.ends[-1] - chunk.starts[0] > MOST_BYTES or self._place.last >= _NEAR:
            return None
        try:
            reading = self._read(chunk, CHECKSUM_BYTES if checksums else 0)
        except (NotFewError, CdcError):
            return None
        return self._follow(reading)

    def _read(self, chunk: EventChunk, checksum: int) -> _Reading:
        """Read a chunk's events one by one; `NotFewError` if one needs the column decoder."""
        first = int(chunk.starts[0])
        data = bytes(memoryview(chunk.buffer)[first : int(chunk.ends[-1])])
        reading = _Reading(self._runs, self._maps, self._place.last)
        starts, ends = (chunk.starts - first).tolist(), (chunk.ends - first).tolist()
        for start, stop in zip(starts, ends, strict=True):
            reading.take(data, start, stop, checksum)
        return reading

    # --- following ----------------------------------------------------------------------------

    def _follow(self, reading: _Reading) -> Iterator[ChangeBatch]:
        """Take over what was read of a chunk, and yield the batches that end."""
        runs, assembly = self._runs, self._assembly
        first_byte, first_ordinal = runs.byte, runs.ordinal
        self._place.ends_at(reading.log_end)
        if reading.others_at:
            assembly.note_others(first_byte + reading.others_at)
        self._keep_rows(reading, first_ordinal)
        for number, known in reading.moves:
            runs.known.add(runs.next_number + number, known)
        ended = [each for each in reading.transactions if each.end]
        if ended:
            commits = self._commits(ended, first_byte, first_ordinal)
            runs.next_number += len(ended)
            yield from assembly.add_commits(commits)
            runs.open = None
        runs.ordinal = first_ordinal + sum(each.changes for each in reading.transactions)
        runs.byte = first_byte + reading.bytes
        last = reading.transactions[-1] if reading.transactions else None
        if last is None or last.end:
            assembly.move_to(assembly.at(reading.log_end))
            return
        if last.opened is not None:
            ordinal = runs.ordinal - last.changes
            runs.open = self._open(last, last.opened, ordinal, first_byte + last.byte)
        if runs.open is not None:
            runs.open.begun = last.begun
            if last.has_rows:
                runs.origins.note_unmarked(runs.next_number)
            if last.is_left_out:
                runs.origins.note_left_out(runs.next_number, leading=last.is_leading)
            runs.open.captured |= runs.ordinal > runs.open.first_ordinal
        yield from runs.hand_on_part(reading.log_end)

    def _keep_rows(self, reading: _Reading, ordinal: int) -> None:
        """Add the chunk's row changes to the pending ones."""
        for rows in reading.rows:
            number = self._runs.next_number + rows.transaction
            piece = FewPiece(rows.decoder, number, ordinal, rows.changes)
            self._assembly.pending.add(piece)
            ordinal += len(rows.changes)

    def _commits(self, ended: list[_Transaction], byte: int, ordinal: int) -> Commits:
        """Return the chunk's ended transactions as columns."""
        runs = self._runs
        carried = runs.open if ended[0].opened is None else None
        captured = [each.changes > 0 for each in ended]
        if carried is not None:
            captured[0] |= carried.captured or carried.in_parts
        ordinals = np.cumsum([each.changes for each in ended]) + ordinal
        numbers = runs.next_number + np.arange(len(ended))
        return Commits(
            numbers,
            ordinals,
            np.array([byte + each.byte for each in ended], np.int64),
            np.array(captured, np.bool_),
            self._points(ended, carried),
        )

    def _points(
        self, ended: list[_Transaction], carried: OpenTransaction | None
    ) -> TransactionPoints:
        """Return the positions and GTIDs of the chunk's ended transactions."""
        gtids = few_gtids([each.opened for each in ended if each.opened is not None])
        starts: list[int] = [each.start for each in ended]
        if carried is not None:
            gtids = joined([carried.gtids, gtids])
            starts[0] = carried.start.offset
        file = self._assembly.at(0)
        files = np.full(len(ended), file.file_number, np.int64)
        second = np.array([each.end_second * _SECOND for each in ended], np.int64)
        return TransactionPoints(
            self._assembly.server_uuid,
            file.base,
            files,
            np.array(starts, np.int64),
            files,
            np.array([each.end for each in ended], np.int64),
            gtids,
            np.where(gtids.committed_us > 0, gtids.committed_us, second),
        )

    def _open(
        self, last: _Transaction, opened: OpenedBy, ordinal: int, byte: int
    ) -> OpenTransaction:
        """Return the transaction that stays open after the chunk."""
        return OpenTransaction(
            gtids=few_gtids([opened]),
            start=self._assembly.at(last.start),
            first_ordinal=ordinal,
            second=last.second,
            begun=last.begun,
            weighed_byte=byte,
        )


def _opened(data: bytes, start: int, end: int, log_end: int, byte: int) -> _Transaction:
    """Return the transaction that a GTID event opens; `NotFewError` if it is not plain."""
    opened = read_opening(data, start, end)
    if opened is None:
        raise NotFewError
    size = int.from_bytes(data[start + _SIZE_AT : start + _SIZE_AT + 4], "little")
    second = int.from_bytes(data[start : start + 4], "little")
    return _Transaction(opened, log_end - size, second, opened.begun, byte=byte)
