"""How far an edge had brought the other node's log to this one, by the ledger's rows in this log.

The edge back keeps its position in the ledger at its sink, in the transaction that writes what it
brings. So this log says, between its own changes, what of the other node's log was known when each
of them was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, texts_of
from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.few_changes import FewChange
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.codec import apart_from_json, position_from_json
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps

KnownText = tuple[str, str]
"""A position, and the tables that are not there, each as JSON; see `KnownLog`."""
Move = tuple[int, KnownText]
"""The number of a transaction, and what was known from it on."""
_EDGE, _POSITION, _APART = "edge", "position", "apart"


class KnownPositions:
    """Collects where an edge was, transaction by transaction, from the rows of its ledger."""

    def __init__(self, edge: str, maps: TableMaps) -> None:
        self._name = edge.encode()
        self._edge = texts_of([edge])
        self._maps = maps
        self._moves: dict[int, KnownText] = {}
        self._last: KnownText | None = None

    def note(self, frames: Frames, rows: IntArray, numbers: IntArray) -> BoolArray:
        """Take in the rows of streams' progress among row events; tell which events are others.

        `numbers` are the transactions of the events.
        """
        ids = frames.data.little(frames.starts[rows] + 19, 6)
        is_progress = np.isin(ids, list(self._maps.progress))
        for table_id in distinct(ids[is_progress]):
            places = np.flatnonzero(ids == table_id)
            self._note(frames, table_id, rows[places], numbers[places])
        return ~is_progress

    def few(self, decoder: TableDecoder, changes: Sequence[FewChange]) -> KnownText | None:
        """Return what a few rows of streams' progress say, None if it is nothing of the edge's."""
        names = [column.name for column in decoder.map.columns]
        if _EDGE not in names:
            return None
        edge, position = names.index(_EDGE), names.index(_POSITION)
        apart = names.index(_APART) if _APART in names else None
        rows = [change.after for change in changes if change.after is not None]
        found = [row for row in rows if row[edge] == self._name]
        if not found:
            return None
        return _text(found[-1][position]), "" if apart is None else _text(found[-1][apart])

    def add(self, number: int, known: KnownText) -> None:
        """Take in what was known from a transaction on."""
        self._moves[number] = known

    def take(self, numbers: IntArray) -> Sequence[Move]:
        """Return the moves of transactions that end now, in log order; they are forgotten.

        One that says what the last one said is none: changes around it need not be taken apart.
        """
        if not self._moves or not len(numbers):
            return ()
        ended = [number for number in sorted(self._moves) if number <= int(numbers[-1])]
        first = int(numbers[0])
        moves = []
        for number in ended:
            known = self._moves.pop(number)
            if self._last is None or not _say_the_same(self._last, known):
                self._last = known
                moves.append((max(number, first), known))
        return moves

    def _note(self, frames: Frames, table_id: int, events: IntArray, numbers: IntArray) -> None:
        """Take in rows of one table map."""
        decoder = self._maps.decoder(table_id)
        names = [] if decoder is None else [column.name for column in decoder.map.columns]
        if decoder is None or _EDGE not in names:
            return  # a ledger of before: no edge of it tells what it knew
        changes = decoder.decode(frames, events)
        edges = changes.after.column(names.index(_EDGE))
        mine = as_numpy(pc.is_in(edges, value_set=self._edge)) & (changes.op != Op.DELETE)
        if not mine.any():
            return
        rows = changes.after.filter(mask_of(mine))
        positions = rows.column(names.index(_POSITION)).to_pylist()
        apart = [""] * len(positions)
        if _APART in names:
            apart = pc.fill_null(rows.column(names.index(_APART)), "").to_pylist()
        known = zip(positions, apart, strict=True)
        of = np.repeat(numbers, changes.counts)[mine]
        self._moves.update(zip(of.tolist(), known, strict=True))


def known_of(text: KnownText) -> KnownLog:
    """Return what a row of a stream's progress says was known."""
    position, apart = text
    return KnownLog(
        position_from_json(json.loads(position)), apart_from_json(json.loads(apart or "[]"))
    )


def _say_the_same(one: KnownText, other: KnownText) -> bool:
    """Tell whether the same was known by both; positions that differ are not even read."""
    return one[0] == other[0] and known_of(one).says_as(known_of(other))


def _text(value: object) -> str:
    """Return a text of a few rows, empty for NULL."""
    return value.decode() if isinstance(value, bytes) else ""
