"""Select over a raw PyMySQL connection: packets go to the framer, never through a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pymysql.constants import COMMAND

from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import CHUNK_BYTES, RowFramer, TextChunk
from airflow_cdc_provider.systems.mysql.wire.text_values import SESSION_STATEMENTS
from tests.servers.given import SqlServer


def select_chunks(
    server: SqlServer, sql: str, chunk_bytes: int = CHUNK_BYTES, statements: Sequence[str] = ()
) -> list[TextChunk]:
    """Run one SELECT and return its rows as the server sent them."""
    connection: Any = server.connect(ssl_disabled=True)
    try:
        for statement in (*SESSION_STATEMENTS, *statements):
            connection.query(statement)
        connection._execute_command(COMMAND.COM_QUERY, sql)
        columns = connection._read_packet().read_length_encoded_integer()
        for _ in range(columns + 1):
            connection._read_packet()
        framer = RowFramer(columns, chunk_bytes=chunk_bytes)
        chunks = []
        while not framer.finished:
            received = connection._rfile.read1(min(chunk_bytes, 1 << 18))
            if not received:
                raise EOFError("the connection ended before the rows did")
            framer.feed(received)
            chunk = framer.chunk()
            if chunk is not None:
                chunks.append(chunk)
        return chunks
    finally:
        connection._force_close()


def select_rows(
    server: SqlServer,
    schema: TableSchema,
    *,
    zero_dates: ZeroDates = ZeroDates.FAIL,
    order_by: str = "",
    chunk_bytes: int = CHUNK_BYTES,
) -> pa.Table:
    """Read a whole table through the decoder."""
    decoder = TextDecoder(schema, zero_dates=zero_dates)
    sql = f"SELECT {decoder.select_list} FROM {quote_table(schema.table)}"
    if order_by:
        sql += f" ORDER BY {order_by}"
    batches = [decoder.to_arrow(chunk) for chunk in select_chunks(server, sql, chunk_bytes)]
    return pa.Table.from_batches(batches, schema=decoder.schema)
