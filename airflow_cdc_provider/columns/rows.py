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
    """Some rows in the source's own bytes; only who speaks its protocol looks inside."""

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
        """Bytes held in memory."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches."""

    def native_chunks(self) -> tuple[NativeChunk, ...] | None:
        """Return the untouched bytes of the source, None if rows were changed since.

        All rows, in the order of `batches`.
        """


@runtime_checkable
class DecodesChunks(Protocol):
    """Rows that can decode one of their chunks without the others."""

    def batch_of(self, chunk: NativeChunk) -> pa.RecordBatch:
        """Return the rows of one of `native_chunks()` as a record batch."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows that are Arrow already."""

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
        return None
