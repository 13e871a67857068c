"""What the ledger remembers of splits that were read again: one row each, written with its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.sink_port import JoinedSplit, Owner
from airflow_cdc_provider.core.codec import (
    dumps,
    position_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_keys import keys_from_text, keys_to_text
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import position_literal

if TYPE_CHECKING:
    import pyarrow as pa

_FREED = "freed"
"""Beside the split's own parts; a reader that does not know of it is not hindered."""


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


def freed_keys(
    session: SinkSession, owner: Owner, request: str, table: TableId
) -> Iterator[pa.Table]:
    """Yield the keys of rows that a request's splits took away, as they were stored with them."""
    rows = session.rows(
        f"SELECT split FROM {LEDGER}.joined_split "
        f"WHERE {_of(owner, request)} AND table_name = {literal(str(table))} ORDER BY number"
    )
    for (split,) in rows:
        yield from map(keys_from_text, json.loads(split).get(_FREED, ()))


def store_joined(
    session: SinkSession,
    owner: Owner,
    request: str,
    joined: JoinedSplit,
    freed: Sequence[pa.Table] = (),
) -> None:
    """Store that a split has joined, in the transaction of its rows.

    With it the keys of rows elsewhere that had to go for it.
    """
    form = split_to_json(joined.split)
    if freed:
        form[_FREED] = [keys_to_text(keys) for keys in freed]
    values = (
        literal(str(owner.pipeline)),
        literal(request),
        literal(str(joined.split.table)),
        str(joined.split.number),
        str(owner.generation),
        text_literal(dumps(form)),
        str(joined.rows),
        position_literal(joined.position),
        NOW_US,
    )
    session.execute(
        f"INSERT INTO {LEDGER}.joined_split (pipeline, request, table_name, number, generation, "
        f"split, rows_written, position, committed_us) VALUES ({', '.join(values)})"
    )


def forget_joined(session: SinkSession, owner: Owner, request: str) -> None:
    """Drop what is remembered of a request."""
    session.execute(f"DELETE FROM {LEDGER}.joined_split WHERE {_of(owner, request)}")


def _of(owner: Owner, request: str) -> str:
    return f"{pipeline_is(owner.pipeline)} AND request = {literal(request)}"
