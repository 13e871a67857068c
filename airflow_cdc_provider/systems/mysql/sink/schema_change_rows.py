"""Changes of definitions in the ledger: written before anything is done at the sink.

DDL commits by itself, so no transaction holds it together with the stream's position. The row
says what is being done, and each step may be done twice: whoever owns the pipeline next brings it
to its end. Rows stay afterwards, as the history of the table's definitions.
"""

from __future__ import annotations

import json

from airflow_cdc_provider.core.codec import dumps
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.schema_codec import change_from_json, change_to_json
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_OPEN, _DONE = "open", "done"


def open_changes(session: SinkSession, name: PipelineName) -> tuple[SchemaChange, ...]:
    """Return the schema changes that were begun and not ended, oldest first."""
    rows = session.rows(
        f"SELECT body FROM {LEDGER}.schema_change WHERE {pipeline_is(name)} AND state = '{_OPEN}' "
        "ORDER BY number"
    )
    return tuple(change_from_json(json.loads(row[0])) for row in rows)


def begin(session: SinkSession, owner: Owner, change: SchemaChange) -> None:
    """Store a schema change as begun."""
    name = literal(str(owner.pipeline))
    values = (
        name,
        f"(SELECT COALESCE(MAX(number), 0) + 1 FROM {LEDGER}.schema_change AS known "
        f"WHERE {pipeline_is(owner.pipeline)})",
        literal(str(change.table)),
        f"'{_OPEN}'",
        str(owner.generation),
        literal(dumps(change_to_json(change))),
        NOW_US,
    )
    session.execute(
        f"INSERT INTO {LEDGER}.schema_change "
        f"(pipeline, number, table_name, state, generation, body, begun_us) "
        f"SELECT {', '.join(values)}"
    )


def end(session: SinkSession, owner: Owner, table: TableId) -> None:
    """Store the open schema change of a table as done."""
    session.execute(
        f"UPDATE {LEDGER}.schema_change SET state = '{_DONE}' WHERE {pipeline_is(owner.pipeline)} "
        f"AND table_name = {literal(str(table))} AND state = '{_OPEN}'"
    )
