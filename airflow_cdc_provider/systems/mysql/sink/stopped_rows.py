"""Tables that the stream leaves alone, in the ledger: one row each, with a position of its own.

The row is made in the transaction that takes the table out of the stream, and goes in the one that
brings it back. In between it is what a writer slot's row is to the stream: whoever brings the table
further writes its rows and its position in one transaction.
"""

from __future__ import annotations

import json

from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import position_literal
from airflow_cdc_provider.systems.mysql.sink.stored_splits import split_named, store_split


def stopped_tables(
    session: SinkSession, owner: Owner, *, lock: str = ""
) -> tuple[StoppedTable, ...]:
    """Return the tables that were taken out of the stream, each with its own stream split.

    `lock` is a locking clause.
    """
    rows = session.rows(
        f"SELECT position, split, error, since_us FROM {LEDGER}.stopped_table "
        f"WHERE {pipeline_is(owner.pipeline)} ORDER BY table_name {lock}"
    )
    found = []
    for position, split, error, since_us in rows:
        stream = split_named(session, owner, split).passed(position_from_json(json.loads(position)))
        found.append(StoppedTable(stream, StoredError(error), int(since_us)))
    return tuple(found)


def is_table(owner: Owner, table: TableId) -> str:
    """Return the condition that picks a table's row in the pipeline's ledger."""
    return f"{pipeline_is(owner.pipeline)} AND table_name = {literal(str(table))}"


def stop(session: SinkSession, owner: Owner, stream: StreamSplit, error: StoredError) -> None:
    """Store a table as stopped, at the position of a stream split of its own."""
    values = (
        literal(str(owner.pipeline)),
        literal(str(stream.tables[0].table)),
        str(owner.generation),
        position_literal(stream.start),
        store_split(session, owner, stream),
        literal(error.text),
        NOW_US,
        f"(SELECT knew FROM {LEDGER}.stream WHERE {pipeline_is(owner.pipeline)} AND slot = 0)",
    )
    session.execute(
        f"INSERT INTO {LEDGER}.stopped_table (pipeline, table_name, generation, position, split, "
        f"error, since_us, knew) VALUES ({', '.join(values)})"
    )


def say(session: SinkSession, owner: Owner, table: TableId, error: StoredError) -> None:
    """Store the error that keeps a stopped table out of the stream."""
    session.execute(
        f"UPDATE {LEDGER}.stopped_table SET error = {literal(error.text)} "
        f"WHERE {is_table(owner, table)}"
    )


def move(session: SinkSession, owner: Owner, stream: StreamSplit) -> None:
    """Move a stopped table to the position of another stream split of its own."""
    session.execute(
        f"UPDATE {LEDGER}.stopped_table SET position = {position_literal(stream.start)}, "
        f"split = {store_split(session, owner, stream)} "
        f"WHERE {is_table(owner, stream.tables[0].table)}"
    )


def forget(session: SinkSession, owner: Owner, table: TableId) -> None:
    """Delete a stopped table from the ledger: it returns to the stream, or leaves the pipeline."""
    session.execute(f"DELETE FROM {LEDGER}.stopped_table WHERE {is_table(owner, table)}")
