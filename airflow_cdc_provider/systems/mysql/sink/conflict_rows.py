"""The ledger's rows of conflicts: written with what was kept, read for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_cdc_provider.core.conflicts import Conflict
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_ROWS_A_STATEMENT = 100
_COLUMNS = (
    "pipeline, table_name, kept, row_key, source_change, sink_change, source_position, "
    "sink_position, noted_us"
)


def note_conflicts(session: SinkSession, owner: Owner, conflicts: Sequence[Conflict]) -> None:
    """Store conflicts in the session's open transaction."""
    for first in range(0, len(conflicts), _ROWS_A_STATEMENT):
        rows = ", ".join(_row(owner, each) for each in conflicts[first : first + _ROWS_A_STATEMENT])
        session.execute(f"INSERT INTO {LEDGER}.conflict ({_COLUMNS}) VALUES {rows}")


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
