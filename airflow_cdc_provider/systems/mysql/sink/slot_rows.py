"""The writer slots' rows in the ledger: where the stream is, and what it stands for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from airflow_cdc_provider.core.codec import (
    apart_from_json,
    apart_to_json,
    dumps,
    known_to_json,
    position_from_json,
    position_to_json,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import NONE_APART, KnownLog, TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.state import Slot, stream_of_slots
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.stored_splits import (
    delete_unused_splits,
    split_named,
    store_split,
)


def slot_rows(session: SinkSession, owner: Owner, *, lock: str = "") -> list[Slot]:
    """Return the rows of a stream's writer slots, in order from slot 0.

    `lock` is a locking clause.
    """
    rows = session.rows(
        f"SELECT position, split, apart FROM {LEDGER}.stream "
        f"WHERE {pipeline_is(owner.pipeline)} ORDER BY slot {lock}"
    )
    return [
        Slot(
            position_from_json(json.loads(position)),
            split_named(session, owner, split),
            apart_from_json(json.loads(apart or "[]")),
        )
        for position, split, apart in rows
    ]


def read_stream(session: SinkSession, owner: Owner) -> StreamSplit | None:
    """Return the stream split as last committed, None before the hand-off."""
    return stream_of_slots(slot_rows(session, owner))


def moved_to(
    session: SinkSession,
    end: LogPosition,
    anew: StreamSplit | None,
    owner: Owner,
    *,
    knew: KnownLog | None = None,
) -> str:
    """Return the assignments that move a slot's row to a position, maybe with another split.

    `knew` is what the source knew there of the sink's log, None if it knew what it did before.
    """
    split = "" if anew is None else f"split = {store_split(session, owner, anew)}, "
    known = "" if knew is None else f"knew = {text_literal(dumps(known_to_json(knew)))}, "
    return (
        f"{split}{known}position = {position_literal(end)}, generation = {owner.generation}, "
        "batch = batch + 1"
    )


def insert_slot(
    session: SinkSession, owner: Owner, stream: StreamSplit, *, slot: int = 0, slots: int = 1
) -> None:
    """Insert a writer slot's row into the ledger, at the stream's start."""
    session.execute(
        f"INSERT INTO {LEDGER}.stream (pipeline, slot, slots, generation, position, split, "
        f"committed_us) VALUES ({literal(str(owner.pipeline))}, {slot}, {slots}, "
        f"{owner.generation}, {position_literal(stream.start)}, "
        f"{store_split(session, owner, stream)}, {NOW_US})"
    )


def rewrite_splits(session: SinkSession, owner: Owner, splits: Sequence[StreamSplit]) -> None:
    """Store another stream split for each writer slot, in order from slot 0."""
    for slot, split in enumerate(splits):
        session.execute(
            f"UPDATE {LEDGER}.stream SET split = {store_split(session, owner, split)} "
            f"WHERE {pipeline_is(owner.pipeline)} AND slot = {slot}"
        )
    delete_unused_splits(session, owner)


def keep_apart(
    session: SinkSession, owner: Owner, apart: TablesApart, *, edge: str | None = None
) -> None:
    """Store which tables are not where the stream is, in each of its slots' rows.

    `edge` is its name in the ledger, None if that stays.
    """
    named = "" if edge is None else f", edge = {literal(edge)}"
    form = text_literal(dumps(apart_to_json(apart)))
    session.execute(
        f"UPDATE {LEDGER}.stream SET apart = {form}{named} WHERE {pipeline_is(owner.pipeline)}"
    )


def move_apart(
    session: SinkSession, owner: Owner, table: TableId, to: LogPosition, *, edge: str
) -> None:
    """Store where a table is that the stream leaves alone, within the transaction that moves it.

    The stream's row gets the edge's name, by which the edge back reads it.
    """
    rows = session.rows(
        f"SELECT apart FROM {LEDGER}.stream WHERE {pipeline_is(owner.pipeline)} AND slot = 0 "
        "FOR UPDATE"
    )
    apart = apart_from_json(json.loads(rows[0][0] or "[]")) if rows else NONE_APART
    keep_apart(session, owner, apart.moved(table, to), edge=edge)


def position_literal(position: LogPosition) -> str:
    """Return a position as an SQL literal of its JSON."""
    return text_literal(dumps(position_to_json(position)))
