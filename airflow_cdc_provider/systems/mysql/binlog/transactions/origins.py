"""Judge whole transactions by their first row events: is their origin one to be left out.

A marker is in the row events that a transaction begins with, so what follows needs no look: which
transaction each row event belongs to is known before any is decoded. The leading marker events of
all transactions of a run are decoded together; each distinct marker is judged once; the rows of a
transaction that is left out are never decoded. What is known of the last transaction is kept, for
it may go on in the next chunk, between two markers or behind them. So are the origins of those that
are relayed, until their batch asks for them: the sink's marker names them again.

Rows of the marker table itself are no changes, wherever they are. A marker that was deleted marks
nothing: that was a person. So was who wrote one that no edge writes: it is refused only where other
rows are behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, binary_scalar
from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.few_changes import FewChange
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import RESET, IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import MARKER_COLUMNS, EdgeOrigins, Marker
from airflow_cdc_provider.systems.mysql.binlog.events.frames import Frames
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder, ops_of
from airflow_cdc_provider.systems.mysql.binlog.rows.table_maps import TableMaps

log = logging.getLogger(__name__)

_NONE = -1
_BETWEEN_NAMES = "\0"


@dataclass(frozen=True, slots=True)
class _MarkerNames:
    """The three names in each of some marker rows."""

    texts: list[str]
    """What the rows hold, each but once: the names in one text."""
    index: IntArray
    """Which of the texts a row holds."""

    def of(self, judged: Iterable[bool]) -> BoolArray:
        """Return for each row what was judged of its text."""
        found: BoolArray = np.fromiter(judged, np.bool_, len(self.texts))[self.index]
        return found


class TransactionOrigins:
    """Judges transactions by their markers, in log order; without a rule it keeps all."""

    def __init__(self, rule: EdgeOrigins | None, maps: TableMaps) -> None:
        self._rule = rule
        self._maps = maps
        self._leaves_unmarked = rule is not None and rule.leaves_out(None)
        self._judged: dict[str, bool] = {}
        self._wrong: dict[str, IntegrityError] = {}
        """Of markers that no edge writes, what speaks against them."""
        self._refusal: IntegrityError | None = None
        """Of the last transaction, if it has rows besides such a marker."""
        self._relayed: list[tuple[IntArray, IntArray]] = []
        """The marker rows of transactions that are kept: the transaction, and its origin's code."""
        self._codes: dict[str, int] = {}
        """Of the origins of transactions that are kept, in the order of their codes."""
        self._number = _NONE
        """The last transaction of which row events came."""
        self._is_left_out = False
        self._is_leading = False
        """All row events of the last transaction so far are its markers."""
        self._is_marked = False

    @property
    def is_judging(self) -> bool:
        """Tell whether there is a rule."""
        return self._rule is not None

    def needs_columns(self, number: int) -> bool:
        """Tell whether the rows that come, of this transaction first, must be judged in columns."""
        if self._leaves_unmarked:
            return True
        return self._number == number and (self._is_left_out or self._is_leading)

    def note_unmarked(self, number: int) -> None:
        """Note that a transaction that is kept has row events, the first of which is no marker."""
        if self._rule is not None and self._number != number:
            self._keep(number, left_out=False, leading=False, marked=False)

    def note_left_out(self, number: int, *, leading: bool) -> None:
        """Note that a transaction is left out by its markers; are those all that came so far."""
        self._keep(number, left_out=True, leading=leading, marked=True)

    def leave_out_few(self, decoder: TableDecoder, changes: Sequence[FewChange]) -> bool:
        """Tell whether a few marker rows are known to have their transaction left out."""
        places = {column.name.lower(): place for place, column in enumerate(decoder.map.columns)}
        if any(name not in places for name in MARKER_COLUMNS):
            return False
        for change in changes:
            after = change.after or ()
            names = [after[places[name]] for name in MARKER_COLUMNS] if after else []
            texts = [name.decode() for name in names if isinstance(name, bytes)]
            if len(texts) < len(MARKER_COLUMNS):
                return False
            if not self._judged.get(_BETWEEN_NAMES.join(texts)):
                return False
        return bool(changes)

    def require_no_marker(self, number: int) -> None:
        """Refuse a rollback to a savepoint in a marked transaction: its marker may be gone."""
        if self._number == number and self._is_marked:
            raise IntegrityError(
                "a transaction that holds a marker was rolled back to a savepoint",
                where="" if self._rule is None else str(self._rule.marker),
                risk="where its other changes came from is not known",
                remedy=f"let nothing but the topology's edges write the marker, and {RESET}",
            )

    def take(self, numbers: IntArray) -> frozenset[str]:
        """Return where these transactions were written; none without a rule.

        `numbers` grow. Of earlier transactions nothing is kept any more.
        """
        if self._rule is None or not len(numbers):
            return frozenset()
        own = frozenset({self._rule.src_node})
        if not self._relayed:
            return own
        noted, codes = map(np.concatenate, zip(*self._relayed, strict=True))
        places = np.minimum(np.searchsorted(numbers, noted), len(numbers) - 1)
        found = numbers[places] == noted
        is_relayed = np.zeros(len(numbers), np.bool_)
        is_relayed[places[found]] = True
        names = list(self._codes)
        relayed = {names[code] for code in np.flatnonzero(np.bincount(codes[found])).tolist()}
        later = noted >= numbers[-1]
        self._relayed = [(noted[later], codes[later])] if later.any() else []
        return own.union(relayed) if not is_relayed.all() else frozenset(relayed)

    def kept(self, frames: Frames, rows: IntArray, numbers: IntArray) -> BoolArray:
        """Tell which row events are to be decoded; `numbers` are their transactions."""
        rule = self._rule
        if rule is None or not len(rows):
            return np.ones(len(rows), np.bool_)
        ids = frames.data.little(frames.starts[rows] + 19, 6)
        of_marker = np.isin(ids, list(self._maps.markers))
        marks = of_marker & (ops_of(frames.types[rows]) != Op.DELETE)
        firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        ends = np.append(firsts[1:], len(rows))
        stops = self._leading_ends(marks, firsts, ends)
        goes_on = bool(numbers[0] == self._number)
        if goes_on and not self._is_leading:
            stops[0] = firsts[0]  # its markers are over
        left_out = np.full(len(firsts), self._leaves_unmarked, np.bool_)
        if goes_on:
            left_out[0] = self._is_left_out
        if self._refusal is not None and goes_on and ends[0] > stops[0]:
            raise self._refusal
        marked = stops > firsts
        self._refusal = self._refusal if goes_on and len(firsts) == 1 else None
        if marked.any():
            leading = (firsts, stops, marked, numbers[firsts])
            wrong = self._judge(rule, frames, rows, ids, leading, left_out, goes_on=goes_on)
            for place, error in wrong.items():
                if ends[place] > stops[place]:
                    raise error
                log.warning("a marker that no edge writes: %s", error.what)
                self._refusal = error if place == len(firsts) - 1 else self._refusal
        self._keep(
            int(numbers[-1]),
            left_out=bool(left_out[-1]),
            leading=bool(stops[-1] == ends[-1]),
            marked=bool(marked[-1]) or (goes_on and len(firsts) == 1 and self._is_marked),
        )
        return ~of_marker & ~np.repeat(left_out, ends - firsts)

    def _keep(self, number: int, *, left_out: bool, leading: bool, marked: bool) -> None:
        """Keep what is known of the last transaction."""
        self._number = number
        self._is_left_out, self._is_leading, self._is_marked = left_out, leading, marked

    @staticmethod
    def _leading_ends(marks: BoolArray, firsts: IntArray, ends: IntArray) -> IntArray:
        """Return the index after the leading marker events of each transaction."""
        others = np.append(np.flatnonzero(~marks), len(marks))
        stops: IntArray = np.minimum(others[np.searchsorted(others, firsts)], ends)
        return stops

    def _judge(  # noqa: PLR0913 - one step of `kept`, over the columns that it has made
        self,
        rule: EdgeOrigins,
        frames: Frames,
        rows: IntArray,
        ids: IntArray,
        leading: tuple[IntArray, IntArray, BoolArray, IntArray],
        left_out: BoolArray,
        *,
        goes_on: bool,
    ) -> dict[int, IntegrityError]:
        """Fill in which of the marked transactions are left out.

        Return what speaks against those whose marker no edge writes.
        """
        wrong: dict[int, IntegrityError] = {}
        firsts, stops, marked, numbers = leading
        counts = stops - firsts
        of = np.repeat(np.arange(len(firsts)), counts)
        places = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(len(of))
        every, none = np.ones(len(firsts), np.bool_), np.ones(len(firsts), np.bool_)
        for table_id in distinct(ids[places]):
            chosen = ids[places] == table_id
            transaction, names = self._names(rule, frames, table_id, rows[places[chosen]])
            judged = of[chosen][transaction]
            verdict = names.of(self._verdict(rule, each) for each in names.texts)
            wrong.update(self._wrong_of(judged, names))
            np.logical_and.at(every, judged, verdict)
            np.logical_and.at(none, judged, ~verdict)
            self._note_relayed(numbers[judged], names, ~verdict)
        mixed = marked & ~every & ~none
        if goes_on and marked[0] and self._is_marked:
            mixed[0] |= bool(every[0]) != self._is_left_out
        if mixed.any():
            raise rule.mixed(str(rule.marker))
        left_out[marked] = every[marked]
        return wrong

    def _wrong_of(self, judged: IntArray, names: _MarkerNames) -> dict[int, IntegrityError]:
        """Return what speaks against transactions whose marker rows no edge writes."""
        if not self._wrong:
            return {}
        rows = np.flatnonzero(names.of(each in self._wrong for each in names.texts))
        pairs = zip(judged[rows].tolist(), names.index[rows].tolist(), strict=True)
        return {place: self._wrong[names.texts[index]] for place, index in pairs}

    def _note_relayed(self, numbers: IntArray, names: _MarkerNames, kept: BoolArray) -> None:
        """Keep the origins in the marker rows of transactions that are not left out."""
        if not kept.any():
            return
        origins = [each.partition(_BETWEEN_NAMES)[0] for each in names.texts]
        codes = [self._codes.setdefault(each, len(self._codes)) for each in origins]
        self._relayed.append((numbers[kept], np.array(codes, np.int64)[names.index[kept]]))

    def _names(
        self, rule: EdgeOrigins, frames: Frames, table_id: int, events: IntArray
    ) -> tuple[IntArray, _MarkerNames]:
        """Return, for each marker row of some events, its event's index, and its names.

        They have one table map.
        """
        decoder = self._maps.decoder(table_id)
        if decoder is None:
            raise _no_marker_table(rule.marker, "its table map")
        changes = decoder.decode(frames, events)
        names = {column.name.lower(): index for index, column in enumerate(decoder.map.columns)}
        for name in MARKER_COLUMNS:
            if name not in names:
                raise _no_marker_table(rule.marker, f"a column {name}")
        columns = [changes.after.column(names[name]) for name in MARKER_COLUMNS]
        between = binary_scalar(_BETWEEN_NAMES.encode(), pa.string())
        named = pc.binary_join_element_wise(*columns, between).dictionary_encode("encode")
        found = _MarkerNames(named.dictionary.to_pylist(), as_numpy(named.indices))
        return np.repeat(np.arange(len(events)), changes.counts), found

    def _verdict(self, rule: EdgeOrigins, names: str | None) -> bool:
        """Return whether transactions with a marker of these names are left out, judged once."""
        parts = (names or "").split(_BETWEEN_NAMES)
        if names is None or len(parts) != len(MARKER_COLUMNS):
            raise _no_marker_table(rule.marker, "a name in a row, or has one that is none,")
        if names not in self._judged:
            try:
                self._judged[names] = rule.leaves_out(Marker.of(*parts))
            except IntegrityError as error:
                self._judged[names], self._wrong[names] = False, error
        return self._judged[names]


def _no_marker_table(table: TableId, lacks: str) -> IntegrityError:
    """Return the error for rows of a marker table that is not one."""
    columns = ", ".join(MARKER_COLUMNS)
    return IntegrityError(
        f"the marker table lacks {lacks} in the log",
        where=str(table),
        risk="changes that came from the other node would go back to it",
        remedy=f"it needs the columns {columns} and n; name such a table as topology.marker",
    )
