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
    """The transactions of a batch, indexed to compare many with a position at once."""

    def __len__(self) -> int: ...

    def within(self, position: LogPosition, chosen: IntArray) -> BoolArray:
        """Return a mask of the chosen transactions that are at or before a position."""


class TransactionColumns(Protocol):
    """Converts a system's transactions to columns and back."""

    def index_of(self, points: Sequence[TransactionPoint]) -> TransactionIndex:
        """Return an index of the transactions."""

    def to_columns(self, points: Sequence[TransactionPoint]) -> pa.RecordBatch:
        """Write the transactions as a record batch, one row each."""

    def from_columns(self, columns: pa.RecordBatch) -> Sequence[TransactionPoint]:
        """Read the transactions that `to_columns` wrote."""

    def facts_of(self, points: Sequence[TransactionPoint]) -> Mapping[str, pa.Array]:
        """Return the transactions' fields for a Debezium envelope, by Debezium's names."""

    def stamps_of(self, points: Sequence[TransactionPoint]) -> pa.RecordBatch:
        """Return what metadata columns say of the transactions, a row each.

        `position`, the text of the place where it begins, `committed_at`, the commit's moment in
        UTC or NULL, and `server`, the one whose log it is.
        """


def transactions_of(system: str) -> TransactionColumns:
    """Return the converter of a system's transactions to columns."""
    return cast(TransactionColumns, kinds().transactions_of(system))
