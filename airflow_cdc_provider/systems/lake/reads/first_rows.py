"""Where in the order of a table's changes something begins: at a time, or at a place of the log.

Times and places become an `_order`, that of the first row at or behind them. Rows that a table
gets later have greater ones, so what was found once is found again. Columns of it are read on the
driver's machine, of the parts of files that may have such a row.

Only changes of the source say what time it is in the log. A row that was read has the time of the
reading, which the log may reach much later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, texts_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import (
    CHANGE_COLUMNS,
    COMMITTED_AT,
    OP,
    ORDER,
    POSITION,
    SNAPSHOT_ORDER,
)
from airflow_cdc_provider.systems.lake.reads.opened_files import opened_file
from airflow_cdc_provider.systems.lake.reads.table_files import RawFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_CHANGES = ["c", "u", "d"]
_MOMENT = pa.timestamp("us", "UTC")
_PARTS = r"^(?P<base>\S+)\.(?P<number>[0-9]+):(?P<offset>[0-9]+)$"


class Mark(Protocol):
    """What tells the rows at or behind something."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it looks at; those of the first one may have bounds."""

    @property
    def least(self) -> int:
        """The smallest `_order` of rows that it looks at."""

    def may_be_in(self, low: Any, high: Any) -> bool:
        """Tell whether a row may be at or behind it, by the bounds of its column."""

    def rows(self, rows: pa.Table, orders: IntArray) -> BoolArray:
        """Tell which rows are at or behind it."""


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A time: changes were committed then or later, and not in a time that is still to come."""

    us: int
    latest_us: int
    """Later ones do not count: a session of MariaDB may give its changes any time."""
    columns: Sequence[str] = (COMMITTED_AT, OP)
    least: int = 0

    def may_be_in(self, low: Any, high: Any) -> bool:  # noqa: ARG002 - of the port
        """Tell whether a row may be of this time or later."""
        return bool(pa.scalar(high, _MOMENT).value >= self.us)

    def rows(self, rows: pa.Table, orders: IntArray) -> BoolArray:  # noqa: ARG002 - of the port
        """Tell which changes are of this time or later; those without one are not."""
        times = _microseconds(rows.column(COMMITTED_AT)).combine_chunks()
        is_change = pc.is_in(rows.column(OP).combine_chunks(), value_set=texts_of(_CHANGES))
        is_late_enough = pc.greater_equal(times, pa.scalar(self.us, pa.int64()))
        is_over = pc.less_equal(times, pa.scalar(self.latest_us, pa.int64()))
        return _true(is_change) & _true(is_late_enough) & _true(is_over)


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows that were read, before the first change of a table."""

    first: int
    """The smallest `_order` of them."""
    earliest_us: int
    latest_us: int


@dataclass(frozen=True, slots=True)
class PlaceMark:
    """A place of the source's log: the transactions of rows begin there or behind it."""

    place: LogPlace
    where: str
    """For errors."""
    columns: Sequence[str] = (POSITION,)
    least: int = 0

    def may_be_in(self, low: Any, high: Any) -> bool:
        """Tell whether a row may be there; bounds are texts, which sort within one file."""
        try:
            ends = [LogPlace.parse(low), LogPlace.parse(high)]
        except ValueError:
            return True
        is_sorted = len(low.partition(":")[0]) == len(high.partition(":")[0])
        is_same = all(each.base == self.place.base for each in ends)
        return not (is_sorted and is_same and ends[1].number < self.place.number)

    def rows(self, rows: pa.Table, orders: IntArray) -> BoolArray:
        """Tell which rows are there or behind it; refuse places of several servers."""
        parts = pc.extract_regex(rows.column(POSITION).combine_chunks(), _PARTS)
        is_same = pc.equal(parts.field("base"), self.place.base)
        looked_at = orders >= self.least
        if not _true(is_same)[looked_at].all():
            raise self._several_servers()
        numbers = _numbers(parts.field("number"))
        offsets = _numbers(parts.field("offset"))
        self._require_growth(numbers[looked_at], offsets[looked_at], orders[looked_at])
        number, offset = self.place.order
        behind: BoolArray = (numbers > number) | ((numbers == number) & (offsets >= offset))
        return behind

    def _require_growth(self, numbers: IntArray, offsets: IntArray, orders: IntArray) -> None:
        """Refuse places that go back while the order grows: another server's log begins anew."""
        sorting = np.argsort(orders, kind="stable")
        numbers, offsets = numbers[sorting], offsets[sorting]
        file, place = np.diff(numbers), np.diff(offsets)
        if ((file < 0) | ((file == 0) & (place < 0))).any():
            raise self._several_servers()

    def _several_servers(self) -> RefusedError:
        """Return the error for rows whose places are not of one log."""
        return several_servers(self.where)


def several_servers(where: str) -> RefusedError:
    """Return the error for a log in which a place is not one."""
    return RefusedError(
        "the log was read from several servers, or without files, so a file and an offset are no "
        "one place",
        where=where,
        risk=NOTHING_STARTED,
        remedy="give versions or times instead",
    )


def first_order(store: ObjectStore, files: Sequence[RawFile], mark: Mark) -> int | None:
    """Return the smallest `_order` of the rows at or behind a mark; None if there is none."""
    found: int | None = None
    for each in sorted(files, key=lambda file: (file.low is not None, file.low)):
        if each.high is not None and each.high < mark.least:
            continue
        if found is not None and each.low is not None and each.low >= found:
            break
        for orders, rows in _groups(store, each, mark, found):
            chosen = orders[mark.rows(rows, orders) & (orders >= mark.least)]
            if chosen.size:
                least = int(chosen.min())
                found = least if found is None else min(found, least)
    return found


def rows_read(store: ObjectStore, files: Sequence[RawFile], before: int) -> RowsRead | None:
    """Return what is known of the rows before an `_order`, none of which is a change.

    None if there are none, or if they do not say when they were read.
    """
    firsts: list[int] = []
    times: list[int] = []
    for each in files:
        if each.low is not None and each.low >= before:
            continue
        with opened_file(store, each.name) as file:
            for group in range(file.num_row_groups):
                rows = _columns_of(file, group, each, [ORDER, COMMITTED_AT])
                rows = rows.filter(pc.less(rows.column(ORDER), before))
                moments = _microseconds(rows.column(COMMITTED_AT)).drop_null()
                if rows.num_rows and len(moments):
                    firsts.append(pc.min(rows.column(ORDER)).as_py())
                    times += pc.min_max(moments).as_py().values()
    return RowsRead(min(firsts), min(times), max(times)) if times else None


def first_is_void(store: ObjectStore, files: Sequence[RawFile], first: int) -> bool:
    """Tell whether a table's first row says that all before it is void."""
    for each in files:
        if each.low != first:
            continue
        with opened_file(store, each.name) as file:
            for group in range(file.num_row_groups):
                rows = _columns_of(file, group, each, [ORDER, OP])
                there = rows.filter(pc.equal(rows.column(ORDER), first))
                if there.num_rows:
                    return bool(pc.any(pc.equal(there.column(OP), "t")).as_py())
    return False


def last_read_place(store: ObjectStore, files: Sequence[RawFile]) -> LogPlace | None:
    """Return the last place up to which a snapshot's rows were read; None if that is not known."""
    texts: set[str | None] = set()
    for each in files:
        if each.low is not None and each.low > SNAPSHOT_ORDER:
            continue
        with opened_file(store, each.name) as file:
            for group in range(file.num_row_groups):
                rows = _columns_of(file, group, each, [ORDER, POSITION])
                rows = rows.filter(pc.equal(rows.column(ORDER), SNAPSHOT_ORDER))
                texts |= {*pc.unique(rows.column(POSITION)).to_pylist()}  # one of each split
    try:
        places = [LogPlace.parse(text or "") for text in texts]
    except ValueError:
        return None
    return max(places, key=lambda place: place.order) if places else None


def _groups(
    store: ObjectStore, each: RawFile, mark: Mark, found: int | None
) -> Iterator[tuple[IntArray, pa.Table]]:
    """Yield the order, and the mark's columns, of the groups that may have an earlier row."""
    with opened_file(store, each.name) as file:
        for group in range(file.num_row_groups):
            orders = bounds_of_group(file, group, ORDER)
            if orders is not None and (
                orders[1] < mark.least or (found is not None and orders[0] >= found)
            ):
                continue
            bounds = bounds_of_group(file, group, mark.columns[0])
            if bounds is not None and not mark.may_be_in(*bounds):
                continue
            rows = _columns_of(file, group, each, [ORDER, *mark.columns])
            numbers = as_numpy(rows.column(ORDER).combine_chunks().cast(pa.int64()))
            yield numbers, rows


def _columns_of(file: pq.ParquetFile, group: int, each: RawFile, names: Sequence[str]) -> pa.Table:
    """Read columns of a group's rows that have an order; one of partitions may not be there."""
    there = {*file.schema_arrow.names}
    rows = file.read_row_group(group, [name for name in names if name in there])
    for name in names:
        if name not in there:
            value = pa.scalar(each.constants.get(name), CHANGE_COLUMNS[name])
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    for place, field in enumerate(rows.schema):
        if field.name in {OP, POSITION}:  # before rows are chosen: texts in views cannot be
            rows = rows.set_column(place, field.name, _texts(rows.column(place)))
    return rows.filter(pc.is_valid(rows.column(ORDER))).combine_chunks()


def bounds_of_group(file: pq.ParquetFile, group: int, column: str) -> tuple[Any, Any] | None:
    """Return the smallest and the greatest value of a column in a group, if it says them."""
    place = file.schema_arrow.get_field_index(column)
    metadata = file.metadata.row_group(group)
    for number in range(metadata.num_columns):
        found = metadata.column(number)
        if place < 0 or found.path_in_schema != column:
            continue
        told = found.statistics
        return (told.min, told.max) if told is not None and told.has_min_max else None
    return None


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as plain ones, however they are stored."""
    return values.cast(pa.string())


def _microseconds(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as whole numbers."""
    return moments.cast(_MOMENT).cast(pa.int64())


def _numbers(texts: pa.Array) -> IntArray:
    """Return texts of digits as numbers; none is 0."""
    numbers: IntArray = as_numpy(pc.fill_null(texts.cast(pa.int64()), 0))
    return numbers


def _true(mask: pa.Array) -> BoolArray:
    """Return a mask in which NULL is False."""
    found: BoolArray = as_numpy(pc.fill_null(mask, False))  # noqa: FBT003 - the library's
    return found
