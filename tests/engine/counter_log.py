"""A log of another system, as small as one can be: its transactions are counted from 1.

The engine gets all it knows of positions from here, so what it needs of one is seen here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of, texts_of
from airflow_cdc_provider.columns.moments import moments_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.positions import Fact, LogPosition, TransactionPoint
from airflow_cdc_provider.systems.kinds import SystemKind

COUNTER = SystemKind(name="counter", module="", positions=__name__, transactions=__name__)


@dataclass(frozen=True, slots=True)
class CounterPoint:
    """The transaction of that number."""

    number: int
    committed_us: int = 0

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def sort_text(self) -> str:
        return f"{self.number:010d}"

    @property
    def where(self) -> str:
        return f"transaction {self.number}"

    def is_called(self, text: str) -> bool:
        return text == self.name


@dataclass(frozen=True, slots=True)
class CounterPosition:
    """Everything up to that number."""

    number: int
    server: str = "the counter"
    system: ClassVar[str] = "counter"

    @property
    def short(self) -> str:
        return str(self.number)

    @property
    def exact(self) -> tuple[str, ...]:
        return (f"{self.number:010d}",)

    def contains(self, point: TransactionPoint) -> bool:
        return int(point.name) <= self.number

    def covers(self, other: LogPosition) -> bool:
        return _number(other) <= self.number

    def reaches(self, end: LogPosition) -> bool:
        return self.covers(end)

    def placed_by(self, passed: Iterable[LogPosition]) -> LogPosition:
        return self

    def may_be_purged(self, end: LogPosition) -> bool:
        return not self.covers(end)

    def meet(self, other: LogPosition) -> LogPosition:
        return CounterPosition(min(self.number, _number(other)), self.server)

    def join(self, other: LogPosition) -> LogPosition:
        return CounterPosition(max(self.number, _number(other)), self.server)

    def before(
        self, point: TransactionPoint, passed: Iterable[TransactionPoint], end: LogPosition
    ) -> LogPosition:
        return CounterPosition(int(point.name) - 1)

    def bare(self) -> LogPosition:
        return self

    def to_json(self) -> dict[str, Any]:
        return {"system": self.system, "number": self.number}

    def facts(self) -> Mapping[str, Fact]:
        return {"pos": self.number}


def read_position(form: Any) -> CounterPosition:
    """Read a stored position."""
    return CounterPosition(form["number"])


def _number(position: LogPosition) -> int:
    if not isinstance(position, CounterPosition):
        raise IncomparablePositionsError(f"{position} is no number")
    return position.number


class CounterIndex:
    """The numbers of a batch's transactions."""

    def __init__(self, points: Sequence[TransactionPoint]) -> None:
        self._numbers = np.array([int(point.name) for point in points], np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def within(self, position: LogPosition, chosen: IntArray) -> BoolArray:
        passed: BoolArray = self._numbers[chosen] <= _number(position)
        return passed


index_of = CounterIndex


def to_columns(points: Sequence[TransactionPoint]) -> pa.RecordBatch:
    """Write transactions, a row each."""
    numbers = numbers_of([int(point.name) for point in points])
    times = numbers_of([point.committed_us for point in points])
    return pa.RecordBatch.from_arrays([numbers, times], ["number", "committed_us"])


def from_columns(columns: pa.RecordBatch) -> Sequence[TransactionPoint]:
    """Read what `to_columns` wrote."""
    numbers, times = (as_numpy(column).tolist() for column in columns.columns)
    return tuple(CounterPoint(*each) for each in zip(numbers, times, strict=True))


def stamps_of(points: Sequence[TransactionPoint]) -> pa.RecordBatch:
    """Return what metadata columns say of transactions."""
    arrays = {
        "position": texts_of([point.name for point in points]),
        "committed_at": moments_of(np.array([point.committed_us for point in points], np.int64)),
        "server": texts_of(["the counter"] * len(points)),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def facts_of(points: Sequence[TransactionPoint]) -> Mapping[str, pa.Array]:
    """Return what envelopes tell of transactions."""
    return {"pos": numbers_of([int(point.name) for point in points])}
