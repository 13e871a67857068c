"""The transactions of a batch as columns, which only their own system can make.

One transaction's place in the log is a record (`TransactionPoint`); of thousands each would cost
more than the rows. So the system keeps and compares them as columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.kinds import kinds
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint

if TYPE_CHECKING:
    import pyarrow as pa


class TransactionIndex(Protocol):
    """The transactions of a batch, made ready once; `LogPosition.contains` for many."""

    def __len__(self) -> int: ...

    def within(self, position: LogPosition, chosen: IntArray) -> BoolArray:
        """Tell which of the chosen transactions lie at or before a position."""


class TransactionColumns(Protocol):
    """What a system makes of transactions in its log."""

    def index_of(self, points: Sequence[TransactionPoint]) -> TransactionIndex:
        """Return the transactions such that they can be asked for often."""

    def to_columns(self, points: Sequence[TransactionPoint]) -> pa.RecordBatch:
        """Write the transactions, a row each."""

    def from_columns(self, columns: pa.RecordBatch) -> Sequence[TransactionPoint]:
        """Read what `to_columns` wrote; equal to what was written."""

    def facts_of(self, points: Sequence[TransactionPoint]) -> Mapping[str, pa.Array]:
        """Return what envelopes tell of transactions, by the names that Debezium has for them."""


def transactions_of(system: str) -> TransactionColumns:
    """Return what makes columns of transactions in a system's log."""
    return cast(TransactionColumns, kinds().transactions_of(system))
