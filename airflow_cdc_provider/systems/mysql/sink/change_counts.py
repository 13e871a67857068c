"""How much of each table was changed, counted in the transaction of the rows themselves.

Of the writers of a stream the first one counts, for each sees all of a batch. It may be a batch
ahead of the others: what it counted holds where the stream's position covers the row's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from airflow_cdc_provider.columns.sink_port import Owner, TableChangeCount
from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import position_literal


def count_changes(
    session: SinkSession, owner: Owner, changes: Mapping[TableId, int], position: LogPosition
) -> None:
    """Add to what is counted, in the transaction that makes the changes."""
    if changes:
        session.execute(counted_sql(owner, changes, position))


def counted_sql(owner: Owner, changes: Mapping[TableId, int], position: LogPosition) -> str:
    """Return the statement that adds to what is counted."""
    pipeline, at = literal(str(owner.pipeline)), position_literal(position)
    rows = ", ".join(
        f"({pipeline}, {literal(str(table))}, {count}, {at})"
        for table, count in sorted(changes.items())
    )
    return (
        f"INSERT INTO {LEDGER}.changed_table (pipeline, table_name, changes, position) "
        f"VALUES {rows} ON DUPLICATE KEY UPDATE changes = changes + VALUES(changes), "
        "position = VALUES(position)"
    )


def read_changes(session: SinkSession, owner: Owner) -> dict[TableId, TableChangeCount]:
    """Return what is counted."""
    rows = session.rows(
        f"SELECT table_name, changes, position FROM {LEDGER}.changed_table "
        f"WHERE {pipeline_is(owner.pipeline)} AND changes > 0"
    )
    return {
        TableId.parse(table): TableChangeCount(
            int(changes), position_from_json(json.loads(position))
        )
        for table, changes, position in rows
    }


def read_last_changes(session: SinkSession, owner: Owner) -> dict[TableId, LogPosition]:
    """Return where each table was changed last, or handed off, of those that are counted."""
    rows = session.rows(
        f"SELECT table_name, position FROM {LEDGER}.changed_table "
        f"WHERE {pipeline_is(owner.pipeline)}"
    )
    return {TableId.parse(table): position_from_json(json.loads(at)) for table, at in rows}
