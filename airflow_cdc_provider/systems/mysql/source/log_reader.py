"""The log as batches of changes, read over one connection that stays open.

`read_to` may be called again and again with later places: a snapshot reader keeps one reader open
over all its splits, a stream keeps one over all its batches. With `until` it ends as soon as
everything up to there has been read, and waits for nothing more; the rest of what the socket
gave is kept for the next call. A batch then ends by its limits or after `batch_s` of reading, so
that a log that comes slowly, or holds little of the captured tables, still moves the position.
Without `until` it never ends and yields at least every `max_wait_s`, if need be an empty batch.

`follow` never ends either, and waits for nothing but the server: what has come is a batch as soon
as nothing more has come. Where more comes all the time, a batch takes as long to read as the one
before took to apply: so a sink that is quick gets small batches at once, and one that is slow gets
fewer and larger ones.

**How the end is known.** `until` is a boundary that the server told, but the event that ends there
may never come: it may have been filtered, or be no transaction at all (the header of a new file).
So places are counted on the headers of all events, heartbeats and rotations included, and not on
what the decoder made of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import whole_offsets
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.binlog.events.text_reach import (
    Reach,
    TextReach,
    UnknownReach,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import SchemaSource, no_schema
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.binlog.transactions.prepared import (
    Prepared,
    PreparedBefore,
    XaName,
)
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition, own
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.event_framing import rotation_target
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from airflow_cdc_provider.systems.mysql.source.log_fingerprint import RecognisedLog
from airflow_cdc_provider.systems.mysql.source.log_transport import LogTransport
from airflow_cdc_provider.systems.mysql.source.statement_reach import StatementReach
from airflow_cdc_provider.systems.mysql.source.xa_lookup import (
    NO_SERVER_ID,
    EarlierLog,
    WithoutRows,
    log_files,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint

Captured = Collection[TableId] | Callable[[TableId], bool]

_TYPE, _LOG_POS = 4, 13  # where an event's header holds them
_ROTATE = 4
_LONGEST_WAIT_S = 1.0
_LEAST_READ_S = 0.005
"""As long a batch may be read, however soon the one before was applied."""
_QUIET_S = 0.25
"""Log that holds nothing for the sink is handed out as seldom as this."""


class LogReader:
    """Reads a server's log as batches of changes, from a position on, over one open dump."""

    def __init__(  # noqa: PLR0913 - each option is one a caller chooses by name
        self,
        endpoint: Endpoint,
        *,
        server_id: int,
        start: MySqlPosition,
        captured: Captured,
        limits: BatchLimits | None = None,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        schemas: SchemaSource = no_schema,
        prepared_as_committed: bool = False,
        before: PreparedBefore | None = None,
        held: Sequence[AppliedThrough] = (),
        every_statement: bool = False,
        picks: TablePicks = NO_PICKS,
        facts: Collection[str] = (),
        reach: TextReach | None = None,
        origins: EdgeOrigins | None = None,
        opposite: str = "",
        heartbeat_s: float = 1.0,
        silence_s: float = 30.0,
    ) -> None:
        self._transport = LogTransport(
            endpoint,
            server_id=server_id,
            start=start,
            held=held,
            heartbeat_s=heartbeat_s,
            silence_s=silence_s,
            with_queries="query" in facts,
        )
        self._known = RecognisedLog(self._transport, held, str(endpoint))
        capabilities = self._transport.capabilities
        self._server_uuid = capabilities.server_uuid
        if origins is not None:
            origins = replace(origins, folds_case=capabilities.names_fold_case)
        self._decoder = ColumnDecoder(
            self._transport.start.position,
            server_uuid=capabilities.server_uuid,
            flavour=capabilities.flavour.value,
            captured=_folded(captured) if capabilities.names_fold_case else captured,
            limits=limits or BatchLimits(),
            zero_dates=zero_dates,
            schemas=schemas,
            before=before
            or self._earlier_log(endpoint, captured, limits, zero_dates, schemas, facts, origins),
            prepared_as_committed=prepared_as_committed,
            every_statement=every_statement,
            picks=picks,
            facts=facts,
            reach=reach or self._reach_by_catalogue(endpoint, captured),
            origins=origins,
            opposite=opposite,
        )
        self._first = self._passed = self._transport.start.position.binlog
        self._came_to = self._transport.start.position
        self._reached = self._passed  # the last `until` read up to
        self._held: EventChunk | None = None  # received, beyond the last `until`
        self._feeding: Iterator[ChangeBatch] = iter(())

    def _earlier_log(  # noqa: PLR0913 - what the reader itself was given
        self,
        endpoint: Endpoint,
        captured: Captured,
        limits: BatchLimits | None,
        zero_dates: ZeroDates,
        schemas: SchemaSource,
        facts: Collection[str],
        origins: EdgeOrigins | None,
    ) -> EarlierLog:
        """Return the search for rows of prepared XA transactions before the reader's start."""

        def open_reader(start: BinlogPosition, *, rows: bool) -> LogReader:
            return LogReader(
                endpoint,
                server_id=NO_SERVER_ID,
                start=MySqlPosition(self._server_uuid, start),
                captured=captured if rows else frozenset(),
                limits=limits,
                zero_dates=zero_dates,
                schemas=schemas,
                before=WithoutRows(),
                prepared_as_committed=rows,
                facts=facts,
                origins=origins,
            )

        return EarlierLog(partial(log_files, endpoint), open_reader)

    def _reach_by_catalogue(self, endpoint: Endpoint, captured: Captured) -> TextReach:
        """Return what asks the catalogue which tables a statement logged as text changes."""
        if callable(captured):
            return UnknownReach()
        since = partial(_statements_since, endpoint, self._server_uuid)
        return StatementReach(endpoint, captured, since)

    @property
    def position(self) -> MySqlPosition:
        """Return the last boundary that was read, with its GTIDs and its imprint."""
        position = self._decoder.position
        reached = self._reached
        if reached is None or (position.binlog is not None and position.binlog >= reached):
            return self._imprinted(position)
        return self._imprinted(MySqlPosition(self._server_uuid, reached, position.gtids))

    def read_up_to(self, end: LogPosition, *, batch_s: float) -> Iterator[ChangeBatch]:
        """Yield the changes up to `end`, a position in this server's log."""
        return self.read_to(own(end).binlog, batch_s=batch_s)

    def read_to(
        self,
        until: BinlogPosition | None,
        *,
        max_wait_s: float = 1.0,
        batch_s: float = math.inf,
    ) -> Iterator[ChangeBatch]:
        """Yield batches of changes up to `until`, a boundary in the log; for ever if None.

        The time that the caller spends on a batch does not count.
        """
        yield from self._feeding
        every_s = max_wait_s if until is None else batch_s
        deadline = time.monotonic() + every_s
        while not self._known.is_recognised or not self._is_at(until):
            wait_s = min(max(deadline - time.monotonic(), 0.0), _LONGEST_WAIT_S)
            chunk = self._next_chunk(until, wait_s)
            if chunk is not None:
                self._feeding = map(self._marked, self._decoder.feed(chunk))
                for batch in self._feeding:
                    yield batch
                    deadline = time.monotonic() + every_s
            if time.monotonic() >= deadline:
                yield from self._in_time(until)
                deadline = time.monotonic() + every_s
        if until is not None:
            yield from self._rest(until)

    def follow(self, *, batch_s: float, wait_s: float) -> Iterator[ChangeBatch | None]:
        """Yield batches of changes as the server sends them, for ever; None if idle for `wait_s`.

        Reading a batch takes `batch_s` at most where more comes all the time.
        """
        yield from self._feeding
        decoder, pace = self._decoder, _Pace(batch_s)
        while True:
            chunk = self._next_chunk(None, 0.0 if decoder.has_changes else wait_s)
            if chunk is not None:
                pace.began(has_changes=decoder.has_changes)
                self._feeding = map(self._marked, decoder.feed(chunk))
                for batch in self._feeding:
                    pace.handed_out()
                    yield batch
                    pace.applied()
                if not pace.is_time(has_changes=decoder.has_changes):
                    continue
            is_due = decoder.has_changes or pace.is_time(has_changes=False)
            found = decoder.flush() if is_due else None
            if found is not None:
                pace.handed_out()
                yield self._marked(found)
                pace.applied()
            elif chunk is None:
                yield None

    def prepared(self, name: XaName) -> Prepared | None:
        """Return an XA transaction that is prepared and not ended at the position read, or None."""
        return self._decoder.prepared(name)

    def close(self) -> None:
        """Close the dump."""
        self._transport.close()

    def _in_time(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]:
        """Yield the batch that is complete when time is up; without an end also an empty batch."""
        batch = self._decoder.flush()
        if batch is not None:
            yield self._marked(batch)
        elif until is None:
            yield self._empty()

    def _rest(self, until: BinlogPosition) -> Iterator[ChangeBatch]:
        """Yield the batch that is complete at `until`; none if the position did not move."""
        batch = self._decoder.flush()
        before = self.position
        self._reached = max(until, self._reached or until)
        end = self.position
        if batch is None:
            if end != before:
                yield replace(self._empty(), start=before)
        else:
            yield self._marked(batch if batch.end is None else replace(batch, end=end))

    def _marked(self, batch: ChangeBatch) -> ChangeBatch:
        """Return a batch with imprints of the log at its start and end."""
        start = self._came_to if self._came_to == batch.start else batch.start
        if batch.end is None:
            return replace(batch, start=start)
        self._came_to = self._imprinted(own(batch.end))
        return replace(batch, start=start, end=self._came_to)

    def _imprinted(self, position: MySqlPosition) -> MySqlPosition:
        """Return a position with the imprint (digest) of the log up to there."""
        return replace(position, imprint=self._known.imprint(position.binlog))

    def _empty(self) -> ChangeBatch:
        """Return a batch without changes at the reader's position."""
        return ChangeBatch(self.position, self.position, (), (), only_ledgers=True)

    def _next_chunk(self, until: BinlogPosition | None, wait_s: float) -> EventChunk | None:
        """Receive the next events up to `until`; later events are held for the next call."""
        chunk, self._held = self._held, None
        if chunk is None:
            chunk = self._known.receive(wait_s, self._decoder.position.binlog)
        if chunk is None:
            return None
        count = self._count_to(chunk, until)
        if count < len(chunk.starts):
            self._held = EventChunk(chunk.buffer, chunk.starts[count:], chunk.ends[count:])
        if count == 0:
            return None
        return EventChunk(chunk.buffer, chunk.starts[:count], chunk.ends[:count])

    def _count_to(self, chunk: EventChunk, until: BinlogPosition | None) -> int:
        """Return how many of a chunk's events are not beyond `until`, and move past them.

        Rotations part the chunk into runs of one file; within a run places only grow.
        """
        data = ByteViews(chunk.buffer)
        starts = chunk.starts
        rotations = np.flatnonzero(data.u8[starts + _TYPE] == _ROTATE)
        first = 0
        for stop in [*rotations.tolist(), len(starts)]:
            taken = self._pass_run(data, starts[first:stop], until)
            if taken < stop - first or self._is_at(until):
                return first + taken
            if stop < len(starts):
                self._pass_rotation(chunk, stop)
                if self._is_at(until):
                    return stop + 1
            first = stop + 1
        return len(starts)

    def _pass_decoded(self) -> None:
        """Move the passed position to the decoded one, for calls without an end."""
        decoded = self._decoder.position.binlog
        if decoded is not None:
            self._passed = decoded if self._passed is None else max(self._passed, decoded)

    def _is_at(self, until: BinlogPosition | None) -> bool:
        """Tell whether all events up to `until` were passed."""
        return until is not None and self._passed is not None and self._passed >= until

    def _pass_run(self, data: ByteViews, starts: IntArray, until: BinlogPosition | None) -> int:
        """Advance the position past events of one file.

        Return how many end at or before `until`.
        """
        if self._passed is None or not len(starts):
            return len(starts)
        place = data.little(starts + _LOG_POS, 4)
        taken = len(starts)
        if until is not None and until.file_number == self._passed.file_number:
            beyond = np.flatnonzero(whole_offsets(place, self._passed.offset) > until.offset)
            taken = int(beyond[0]) if len(beyond) else taken
        told = place[:taken][place[:taken] > 0]
        if len(told):
            offset = int(whole_offsets(told, self._passed.offset)[-1])
            self._passed = self._passed.at(max(offset, self._passed.offset))
        return taken

    def _pass_rotation(self, chunk: EventChunk, number: int) -> None:
        """Move to the log file that a rotation names, but not back before the reader's start."""
        target = rotation_target(bytes(chunk.buffer[chunk.starts[number] : chunk.ends[number]]))
        self._passed = target if self._first is None else max(target, self._first)


class _Statements:
    """A `TextReach` that only collects the log's statements."""

    def __init__(self) -> None:
        self.found: list[LoggedStatement] = []

    def of(self, statement: LoggedStatement, since: BinlogPosition) -> Reach:  # noqa: ARG002
        """Return no tables: the statement is only collected."""
        return Reach()

    def heed(self, statement: LoggedStatement) -> None:
        """Collect a statement of the log."""
        self.found.append(statement)


def _statements_since(
    endpoint: Endpoint, server_uuid: str, start: BinlogPosition
) -> Iterator[LoggedStatement]:
    """Yield all statements of the server's log from a position to its end."""
    with closing(connect(endpoint, purpose="end of the log")) as connection:
        end = log_end(connection, read_capabilities(connection))
    statements = _Statements()
    reader = LogReader(
        endpoint,
        server_id=NO_SERVER_ID,
        start=MySqlPosition(server_uuid, start),
        captured=frozenset(),
        before=WithoutRows(),
        reach=statements,
    )
    with closing(reader):
        for _ in reader.read_to(end, batch_s=_LONGEST_WAIT_S):
            yield from statements.found
            statements.found.clear()
    yield from statements.found


class _Pace:
    """Decides when a batch is handed out: about as long as the last one took to apply."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._read_s = _LEAST_READ_S
        self._began_at = self._handed_out_at = 0.0
        self._quiet_until = 0.0

    def began(self, *, has_changes: bool) -> None:
        """Note the time when a batch's first events came, unless changes wait already."""
        if not has_changes:
            self._began_at = time.monotonic()

    def handed_out(self) -> None:
        """Note the time when a batch is handed out to be applied."""
        self._handed_out_at = time.monotonic()

    def applied(self) -> None:
        """Note the time when the next batch is asked for: the last one has been applied."""
        self._began_at = now = time.monotonic()
        self._read_s = min(max(now - self._handed_out_at, _LEAST_READ_S), self._most_s)
        self._quiet_until = now + _QUIET_S

    def is_time(self, *, has_changes: bool) -> bool:
        """Tell whether the batch is to be handed out now."""
        until = self._began_at + self._read_s if has_changes else self._quiet_until
        return time.monotonic() >= until


def _folded(captured: Captured) -> Captured:
    """Return a test for captured tables that ignores case, in which statements may name them."""
    if callable(captured):
        return captured
    names = {str(table).casefold() for table in captured}
    return lambda table: str(table).casefold() in names
