"""How much of each table was changed, counted in the transaction of the rows themselves.

Of the writers of a stream the first one counts, for each sees all of a batch. It may be a batch
ahead of the others: what it counted holds where the stream's position covers the row's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_counts import RowCounts
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import position_literal

_COUNTED = "changes", "inserts", "updates", "deletes"
_ADDED = ", ".join(f"{each} = {each} + VALUES({each})" for each in _COUNTED)


def count_changes(
    session: SinkSession, owner: Owner, changes: Mapping[TableId, int], position: LogPosition
) -> None:
    """Add numbers of changes by table to the ledger's counts, in the transaction of the rows."""
    if changes:
        rows = [
            f"{literal(str(table))}, {count}, 0, 0, 0, {NOW_US if count else 0}"
            for table, count in sorted(changes.items())
        ]
        session.execute(_counted_sql(owner, rows, position))


def counted_rows_sql(
    owner: Owner, rows: Mapping[TableId, RowCounts], position: LogPosition, committed_us: int
) -> str:
    """Return the statement that adds the stream's inserts, updates and deletes to the counts."""
    counted = [
        f"{literal(str(table))}, {each.total}, "
        f"{each.inserts}, {each.updates}, {each.deletes}, {committed_us}"
        for table, each in sorted(rows.items())
    ]
    return _counted_sql(owner, counted, position)


def _counted_sql(owner: Owner, counted: Sequence[str], position: LogPosition) -> str:
    """Return the upsert that adds counts of changes by table to the ledger."""
    pipeline, at = literal(str(owner.pipeline)), position_literal(position)
    rows = ", ".join(f"({pipeline}, {at}, {each})" for each in counted)
    return (
        f"INSERT INTO {LEDGER}.changed_table "
        f"(pipeline, position, table_name, {', '.join(_COUNTED)}, changed_us) VALUES {rows} "
        f"ON DUPLICATE KEY UPDATE {_ADDED}, position = VALUES(position), "
        "changed_us = GREATEST(changed_us, VALUES(changed_us))"
    )


def read_changes(
    session: SinkSession, owner: Owner, *, handed_off: bool
) -> dict[TableId, TableChangeCount]:
    """Return the ledger's counts of changes of each table.

    `handed_off` adds tables that have no change since their hand-off.
    """
    which = pipeline_is(owner.pipeline) + ("" if handed_off else " AND changes > 0")
    rows = session.rows(
        f"SELECT table_name, position, changed_us, {', '.join(_COUNTED)} "
        f"FROM {LEDGER}.changed_table WHERE {which}"
    )
    return {
        TableId.parse(table): TableChangeCount(
            int(changes),
            position_from_json(json.loads(position)),
            RowCounts(*map(int, kinds)),
            int(changed_us),
        )
        for table, position, changed_us, changes, *kinds in rows
    }
