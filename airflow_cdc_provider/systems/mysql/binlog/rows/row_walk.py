"""Find every cell of many row events of one table, without looking at the values.

A row image is a bitmap of NULLs and then the cells that are not NULL, one behind the other, so a
cell's offset depends on the lengths before it. Image k of every event is walked in one vector step
(lockstep): as many steps as the longest event has images, whatever the number of events. Between
two columns of variable length the widths are fixed; such a run of columns takes no steps of its
own, only its start is kept, and offsets inside are sums of widths where not NULL, computed once for
all images. A few long events are walked one image after the other instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airflow_cdc_provider.columns.byte_views import ByteViews
from airflow_cdc_provider.columns.numpy_types import BoolArray, ByteArray, IntArray
from airflow_cdc_provider.core.errors import CorruptLogError
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire

_LOCKSTEP_FROM = 12
"""With fewer events, one image at a time is cheaper than vector steps."""
_BITS_OF = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(
    np.int64
)
"""By a byte's value: which of its bits are set."""


@dataclass(slots=True)
class Images:
    """Row images in log order, and the offsets of their cells."""

    event: IntArray
    """Index of each image's event among the walked ones."""
    nulls: BoolArray | None
    """Columns x images; None if there is no NULL at all."""
    run_starts: list[IntArray]
    """For each run of columns that ends with one of variable length: where it starts."""
    layout: RowLayout

    def __len__(self) -> int:
        return len(self.event)


class RowLayout:
    """A table's columns in runs: fixed widths, then at most one of variable length."""

    def __init__(self, wires: Sequence[Wire]) -> None:
        self.columns = len(wires)
        self.bitmap_bytes = (len(wires) + 7) // 8
        self.runs: list[tuple[int, int, int]] = []
        """First column, column behind the fixed ones, bytes of the length of the last (0: none)."""
        self.widths = np.array([wire.width for wire in wires], np.int64)
        first = 0
        for number, wire in enumerate(wires):
            if wire.prefix:
                self.runs.append((first, number, wire.prefix))
                first = number + 1
        if first < len(wires) or not self.runs:
            self.runs.append((first, len(wires), 0))
        self._fixed = [int(self.widths[first:behind].sum()) for first, behind, _ in self.runs]
        """Bytes of each run's fixed columns, if none is NULL."""
        self._missing = [self._missing_widths(first, behind) for first, behind, _ in self.runs]
        used = np.full(self.bitmap_bytes, 0xFF, np.uint8)
        if used.size:
            used[-1] >>= -self.columns % 8
        self._used_bits = used

    def _missing_widths(self, first: int, behind: int) -> list[tuple[int, IntArray]]:
        """Return, for each bitmap byte of some columns, how many bytes its NULLs save, by value."""
        widths = np.zeros(8 * self.bitmap_bytes, np.int64)
        widths[first:behind] = self.widths[first:behind]
        by_byte = widths.reshape(self.bitmap_bytes, 8)
        return [
            (int(number), _BITS_OF @ by_byte[number])
            for number in np.flatnonzero(by_byte.any(axis=1))
        ]

    def walk(self, data: ByteViews, starts: IntArray, ends: IntArray) -> Images:
        """Find all row images between each event's start and end."""
        if (starts > ends).any():
            raise _overrun()
        if len(starts) < _LOCKSTEP_FROM:
            return self._walk_singly(data, starts, ends)
        return self._walk_lockstep(data, starts, ends)

    def _walk_lockstep(self, data: ByteViews, starts: IntArray, ends: IntArray) -> Images:
        """Find the row images of many events, one image of every event in each step."""
        offset, bounds, index = starts, ends, np.arange(len(starts))
        events: list[IntArray] = []
        bitmaps: list[ByteArray] = []
        found: list[list[IntArray]] = [[] for _ in self.runs]
        while len(offset):
            left = bounds - offset
            least = left.min()
            if least <= 0:
                if least < 0:
                    raise _overrun()
                going = left > 0
                offset, bounds, index = offset[going], bounds[going], index[going]
                continue
            bits = data.blocks(offset, self.bitmap_bytes)
            offset = self._step(data, offset + self.bitmap_bytes, bits, found)
            events.append(index)
            bitmaps.append(bits)
        if not events:
            return self._images(
                np.zeros(0, np.int64), np.zeros((0, self.bitmap_bytes), np.uint8), found
            )
        event, packed = np.concatenate(events), np.concatenate(bitmaps)
        if len(events) == 1:
            return self._images(event, packed, found)
        order = np.argsort(event, kind="stable")
        joined = [[np.concatenate(run)[order]] for run in found]
        return self._images(event[order], packed[order], joined)

    def _step(
        self, data: ByteViews, offset: IntArray, bits: ByteArray, found: list[list[IntArray]]
    ) -> IntArray:
        """Walk over one image of every event; return the offsets after the images."""
        lengths = data.u8
        any_null = bool((bits & self._used_bits).any())
        for run, (_, behind, prefix) in enumerate(self.runs):
            found[run].append(offset)
            offset = offset + self._fixed[run]
            if any_null:
                for number, widths in self._missing[run]:
                    offset -= widths[bits[:, number]]
            if not prefix:
                continue
            if any_null and (gone := bits[:, behind >> 3] & (1 << (behind & 7))).any():
                filled = np.flatnonzero(gone == 0)
                offset[filled] += data.little(offset[filled], prefix) + prefix
            else:
                offset += lengths[offset] if prefix == 1 else data.little(offset, prefix)
                offset += prefix
        return offset

    def _walk_singly(self, data: ByteViews, starts: IntArray, ends: IntArray) -> Images:
        """Find the row images of few events, one image after the other."""
        buffer = memoryview(data.buffer)
        events: list[int] = []
        bitmaps = bytearray()
        found: list[list[int]] = [[] for _ in self.runs]
        widths = self.widths.tolist()
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        for event, (start, end) in enumerate(bounds):
            offset = start
            while offset < end:
                events.append(event)
                bits = int.from_bytes(buffer[offset : offset + self.bitmap_bytes], "little")
                bitmaps += buffer[offset : offset + self.bitmap_bytes]
                offset += self.bitmap_bytes
                for run, (first, behind, prefix) in enumerate(self.runs):
                    found[run].append(offset)
                    for column in range(first, behind):
                        if not bits >> column & 1:
                            offset += widths[column]
                    if prefix and not bits >> behind & 1:
                        length = int.from_bytes(buffer[offset : offset + prefix], "little")
                        offset += prefix + length
                if offset > end:
                    raise _overrun()
        packed = np.frombuffer(bitmaps, np.uint8).reshape(len(events), self.bitmap_bytes)
        joined = [[np.array(run, np.int64)] for run in found]
        return self._images(np.array(events, np.int64), packed, joined)

    def _images(self, event: IntArray, packed: ByteArray, found: list[list[IntArray]]) -> Images:
        """Return the row images found, with their NULLs by column."""
        empty = np.zeros(0, np.int64)
        runs = [np.concatenate(run) if run else empty for run in found]
        nulls = None
        if (packed & self._used_bits).any():
            by_column = np.unpackbits(packed, axis=1, bitorder="little")[:, : self.columns].T
            nulls = np.ascontiguousarray(by_column).view(np.bool_)
        return Images(event, nulls, runs, self)


def _overrun() -> CorruptLogError:
    """Return the error for a row that is longer than its event."""
    return CorruptLogError(
        "a row is longer than its event",
        risk="the columns were taken for others than they are; nothing was handed on",
        remedy=f"{CHECK_LOG}, and report the table's definition",
    )


@dataclass(slots=True)
class Cells:
    """The cells of one column in some row images: offsets, lengths and NULLs."""

    data: ByteViews
    offsets: IntArray
    lengths: IntArray | None
    """None for a fixed width."""
    nulls: BoolArray | None
    """True where there is no value; the offset is then any readable one."""


class CellSide:
    """The before or after side of changes: the `chosen` row images; -1 is no row."""

    def __init__(self, data: ByteViews, images: Images, chosen: IntArray) -> None:
        self._views = data
        self._images = images
        self._missing: BoolArray | None = None
        missing = chosen < 0
        if missing.any():
            self._missing = missing
            chosen = np.where(missing, 0, chosen)
        self._chosen = chosen
        whole = len(chosen) == len(images) and self._missing is None
        self._all = whole and bool((chosen == np.arange(len(chosen))).all())

    def __len__(self) -> int:
        return len(self._chosen)

    def _pick(self, values: IntArray) -> IntArray:
        """Return the values of the chosen images."""
        return values if self._all else values[self._chosen]

    def columns(self) -> list[Cells]:
        """Return the cells of each column."""
        layout = self._images.layout
        nulls = self._images.nulls
        if nulls is not None and not self._all:
            nulls = nulls[:, self._chosen]
        cells: list[Cells] = []
        for run, (first, behind, prefix) in enumerate(layout.runs):
            start = self._pick(self._images.run_starts[run])
            behind_run = None
            if run + 1 < len(layout.runs):
                behind_run = self._pick(self._images.run_starts[run + 1])
            cells.extend(self._run_cells(start, behind_run, nulls, (first, behind, prefix)))
        return cells

    def _run_cells(
        self,
        offset: IntArray,
        behind_run: IntArray | None,
        nulls: BoolArray | None,
        run: tuple[int, int, int],
    ) -> list[Cells]:
        """Return the cells of one run of columns."""
        first, behind, prefix = run
        widths = self._images.layout.widths
        cells: list[Cells] = []
        last = behind + (prefix > 0)
        for column in range(first, last):
            absent = None
            if nulls is not None and nulls[column].any():
                absent = nulls[column]
            if column < behind:
                readable = offset if absent is None else np.where(absent, 0, offset)
                cells.append(Cells(self._views, readable, None, self._without(absent)))
                width = int(widths[column])
                offset = offset + (width if absent is None else width * ~absent)
            else:
                cells.append(self._variable(offset, behind_run, prefix, absent))
        return cells

    def _variable(
        self, offset: IntArray, behind: IntArray | None, prefix: int, absent: BoolArray | None
    ) -> Cells:
        """Return the cells of a variable-length column, each ending where the next run begins."""
        if absent is not None:
            offset = np.where(absent, 0, offset)
        offsets = offset + prefix
        lengths = self._views.little(offset, prefix) if behind is None else behind - offsets
        if absent is not None:
            lengths = np.where(absent, 0, lengths)
            offsets = np.where(absent, 0, offsets)
        return Cells(self._views, offsets, lengths, self._without(absent))

    def _without(self, absent: BoolArray | None) -> BoolArray | None:
        """Return a mask of the cells that are NULL or in no row."""
        if self._missing is None:
            return absent
        return self._missing if absent is None else self._missing | absent
