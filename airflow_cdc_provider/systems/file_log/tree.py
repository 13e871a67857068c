"""Values of an envelope before they become JSON or Parquet.

An envelope is nested and most of it is the same in every row, so neither Arrow structs nor text
are a good form to build it in. Here a value is a column, a constant, or named members; both
writers walk this tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, mask_of, numbers_of, texts_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray

Plain = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same in every row of an envelope: text, number or NULL."""

    value: Plain
    type: pa.DataType

    def array(self, count: int) -> pa.Array:
        """Return an array with the value `count` times."""
        if self.value is None:
            return pa.nulls(count, self.type)
        one = texts_of([self.value]) if isinstance(self.value, str) else numbers_of([self.value])
        return one.take(numbers_of(np.zeros(count, np.int64))).cast(self.type)


@dataclass(frozen=True, slots=True)
class Members:
    """Named values, a JSON object in each row; null where `absent` is set."""

    values: tuple[tuple[str, Value], ...]
    absent: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class Many:
    """A list in each row: the `values` from one offset to the next."""

    offsets: IntArray
    values: Value
    absent: BoolArray | None = None

    @property
    def count(self) -> int:
        """Return the number of values in all rows' lists."""
        return int(self.offsets[-1])


Value: TypeAlias = "pa.Array | Constant | Members | Many"


def text(value: str | None) -> Constant:
    """Return a constant text value."""
    return Constant(value, pa.string())


def number(value: int | None) -> Constant:
    """Return a constant 64-bit number."""
    return Constant(value, pa.int64())


def numbers(values: IntArray) -> pa.Array:
    """Return 64-bit numbers as a column."""
    return as_arrow(values, None, pa.int64())


def arrow_array(value: Value, count: int) -> pa.Array:
    """Return an envelope's value as one Arrow array; members become a struct."""
    if isinstance(value, Constant):
        return value.array(count)
    if isinstance(value, Members):
        arrays = [arrow_array(each, count) for _, each in value.values]
        fields = [
            pa.field(name, array.type)
            for (name, _), array in zip(value.values, arrays, strict=True)
        ]
        mask = None if value.absent is None else mask_of(value.absent)
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
    if isinstance(value, Many):
        mask = None if value.absent is None else mask_of(value.absent)
        offsets = as_arrow(value.offsets.astype(np.int32), None, pa.int32())
        return pa.ListArray.from_arrays(offsets, arrow_array(value.values, value.count), mask=mask)
    return value.dictionary_decode() if pa.types.is_dictionary(value.type) else value
