"""The ledger's rows of conflicts: written with what was kept, read for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_cdc_provider.core.conflicts import (
    Conflict,
    ConflictsOfTable,
    NotedConflict,
    RowChange,
    Values,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_ROWS_A_STATEMENT = 20
_ROW = "SHA2(row_key, 256)"
"""Of long texts servers may look at the beginning alone where they group."""
_COLUMNS = (
    "pipeline, table_name, kept, row_key, source_change, sink_change, source_position, "
    "sink_position, noted_us"
)


def note_conflicts(session: SinkSession, owner: Owner, conflicts: Sequence[Conflict]) -> None:
    """Store conflicts in the session's open transaction."""
    for statement in noting(owner, conflicts):
        session.execute(statement)


def noting(owner: Owner, conflicts: Sequence[Conflict]) -> list[str]:
    """Return the statements that store conflicts."""
    found = []
    for first in range(0, len(conflicts), _ROWS_A_STATEMENT):
        rows = ", ".join(_row(owner, each) for each in conflicts[first : first + _ROWS_A_STATEMENT])
        found.append(f"INSERT INTO {LEDGER}.conflict ({_COLUMNS}) VALUES {rows}")
    return found


def count(session: SinkSession, owner: Owner) -> int:
    """Return how many conflicts of a pipeline are kept."""
    found = session.rows(
        f"SELECT COUNT(*) FROM {LEDGER}.conflict WHERE {pipeline_is(owner.pipeline)}"
    )
    return int(str(found[0][0]))


def beaten(
    session: SinkSession, owner: Owner, table: TableId, node: str
) -> tuple[tuple[Values, str], ...]:
    """Return the key and the place of the last change of each row that a node's has beaten.

    In the order in which they were noted; a row whose key is written in two ways is there twice.
    """
    rows = session.rows(
        f"SELECT row_key, sink_position FROM {LEDGER}.conflict JOIN (SELECT MAX(number) AS number "
        f"FROM {LEDGER}.conflict WHERE {pipeline_is(owner.pipeline)} "
        f"AND table_name = {literal(str(table))} AND kept = {literal(node)} GROUP BY {_ROW}) "
        "AS last_one USING (number) ORDER BY number"
    )
    return tuple((json.loads(key), str(place)) for key, place in rows)


def of_tables(session: SinkSession, owner: Owner, *, since_us: int) -> tuple[ConflictsOfTable, ...]:
    """Return how many conflicts of each table there were since a time, by the node kept."""
    rows = session.rows(
        f"SELECT table_name, kept, COUNT(*), COUNT(DISTINCT {_ROW}), MAX(noted_us) "
        f"FROM {LEDGER}.conflict WHERE {pipeline_is(owner.pipeline)} AND noted_us >= {since_us} "
        "GROUP BY table_name, kept ORDER BY table_name, kept"
    )
    return tuple(
        ConflictsOfTable(TableId.parse(str(table)), str(kept), *map(int, counts))
        for table, kept, *counts in rows
    )


def read(
    session: SinkSession, owner: Owner, *, since_us: int, most: int
) -> tuple[NotedConflict, ...]:
    """Return the last `most` of a pipeline's conflicts since a time, oldest first."""
    rows = session.rows(
        f"SELECT number, {_COLUMNS} FROM {LEDGER}.conflict WHERE {pipeline_is(owner.pipeline)} "
        f"AND noted_us >= {since_us} ORDER BY number DESC LIMIT {most}"
    )
    return tuple(_conflict(row) for row in reversed(rows))


def _conflict(row: Sequence[Any]) -> NotedConflict:
    """Read a conflict from its row."""
    number, _, table, kept, key, source, sink, source_at, sink_at, noted_us = row
    changes = [
        RowChange(**json.loads(text), at=at) for text, at in ((source, source_at), (sink, sink_at))
    ]
    conflict = Conflict(TableId.parse(table), json.loads(key), kept, *changes)
    return NotedConflict(int(number), int(noted_us), conflict)


def _row(owner: Owner, conflict: Conflict) -> str:
    """Return a conflict as SQL values."""
    texts = (
        _json(conflict.key),
        _json(conflict.source.to_json()),
        _json(conflict.sink.to_json()),
        conflict.source.at,
        conflict.sink.at,
    )
    names = (str(owner.pipeline), str(conflict.table), conflict.kept)
    values = [*map(literal, names), *map(text_literal, texts), NOW_US]
    return f"({', '.join(values)})"


def _json(form: Any) -> str:
    """Return JSON text."""
    return json.dumps(form, ensure_ascii=False)
