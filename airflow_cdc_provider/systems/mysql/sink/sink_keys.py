"""Keys of the sink's rows, as columns: asked for by a condition, and kept as text in the ledger."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.dialect.sql import of_shard
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_result import chunks_of

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession


def keys_where(session: SinkSession, plan: TablePlan, condition: str, end: str) -> pa.Table:
    """Return the primary keys of a plan's rows that meet a condition, as a table.

    `end` is how the query goes on behind the condition.
    """
    decoder = _decoder(plan)
    own = of_shard(plan.shard, condition)
    sql = f"SELECT {decoder.select_list} FROM {quote_table(plan.sink_table)} WHERE {own} {end}"
    chunks = chunks_of(session.raw, sql, decoder) or ()
    return pa.Table.from_batches(map(decoder.to_arrow, chunks), decoder.schema)


def no_keys(plan: TablePlan) -> pa.Table:
    """Return an empty table with the columns of the primary key."""
    return _decoder(plan).schema.empty_table()


def keys_to_text(keys: pa.Table) -> str:
    """Encode keys as text: a base64 Arrow stream, whatever their types."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, keys.schema) as writer:
        writer.write_table(keys)
    return base64.b64encode(stream.getvalue()).decode()


def keys_from_text(text: str) -> pa.Table:
    """Decode keys from the text of `keys_to_text`."""
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()


def _decoder(plan: TablePlan) -> TextDecoder:
    """Return the decoder of a SELECT of the table's key columns."""
    return TextDecoder(replace(plan.target, columns=key_columns(plan.target)))
