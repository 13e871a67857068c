"""The rows of one finished split on their way to a sink.

Rows come as Arrow record batches of the copied columns (all but generated ones, in table
order). A sink that can take the source's own bytes may ask for them instead: they are
there as long as no change of the log had to be replayed onto the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


class NativeChunk(Protocol):
    """Some rows in the source's own wire format, for a sink that takes that format."""

    @property
    def rows(self) -> int:
        """The number of rows."""


class SplitRows(Protocol):
    """A split's rows, read whole, as they were at its H (or at its L without backfill)."""

    @property
    def schema(self) -> pa.Schema:
        """The value model's schema of the copied columns."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    @property
    def bytes(self) -> int:
        """The bytes that the rows take in memory."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches."""

    def native_chunks(self) -> tuple[NativeChunk, ...] | None:
        """Return the rows in the source's wire format, None if a backfill has changed them.

        All rows, in the order of `batches`.
        """


@runtime_checkable
class DecodesChunks(Protocol):
    """Rows of a split of which each chunk can be decoded alone."""

    def batch_of(self, chunk: NativeChunk) -> pa.RecordBatch:
        """Return the rows of one chunk of `native_chunks()` as a record batch."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """A split's rows that are already in Arrow."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.table.nbytes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()

    def native_chunks(self) -> tuple[NativeChunk, ...] | None:
        """Return None: the rows are not in the source's format."""
        return None
