"""What the ledger remembers of splits that were read again: one row each, written with its rows."""

from __future__ import annotations

import json

from airflow_cdc_provider.columns.sink_port import JoinedSplit, Owner
from airflow_cdc_provider.core.codec import (
    dumps,
    position_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import ledger
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession


def joined_splits(session: SinkSession, owner: Owner, request: str) -> tuple[JoinedSplit, ...]:
    """Return the splits that have joined for a request."""
    rows = session.rows(
        f"SELECT split, rows_written, position FROM {LEDGER}.joined_split "
        f"WHERE {_of(owner, request)} ORDER BY table_name, number"
    )
    return tuple(
        JoinedSplit(
            split_from_json(json.loads(split)),
            int(count),
            position_from_json(json.loads(position)),
        )
        for split, count, position in rows
    )


def joined_at(
    session: SinkSession, owner: Owner, request: str, split: SnapshotSplit
) -> LogPosition | None:
    """Return where a split has joined for a request, None if it has not."""
    rows = session.rows(
        f"SELECT position FROM {LEDGER}.joined_split WHERE {_of(owner, request)} "
        f"AND table_name = {literal(str(split.table))} AND number = {split.number}"
    )
    return position_from_json(json.loads(rows[0][0])) if rows else None


def store_joined(session: SinkSession, owner: Owner, request: str, joined: JoinedSplit) -> None:
    """Store that a split has joined, in the transaction of its rows."""
    values = (
        literal(str(owner.pipeline)),
        literal(request),
        literal(str(joined.split.table)),
        str(joined.split.number),
        str(owner.generation),
        ledger.text_literal(dumps(split_to_json(joined.split))),
        str(joined.rows),
        ledger.position_literal(joined.position),
        ledger.NOW_US,
    )
    session.execute(
        f"INSERT INTO {LEDGER}.joined_split (pipeline, request, table_name, number, generation, "
        f"split, rows_written, position, committed_us) VALUES ({', '.join(values)})"
    )


def forget_joined(session: SinkSession, owner: Owner, request: str) -> None:
    """Drop what is remembered of a request."""
    session.execute(f"DELETE FROM {LEDGER}.joined_split WHERE {_of(owner, request)}")


def _of(owner: Owner, request: str) -> str:
    return f"{ledger.pipeline_is(owner.pipeline)} AND request = {literal(request)}"
