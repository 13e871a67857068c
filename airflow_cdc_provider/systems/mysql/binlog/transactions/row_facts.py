"""Where in the log each row stands and who wrote it, as envelopes tell it; only if somebody asks.

The names and their meaning are Debezium's. `file` and `pos` are where the row's own event begins,
or the compressed transaction that it lies in. `row` is its number in its event. `server_id` is of
the event's header. `thread` is of the BEGIN of the transaction: of XA there is none, and MariaDB
logs none.
`query` is the statement as the source's log has it before the row's table map; the last one counts,
as long as its transaction lasts.

Each is known of an event and the same for its rows: it is read once for all events of a run, and
repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import (
    as_arrow,
    binaries_of,
    numbers_of,
    texts_of,
)
from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.positions import Fact
from airflow_cdc_provider.systems.mysql.binlog.events.event_kinds import Kind
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames

_SERVER_ID_AT = 5
_OPEN, _BEGIN = int(Kind.OPEN), int(Kind.BEGIN)
_ROWS_QUERY, _ANNOTATE = int(EventType.ROWS_QUERY), int(EventType.MARIADB_ANNOTATE_ROWS)
_TEXT_LENGTH_BYTES = 1  # of a ROWS_QUERY; it is cut off at 255 and means nothing
_NONE = -1
_NO_EVENTS = np.zeros(0, np.int64)
_TYPES = ("file", "pos", "row", "server_id", "thread", "query")
"""In Debezium's order."""


class RowFacts:
    """Finds the facts for rows of envelopes (file, offset, thread, query), run by run."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(name for name in _TYPES if name in names)
        self._thread = _NONE
        self._query: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self.names)

    def of_statement(self, statement: Frames, log_end: int, file: str) -> Mapping[str, Fact]:
        """Return the facts of a statement event."""
        server_id = statement.data.little(statement.starts + _SERVER_ID_AT, 4)
        known: dict[str, Fact] = {
            "file": file,
            "pos": log_end - int(statement.file_bytes[0]),
            "row": 0,
            "server_id": int(server_id[0]),
        }
        return {name: known[name] for name in self.names if name in known}

    def note(self, frames: Frames, kinds: ByteArray, log_ends: IntArray) -> _Run:
        """Read the facts of a run of events, and keep what the next run needs of them."""
        begins = np.flatnonzero(kinds == _BEGIN)
        queries = _NO_EVENTS
        if "query" in self.names:
            queries = np.flatnonzero((frames.types == _ROWS_QUERY) | (frames.types == _ANNOTATE))
        threads = frames.data.little(frames.starts[begins] + HEADER_BYTES, 4)
        run = _Run(
            self.names,
            frames,
            np.where(log_ends > 0, log_ends - frames.file_bytes, _NONE),
            np.flatnonzero(kinds == _OPEN),
            begins,
            np.append(threads, [self._thread, _NONE]),
            queries,
            self._query,
        )
        behind = np.array([len(frames)])
        self._thread = int(run.threads_at(behind)[0])
        self._query = run.query_at(len(frames))
        return run


class _Run:
    """The facts that were read of one run of events."""

    def __init__(  # noqa: PLR0913 - what was found in the run
        self,
        names: tuple[str, ...],
        frames: Frames,
        log_starts: IntArray,
        opens: IntArray,
        begins: IntArray,
        threads: IntArray,
        queries: IntArray,
        carried: bytes | None,
    ) -> None:
        self._names = names
        self._frames = frames
        self._log_starts = log_starts
        self._opens, self._begins, self._queries = opens, begins, queries
        self._threads = threads
        self._carried = carried

    def of(self, events: IntArray, counts: IntArray, row: IntArray, file: str) -> pa.RecordBatch:
        """Return the facts of the rows of some events as columns."""
        found: dict[str, pa.Array] = {}
        for name in self._names:
            match name:
                case "file":
                    found[name] = _pointing(np.zeros_like(row), None, texts_of([file]))
                case "pos":
                    found[name] = _known(np.repeat(self._log_starts[events], counts))
                case "row":
                    found[name] = as_arrow(row.astype(np.int32), None, pa.int32())
                case "server_id":
                    at = self._frames.starts[events] + _SERVER_ID_AT
                    found[name] = numbers_of(np.repeat(self._frames.data.little(at, 4), counts))
                case "thread":
                    found[name] = _known(np.repeat(self.threads_at(events), counts))
                case _:
                    found[name] = self._queries_of(events, counts)
        fields = [pa.field(name, array.type) for name, array in found.items()]
        return pa.RecordBatch.from_arrays(list(found.values()), schema=pa.schema(fields))

    def threads_at(self, events: IntArray) -> IntArray:
        """Return the thread that began each event's transaction, -1 where the log does not say."""
        return self._threads[self._last_before(self._begins, events)]

    def query_at(self, event: int) -> bytes | None:
        """Return the logged query text that applies to an event, None if there is none."""
        last = int(self._last_before(self._queries, np.array([event]))[0])
        if last < len(self._queries):
            start, end = _text_bounds(self._frames, self._queries[last : last + 1])
            return self._frames.data.text_at(int(start[0]), int(end[0]))
        return self._carried if last == len(self._queries) else None

    def _queries_of(self, events: IntArray, counts: IntArray) -> pa.Array:
        """Return the logged query text of each row, with each text held once."""
        last = self._last_before(self._queries, events)
        told, places = np.unique(last, return_inverse=True)
        inside = told[told < len(self._queries)]
        texts = _texts(self._frames, self._queries[inside])
        if self._carried is not None and len(self._queries) in told:
            texts = pa.concat_arrays([texts, _decoded(binaries_of([self._carried]))])
        absent = np.repeat(places >= len(texts), counts)
        wanted = np.repeat(np.minimum(places, max(len(texts) - 1, 0)), counts)
        return _pointing(wanted, absent if absent.any() else None, texts)

    def _last_before(self, marks: IntArray, events: IntArray) -> IntArray:
        """Return, for each event, the index of the last mark before it in the same transaction.

        One more than there are: it came before the run. Two more: there is none.
        """
        last = np.searchsorted(marks, events) - 1
        opened = np.searchsorted(self._opens, events) - 1
        begun = np.append(self._opens, _NONE)[opened]
        inside = (last >= 0) & (np.append(marks, _NONE)[last] > begun)
        return np.where(inside, last, np.where(begun == _NONE, len(marks), len(marks) + 1))


def _text_bounds(frames: Frames, events: IntArray) -> tuple[IntArray, IntArray]:
    """Return where the texts of logged queries begin and end."""
    length_bytes = np.where(frames.types[events] == _ROWS_QUERY, _TEXT_LENGTH_BYTES, 0)
    ends = frames.ends[events]
    return np.minimum(frames.starts[events] + HEADER_BYTES + length_bytes, ends), ends


def _texts(frames: Frames, events: IntArray) -> pa.Array:
    """Return the texts of logged queries."""
    starts, ends = _text_bounds(frames, events)
    return _decoded(_slices(frames.data, starts, ends))


def _slices(data: ByteViews, starts: IntArray, ends: IntArray) -> pa.Array:
    """Copy slices of a buffer into a binary array."""
    bounds = np.empty(2 * len(starts) + 2, np.int32)
    bounds[0], bounds[-1] = 0, len(data)
    bounds[1:-1:2], bounds[2:-1:2] = starts, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data.buffer)]
    everything = pa.Array.from_buffers(pa.binary(), 2 * len(starts) + 1, buffers, 0)
    return everything.take(numbers_of(np.arange(1, 2 * len(starts), 2)))


def _decoded(raw: pa.Array) -> pa.Array:
    """Decode texts as UTF-8; other bytes become a mark."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return texts_of([text.decode("utf-8", "replace") for text in raw.to_pylist()])


def _known(values: IntArray) -> pa.Array:
    """Return numbers as an array with NULL where they are not known."""
    absent = values == _NONE
    return as_arrow(values, absent if absent.any() else None, pa.int64())


def _pointing(wanted: IntArray, absent: BoolArray | None, values: pa.Array) -> pa.Array:
    """Return a dictionary array of values by index."""
    return pa.DictionaryArray.from_arrays(
        as_arrow(wanted.astype(np.int32), absent, pa.int32()), values
    )
