"""A table's rows in the text protocol become record batches of the value model.

decoder = TextDecoder(schema)
SELECT {decoder.select_list} FROM ...          # after the SESSION_STATEMENTS
framer = decoder.framer()                      # fed from the socket, gives TextChunks
batch = decoder.to_arrow(chunk)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from airflow_cdc_provider.core.errors import ValueRefusedError
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_schema
from airflow_cdc_provider.systems.mysql.wire.text_protocol import (
    CHUNK_BYTES,
    Field,
    RowFramer,
    TextChunk,
)
from airflow_cdc_provider.systems.mysql.wire.text_values import (
    FieldRefusedError,
    decode_field,
    select_expression,
)


class TextDecoder:
    """Decodes chunks of one table's rows from the text protocol; the copied columns by default."""

    def __init__(
        self,
        schema: TableSchema,
        columns: Sequence[Column] | None = None,
        zero_dates: ZeroDates = ZeroDates.FAIL,
    ) -> None:
        self.columns = tuple(schema.copied_columns if columns is None else columns)
        self.schema = arrow_schema(self.columns, zero_dates)
        """The record batches' schema."""
        self.nulled: Counter[str] = Counter()
        """Zero dates that became NULL, by column; only under `ZeroDates.NULL`."""
        self._table = schema
        self._zero_dates = zero_dates

    @property
    def select_list(self) -> str:
        """Return the SELECT list whose result the decoder decodes."""
        return ", ".join(select_expression(column) for column in self.columns)

    def framer(self, chunk_bytes: int = CHUNK_BYTES) -> RowFramer:
        """Return a framer for one result of the SELECT list."""
        return RowFramer(len(self.columns), chunk_bytes=chunk_bytes)

    def to_arrow(self, chunk: TextChunk) -> pa.RecordBatch:
        """Decode a chunk of rows; a value that does not fit its column is refused with its key."""
        fields = chunk.fields()
        arrays = []
        for column, located in zip(self.columns, fields, strict=True):
            try:
                decoded = decode_field(chunk.buffer, located, column.type, self._policy(column))
            except FieldRefusedError as error:
                raise self._refused(chunk, fields, column, error) from error
            if decoded.nulled:
                self.nulled[column.name] += decoded.nulled
            arrays.append(decoded.array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _policy(self, column: Column) -> ZeroDates:
        """Return a column's policy for zero dates: in a key they never become NULL."""
        if self._zero_dates is ZeroDates.NULL and column.name in self._table.primary_key:
            return ZeroDates.FAIL
        return self._zero_dates

    def _refused(
        self, chunk: TextChunk, fields: Sequence[Field], column: Column, error: FieldRefusedError
    ) -> ValueRefusedError:
        """Return the error for a value that does not fit its column, with its key."""
        names = [each.name for each in self.columns]
        key = [
            f"{name}={_shown(chunk, fields[names.index(name)], error.row)}"
            for name in self._table.primary_key
            if name in names
        ]
        return ValueRefusedError(
            error.reason,
            where=f"table {self._table.table}, column {column.name}, key {', '.join(key) or '-'}",
            risk="nothing was written; the value would be lost or changed",
            remedy=(
                "correct the value at the source and run again; or, of zero and partial dates, set "
                "source.zero_dates to null or text and `reset` the pipeline"
            ),
        )


def _shown(chunk: TextChunk, located: Field, row: int) -> str:
    """Return a field's text for an error message."""
    start = int(located.start[row])
    return repr(bytes(chunk.buffer[start : start + min(int(located.length[row]), 80)]))[1:]
