"""Places in the source's log as Debezium's envelope has them: a file and a number of bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.positions import LogPosition

_PLACE = re.compile(r"(?P<base>\S+)\.(?P<number>[0-9]+):(?P<offset>[0-9]+)(?:\s.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place between two events in the log of one server."""

    base: str
    """The name of the log's files, without their number."""
    number: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> LogPlace:
        """Read `file:offset`, as in `bin.000003:4711`, whatever follows behind a blank."""
        found = _PLACE.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"expected a file and a number, as in bin.000003:4711, got {text!r}")
        return cls(found["base"], int(found["number"]), int(found["offset"]))

    @property
    def order(self) -> tuple[int, int]:
        """What places of one server sort by."""
        return self.number, self.offset

    def is_before_or_at(self, other: LogPlace) -> bool:
        """Tell whether this place is not behind another; False for those of other files."""
        return self.base == other.base and self.order <= other.order

    def __str__(self) -> str:
        return f"{self.base}.{self.number:06d}:{self.offset}"


def place_of(position: LogPosition) -> LogPlace | None:
    """Return a position's place, None if only its transactions are known."""
    facts = position.facts()
    try:
        return LogPlace.parse(f"{facts.get('file', '')}:{facts.get('pos', '')}")
    except ValueError:
        return None


class RowPlaces:
    """The places of rows, by the `file` and `pos` of their events."""

    def __init__(self, files: pa.Array, offsets: pa.Array) -> None:
        names = files.dictionary_encode()
        numbers = [int(str(name).rpartition(".")[2]) for name in names.dictionary.to_pylist()]
        self._numbers: IntArray = np.array(numbers, np.int64)[as_numpy(names.indices)]
        self._offsets: IntArray = as_numpy(pc.fill_null(offsets, 0))

    def at_least(self, place: LogPlace) -> BoolArray:
        """Tell which rows are at a place or behind it."""
        number, offset = place.order
        behind: BoolArray = (self._numbers > number) | (
            (self._numbers == number) & (self._offsets >= offset)
        )
        return behind
