"""The transactions of a batch as columns, for the rows of a log's files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import numbers_of, texts_of
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.columns.transactions import transactions_of
from airflow_cdc_provider.core.positions import TransactionPoint
from airflow_cdc_provider.systems.file_log.tree import Value, numbers

_NS_OF_US = 1000
_US_OF_MS = 1000


class Transactions:
    """The transactions of a batch as columns, for envelopes to point to.

    A transaction's facts are the same in each of its rows, so they are kept once, and rows point
    to them.
    """

    def __init__(self, columns: Sequence[TransactionPoint], system: str) -> None:
        points = tuple(columns)  # they may make a record when asked: each is asked for often
        self._points, self._system = points, system
        self.committed_us = np.array([point.committed_us for point in points], np.int64)
        self._ids = texts_of([point.name for point in points])
        self._facts = {
            "ts_ms": numbers(self.committed_us // _US_OF_MS),
            "ts_us": numbers(self.committed_us),
            "ts_ns": numbers(self.committed_us * _NS_OF_US),
            **transactions_of(system).facts_of(points),
        }

    def stamps(self, wanted: IntArray) -> pa.RecordBatch:
        """Return `position`, `committed_at` and `server` of the transactions at these indexes."""
        stamps: pa.RecordBatch = transactions_of(self._system).stamps_of(self._points)
        return stamps.take(numbers_of(wanted))

    def ids(self, wanted: IntArray) -> pa.Array:
        """Return the ids of the transactions at these indexes."""
        return pointing(wanted, self._ids)

    def source(self, wanted: IntArray) -> dict[str, Value]:
        """Return the `source` members that are the same for a transaction's changes."""
        return {name: pointing(wanted, values) for name, values in self._facts.items()}


def pointing(wanted: IntArray, values: pa.Array) -> pa.Array:
    """Return a dictionary array of values by index."""
    return pa.DictionaryArray.from_arrays(numbers_of(wanted), values)
