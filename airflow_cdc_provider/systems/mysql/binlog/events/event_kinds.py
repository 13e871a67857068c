"""Sort many events by what they are to the stream, in vector steps.

Five kinds make up nearly all of a log and can be followed without looking at them one by one:
what opens a transaction, BEGIN, table maps already known, rows, and what commits. Everything else
is `SPECIAL` and goes through code of its own.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import HEADER_BYTES, EventType
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import ROW_EVENTS


class Kind(IntEnum):
    """What an event is to the decoder: a part of a usual transaction, skipped, or special."""

    SKIP = 0
    COMMIT = 1
    OPEN = 2
    BEGIN = 3
    ROWS = 4
    SPECIAL = 5


_BY_TYPE = np.full(256, Kind.SPECIAL, np.uint8)
_BY_TYPE[ROW_EVENTS] = Kind.ROWS
_BY_TYPE[EventType.XID] = Kind.COMMIT
_BY_TYPE[
    [
        EventType.GTID,
        EventType.ANONYMOUS_GTID,
        EventType.GTID_TAGGED,
        EventType.MARIADB_GTID,
    ]
] = Kind.OPEN
_BY_TYPE[
    [
        EventType.STOP,
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.IGNORABLE,
        EventType.ROWS_QUERY,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.MARIADB_ANNOTATE_ROWS,
        EventType.MARIADB_BINLOG_CHECKPOINT,
        EventType.MARIADB_GTID_LIST,
    ]
] = Kind.SKIP

_TEXTS = (
    (b"BEGIN", Kind.BEGIN, True),
    (b"COMMIT", Kind.COMMIT, True),
    (b"SAVEPOINT ", Kind.SKIP, False),
)
"""Text, kind, and whether the text is all of it."""


_SKIP, _SPECIAL = int(Kind.SKIP), int(Kind.SPECIAL)
_QUERY, _TABLE_MAP = int(EventType.QUERY), int(EventType.TABLE_MAP)


def kinds_of(frames: Frames, known_maps: dict[int, bytes]) -> ByteArray:
    """Return each event's kind; a table map is skipped only if it repeats the known one's bytes."""
    kinds = _BY_TYPE[frames.types]
    queries = np.flatnonzero(frames.types == _QUERY)
    if len(queries):
        kinds[queries] = _query_kinds(frames, queries)
    maps = np.flatnonzero(frames.types == _TABLE_MAP)
    if len(maps):
        kinds[maps] = np.where(_repeats(frames, maps, known_maps), _SKIP, _SPECIAL)
    return kinds


def _query_kinds(frames: Frames, places: IntArray) -> ByteArray:
    """Return the kinds of statement events: BEGIN, COMMIT, SAVEPOINT, else special."""
    data = frames.data
    starts = frames.starts[places] + HEADER_BYTES
    text = starts + 13 + data.little(starts + 11, 2) + data.little(starts + 8, 1) + 1
    length = frames.ends[places] - text
    kinds = np.full(len(places), _SPECIAL, np.uint8)
    for words, kind, whole in _TEXTS:
        fits = length == len(words) if whole else length >= len(words)
        candidates = np.flatnonzero(fits)
        if not len(candidates):
            continue
        wanted = np.frombuffer(words, np.uint8)
        same = (data.blocks(text[candidates], len(words)) == wanted).all(axis=1)
        kinds[candidates[same]] = kind
    return kinds


def _repeats(frames: Frames, places: IntArray, known_maps: dict[int, bytes]) -> BoolArray:
    """Tell which table maps repeat the known one of their id, with no other map in between."""
    starts = frames.starts[places] + HEADER_BYTES
    lengths = frames.ends[places] - starts
    ids = frames.data.little(starts, 6)
    repeats = np.zeros(len(places), np.bool_)
    for table_id in distinct(ids):
        chosen = np.flatnonzero(ids == table_id)
        known = known_maps.get(table_id)
        if known is None:  # the first is looked at, the others are compared with it
            first = int(places[chosen[0]])
            known = frames.body(first)
            chosen = chosen[1:]
        if not len(chosen):
            continue
        same = lengths[chosen] == len(known)
        wanted = np.frombuffer(known, np.uint8)
        blocks = frames.data.blocks(starts[chosen[same]], len(known))
        same[same] = (blocks == wanted).all(axis=1)
        different = np.flatnonzero(~same)
        if len(different):
            same[different[0] :] = False
        repeats[chosen] = same
    return repeats
