"""The rows of one split as they were read: the server's own bytes, decoded when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class TextRows:
    """The rows of a split as the server sent them, with no change of the log applied."""

    chunks: tuple[TextChunk, ...]
    decoder: TextDecoder

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return self.decoder.schema

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Return the memory that the rows' bytes take."""
        return sum(chunk.bytes for chunk in self.chunks)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows decoded to Arrow."""
        for chunk in self.chunks:
            yield self.decoder.to_arrow(chunk)

    def drained(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows decoded, and release each chunk of bytes; no rows are left afterwards."""
        left = list(reversed(self.chunks))
        self.chunks = ()
        while left:
            yield self.decoder.to_arrow(left.pop())

    def native_chunks(self) -> tuple[TextChunk, ...] | None:
        """Return the rows in the bytes that the server sent."""
        return self.chunks

    def batch_of(self, chunk: TextChunk) -> pa.RecordBatch:
        """Return one chunk's rows decoded to Arrow."""
        return self.decoder.to_arrow(chunk)
