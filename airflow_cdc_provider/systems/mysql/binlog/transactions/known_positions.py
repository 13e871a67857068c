"""How far an edge had brought the other node's log to this one, by the ledger's rows in this log.

The edge back keeps its position in the ledger at its sink, in the transaction that writes what it
brings. So this log says, between its own changes, what of the other node's log was known when each
of them was made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of, texts_of
from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.few_changes import FewChange
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps

Move = tuple[int, str]
"""The number of a transaction, and the position that was known from it on, as JSON."""
_EDGE, _POSITION = "edge", "position"


class KnownPositions:
    """Collects where an edge was, transaction by transaction, from the rows of its ledger."""

    def __init__(self, edge: str, maps: TableMaps) -> None:
        self._name = edge.encode()
        self._edge = texts_of([edge])
        self._maps = maps
        self._moves: dict[int, str] = {}

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

    def few(self, decoder: TableDecoder, changes: Sequence[FewChange]) -> str | None:
        """Return the position in a few rows of streams' progress, None if there is none."""
        names = [column.name for column in decoder.map.columns]
        if _EDGE not in names:
            return None
        edge, position = names.index(_EDGE), names.index(_POSITION)
        rows = [change.after for change in changes if change.after is not None]
        found = [row[position] for row in rows if row[edge] == self._name]
        return found[-1].decode() if found and isinstance(found[-1], bytes) else None

    def add(self, number: int, position: str) -> None:
        """Take in a position that was known from a transaction on."""
        self._moves[number] = position

    def take(self, numbers: IntArray) -> Sequence[Move]:
        """Return the moves of transactions that end now, in log order; they are forgotten."""
        if not self._moves or not len(numbers):
            return ()
        ended = [number for number in sorted(self._moves) if number <= int(numbers[-1])]
        first = int(numbers[0])
        return [(max(number, first), self._moves.pop(number)) for number in ended]

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
        positions = changes.after.column(names.index(_POSITION)).filter(mask_of(mine))
        of = np.repeat(numbers, changes.counts)[mine]
        self._moves.update(zip(of.tolist(), positions.to_pylist(), strict=True))
