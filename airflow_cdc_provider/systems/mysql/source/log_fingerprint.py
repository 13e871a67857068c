"""Whether the log is the one that was read: what stood before a position is read once more.

A log that was reset begins anew under the same file names, offsets and transaction numbers. A
server restored from a copy goes on from there with other changes, under its own uuid. Neither
shows in any number the server tells. So a position carries an `Imprint` of the log before it:

- when its file was begun, which the server sends at the start of every dump of the file, wherever
  the dump begins;
- a digest of the last transaction, or of its last event alone where it is large or came in pieces.

A dump that starts at a position starts at its imprint instead. What the server sends is compared
up to there and dropped; the reader gets what lies behind. No further connection is needed, and
nothing of another log is handed out before the comparison is done. Splits' watermarks that are
still to pass are compared when the dump passes them.

What is not in a digest: checksums, because the server adds or leaves them out as it is set;
rotations, format descriptions and heartbeats, because the server makes them up for a dump or
changes them when it closes a file; MariaDB's statements beside rows, because it sends them only to
who asks. Events are digested as they are sent: decrypted, and compressed as they were logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import ByteArray
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    LogPurgedError,
    SourceIdentityError,
)
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.log_place import whole_offsets
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    Imprint,
    MySqlPosition,
    own,
)
from airflow_cdc_provider.systems.mysql.source.event_framing import rotation_target
from airflow_cdc_provider.systems.mysql.source.log_stretch import (
    ARTIFICIAL_FLAG,
    DIGEST_BYTES,
    FLAGS_AT,
    FORMAT_DESCRIPTION,
    LOG_POS_AT,
    MADE_UP,
    ROTATE,
    TYPE_AT,
    FewStretch,
    LogStretch,
    Stretch,
)
from airflow_cdc_provider.systems.mysql.source.log_transport import NO_SERVER_ID, LogTransport

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.source.log_start import LogStart

_CRC = 4
_PARTS = np.isin(np.arange(256), (ROTATE, FORMAT_DESCRIPTION))
_MADE_UP = np.isin(np.arange(256), list(MADE_UP))
_WAIT_S = 1.0


class Transport(Protocol):
    """The open binlog dump that sends a server's events."""

    start: LogStart

    def receive(self, wait_s: float) -> EventChunk | None: ...


class RecognisedLog:
    """The events of a dump, handed out only after the log was recognised as the one read before."""

    def __init__(self, transport: Transport, held: Sequence[AppliedThrough], where: str) -> None:
        start = transport.start
        self._transport = transport
        self._where = where
        self._start = start
        self._expected = start.expected
        self._sought = blake2b(digest_size=DIGEST_BYTES)
        self._read_to = start.position.binlog if start.by_file else None
        self._file = start.dump_from
        self._created: int | None = None
        self._has_checksums = True
        self._stretches: list[LogStretch] = []
        self._last: Imprint | None = start.position.imprint if start.by_file else None
        self._found: tuple[BinlogPosition, Imprint] | None = None
        """The imprint that was asked for last."""
        self._ready: deque[EventChunk] = deque()
        self._still_to_pass = _by_file(held, start.position.server_uuid)

    @property
    def is_recognised(self) -> bool:
        """Tell whether the log was recognised as the one that was read, or need not be."""
        return self._expected is None

    def receive(self, wait_s: float, boundary: BinlogPosition | None) -> EventChunk | None:
        """Return the next events, None for none.

        `boundary` is the position decoded up to before.
        """
        if self._ready:
            return self._ready.popleft()
        chunk = self._received(wait_s)
        if chunk is None:
            return None
        self._last = self.imprint(boundary)
        few = self._few(chunk)
        if few is not None:
            self._stretches = [few]
            return chunk
        stretches = list(self._parted(chunk))
        self._stretches = [*stretches]
        for stretch in stretches:
            self._compare_passed(stretch)
        kept = self._without_known(chunk, stretches)
        if len(kept.starts):
            self._ready.append(kept)
        return self._ready.popleft() if self._ready and self.is_recognised else None

    def _few(self, chunk: EventChunk) -> FewStretch | None:
        """Return a chunk's few plain events; None if many, not plain, or to be compared."""
        file, created = self._file, self._created
        if self._expected is not None or self._read_to is not None or self._still_to_pass:
            return None
        if file is None or created is None:
            return None
        few = FewStretch.of(chunk, file, created, has_checksums=self._has_checksums)
        self._file = file if few is None else file.at(few.end)
        return few

    def imprint(self, place: BinlogPosition | None) -> Imprint | None:
        """Return a digest of the last transaction up to a position, which identifies the log.

        None if not known, empty if only the file's creation time is.
        """
        if place is None:
            return None
        if self._found is not None and self._found[0] == place:  # each place is asked for twice
            return self._found[1]
        for stretch in reversed(self._stretches):
            found = stretch.imprint(place)
            if found is not None:
                self._found = place, found
                return found
        if self._last is not None and self._last.end <= place:
            return self._last
        if self._created is None or self._file is None:
            return None
        if self._file.file_number != place.file_number:
            return None
        return Imprint(place, place.offset, self._created)

    def _received(self, wait_s: float) -> EventChunk | None:
        """Receive events; an error before the log is recognised says that it is another log."""
        try:
            return self._transport.receive(wait_s)
        except LogPurgedError:
            raise
        except (IntegrityError, SourceIdentityError) as error:
            if self.is_recognised:
                raise
            raise self._another(f"at {self._file} it has no event: {error.what}") from error

    # --- the chunk by files -------------------------------------------------------------------

    def _parted(self, chunk: EventChunk) -> Iterator[Stretch]:
        """Yield a chunk's events, divided at rotations and format descriptions."""
        data = ByteViews(chunk.buffer)
        types = data.u8[chunk.starts + TYPE_AT]
        first = 0
        for place in [*np.flatnonzero(_PARTS[types]).tolist(), len(types)]:
            yield from self._stretch(chunk, data, types, range(first, place))
            if place < len(types):
                self._turn(bytes(chunk.buffer[chunk.starts[place] : chunk.ends[place]]))
            first = place + 1

    def _turn(self, event: bytes) -> None:
        """Take a rotation or format description: remember the file, and when it was begun."""
        if event[TYPE_AT] == ROTATE:
            target = self._target(event)
            if self._file is None or target.file_number != self._file.file_number:
                self._created = None
            self._file = target
            return
        self._created = int.from_bytes(event[:4], "little")
        self._has_checksums = event[-_CRC - 1] != 0
        self._compare_created()

    def _target(self, event: bytes) -> BinlogPosition:
        """Return the target of a rotation; before recognition, a bad target means another log."""
        try:
            return rotation_target(event)
        except IntegrityError as error:
            if self.is_recognised:
                raise
            raise self._another(error.what) from error

    def _stretch(
        self, chunk: EventChunk, data: ByteViews, types: ByteArray, among: range
    ) -> Iterator[Stretch]:
        """Yield a range of a chunk's events, without those that the server made up for the dump."""
        if self._file is None or not among:
            return
        index = np.arange(among.start, among.stop)
        starts = chunk.starts[index]
        told = data.little(starts + LOG_POS_AT, 4)
        real = (told > 0) & ~_MADE_UP[types[index]]
        real &= (data.u8[starts + FLAGS_AT] & ARTIFICIAL_FLAG) == 0
        index, told = index[real], told[real]
        if len(index):
            ends = whole_offsets(told, self._file.offset)
            stretch = Stretch(
                chunk, self._file, self._created, self._has_checksums, index, types[index], ends
            )
            self._file = self._file.at(int(ends[-1]))
            yield stretch

    # --- comparing ----------------------------------------------------------------------------

    def _compare_created(self) -> None:
        """Compare when the file was begun with the expected imprint and the watermarks to pass."""
        file, created = self._file, self._created
        if file is None or created is None:
            return
        wanted = self._expected
        if wanted is not None and wanted.end.file_number == file.file_number:
            if wanted.created != created:
                raise self._another(_begun(file, wanted.created, created))
            if not wanted.digest:
                self._expected = None
        for held, imprint in self._still_to_pass.get(file.file_number, ()):
            if imprint.created != created:
                found = _begun(file, imprint.created, created)
                raise self._another(f"{found}; {held.by} has read it")

    def _without_known(self, chunk: EventChunk, stretches: Sequence[Stretch]) -> EventChunk:
        """Compare a chunk with the imprint, and drop the events that were read before."""
        if self._read_to is None:
            return chunk
        keep = np.ones(len(chunk.starts), np.bool_)
        for stretch in stretches:
            self._seek(stretch)
            if stretch.file.file_number < self._read_to.file_number:
                keep[stretch.index] = False
            elif stretch.file.file_number == self._read_to.file_number:
                keep[stretch.index[stretch.ends <= self._read_to.offset]] = False
                if int(stretch.ends[-1]) >= self._read_to.offset and self.is_recognised:
                    self._read_to = None  # all that comes is new
                    break
            else:
                self._read_to = None
                break
        return EventChunk(chunk.buffer, chunk.starts[keep], chunk.ends[keep])

    def _seek(self, stretch: Stretch) -> None:
        """Digest events until the end of the expected imprint, and compare the two digests."""
        wanted = self._expected
        if wanted is None:
            return
        if stretch.file.file_number != wanted.end.file_number:
            raise self._another(f"it goes on in {stretch.file.file} without {wanted.end}")
        for number, end in enumerate(stretch.ends.tolist()):
            self._sought.update(stretch.digested(number))
            if end >= wanted.end.offset:
                if end > wanted.end.offset or self._sought.hexdigest() != wanted.digest:
                    raise self._another(f"what ends at {wanted.end} is another transaction")
                self._expected = None
                return

    def _compare_passed(self, stretch: Stretch) -> None:
        """Compare the imprints of watermarks that end within these events of the dump."""
        waiting = self._still_to_pass.get(stretch.file.file_number)
        if not waiting:
            return
        last = int(stretch.ends[-1])
        left = [(held, imprint) for held, imprint in waiting if imprint.end.offset > last]
        self._still_to_pass[stretch.file.file_number] = left
        if not left:
            del self._still_to_pass[stretch.file.file_number]
        for held, imprint in waiting:
            if imprint.digest and stretch.begin(0) <= imprint.start and imprint.end.offset <= last:
                self._compare_held(stretch, held, imprint)

    def _compare_held(self, stretch: Stretch, held: AppliedThrough, imprint: Imprint) -> None:
        """Compare the imprint of one watermark with the digest of the same range of events."""
        end = int(np.searchsorted(stretch.ends, imprint.end.offset))
        first = int(np.searchsorted(stretch.ends, imprint.start, side="right"))
        found_at = stretch.begin(first), int(stretch.ends[end])
        if not self._start.by_file and found_at != (imprint.start, imprint.end.offset):
            return  # a dump by GTIDs leaves out what is in the position
        if int(stretch.ends[end]) != imprint.end.offset or (
            stretch.digest(first, end) != imprint.digest
        ):
            found = f"what ends at {imprint.end} is another transaction"
            raise self._another(f"{found} than {held.by} has read")

    def _another(self, found: str) -> SourceIdentityError:
        """Return the error for a log that is not the one read before."""
        position, end = self._start.position, self._start.log_end
        return SourceIdentityError(
            f"the log is not the one that was read up to {position}: {found}",
            f"{self._where}, whose log ends at {end}",
            "the server was reset, or restored from a copy; which changes of the former log are "
            "in the sink and not in this one is not known",
            "connect to the former server; or `accept` this one's history with --source, and all "
            "tables are read again while they flow; or `reset`",
        )


def require_known(
    endpoint: Endpoint, start: MySqlPosition, held: Sequence[AppliedThrough] = ()
) -> None:
    """Require that a server's log is the one that was read up to a position."""
    with closing(_short_dump(endpoint, start, held)) as transport:
        known = RecognisedLog(transport, held, str(endpoint))
        # MariaDB says only now that it has purged what follows
        while not (known.is_recognised and transport.has_answered):
            known.receive(_WAIT_S, None)


def imprint_at(endpoint: Endpoint, position: MySqlPosition) -> Imprint | None:
    """Read a position's imprint from the log: its file's creation time, and a digest before it.

    None without a file.
    """
    with closing(_short_dump(endpoint, position)) as transport:
        known = RecognisedLog(transport, (), str(endpoint))
        while (found := known.imprint(position.binlog)) is None and transport.start.by_file:
            known.receive(_WAIT_S, None)
        return found


def _short_dump(
    endpoint: Endpoint, start: MySqlPosition, held: Sequence[AppliedThrough] = ()
) -> LogTransport:
    """Open a binlog dump with server id 0, which ends where the log ends."""
    return LogTransport(endpoint, server_id=NO_SERVER_ID, start=start, held=held)


def _by_file(
    held: Iterable[AppliedThrough], server_uuid: str
) -> dict[int, list[tuple[AppliedThrough, Imprint]]]:
    """Return, by file number, the imprints of positions of a server that are still to pass."""
    found: dict[Imprint, AppliedThrough] = {}
    for each in held:
        imprint = own(each.position).imprint
        if imprint is not None and each.position.server == server_uuid:
            found.setdefault(imprint, each)
    by_file: dict[int, list[tuple[AppliedThrough, Imprint]]] = {}
    for imprint, each in found.items():
        by_file.setdefault(imprint.end.file_number, []).append((each, imprint))
    return by_file


def _begun(file: BinlogPosition, before: int, now: int) -> str:
    """Return a text on a log file that was begun at another time than before."""
    then, found = (datetime.fromtimestamp(second, UTC).isoformat() for second in (before, now))
    return f"{file.file} was begun at {then} then and at {found} now"
