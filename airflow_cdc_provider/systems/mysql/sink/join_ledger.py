"""What the ledger remembers of splits that were read again: one row each, written with its rows.

One row more for each table of a request says who carries it out: its *epoch*, which grows each time
somebody begins the request, or goes on with it. A join locks that row in its own transaction, so a
new epoch waits for the joins of the old one, and sees their splits; what joins later under an old
epoch is refused. So a thread that was left behind, in whatever state, never joins beside the one
that goes on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.sink_port import JoinedSplit, Owner
from airflow_cdc_provider.core.codec import (
    dumps,
    position_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, SplitOutdatedError, StateMovedError
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
_EPOCH = 2**32 - 1
"""The number of the row that holds a table's epoch: the largest there is, and no split's."""
_IS_SPLIT = f"number < {_EPOCH}"


def begin_epoch(
    session: SinkSession, owner: Owner, request: str, tables: Collection[TableId]
) -> int:
    """Begin a request, or resume it, in the ledger; return the new epoch of its joins.

    Joins that are under way come first.
    """
    found = session.rows(
        f"SELECT split FROM {LEDGER}.joined_split WHERE {_of(owner, request)} "
        f"AND number = {_EPOCH} FOR UPDATE"
    )
    epoch = 1 + max((int(json.loads(form)["epoch"]) for (form,) in found), default=0)
    for table in tables:
        values = (
            literal(str(owner.pipeline)),
            literal(request),
            literal(str(table)),
            str(_EPOCH),
            str(owner.generation),
            text_literal(dumps({"epoch": epoch})),
            "''",
            NOW_US,
        )
        session.execute(
            f"INSERT INTO {LEDGER}.joined_split (pipeline, request, table_name, number, "
            f"generation, split, position, committed_us) VALUES ({', '.join(values)}) "
            "ON DUPLICATE KEY UPDATE generation = VALUES(generation), split = VALUES(split), "
            "committed_us = VALUES(committed_us)"
        )
    return epoch


def require_epoch(
    session: SinkSession, owner: Owner, request: str, split: SnapshotSplit, epoch: int
) -> None:
    """Refuse a join under an older epoch, and hold a new epoch off until the commit."""
    found = session.rows(
        f"SELECT split FROM {LEDGER}.joined_split WHERE {_of(owner, request)} "
        f"AND table_name = {literal(str(split.table))} AND number = {_EPOCH} "
        f"{session.capabilities.share_lock}"
    )
    now = int(json.loads(found[0][0])["epoch"]) if found else 0
    if now != epoch:
        raise StateMovedError(
            f"request {request} was begun again, or ended, since this split was read: its epoch "
            f"is {now}, not {epoch}",
            where=f"ledger on {session.where}, split {split.split_id}",
            risk=NOTHING_CHANGED,
            remedy="nothing: whoever began it last goes on with it",
        )


def joined_splits(session: SinkSession, owner: Owner, request: str) -> tuple[JoinedSplit, ...]:
    """Return the splits that have joined for a request."""
    rows = session.rows(
        f"SELECT split, rows_written, position FROM {LEDGER}.joined_split "
        f"WHERE {_of(owner, request)} AND {_IS_SPLIT} ORDER BY table_name, number"
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
    """Return the position at which a split joined the stream for a request, None if it did not.

    A number says nothing of which rows these were: another range under it is an error.
    """
    rows = session.rows(
        f"SELECT position, split FROM {LEDGER}.joined_split WHERE {_of(owner, request)} "
        f"AND table_name = {literal(str(split.table))} AND number = {split.number}"
    )
    if not rows:
        return None
    found = split_from_json(json.loads(rows[0][1]))
    if (found.keys, found.listed, found.chosen) != (split.keys, split.listed, split.chosen):
        raise SplitOutdatedError(
            f"split {split.split_id} of request {request} has joined as {found.keys}, "
            f"and this is {split.keys}",
            where=f"ledger on {session.where}",
            risk="none: nothing of this one was written",
            remedy="nothing: the request goes on behind the splits that have joined",
        )
    return position_from_json(json.loads(rows[0][0]))


def freed_keys(
    session: SinkSession, owner: Owner, request: str, table: TableId
) -> Iterator[pa.Table]:
    """Yield the keys of rows that a request's joins deleted to free unique values."""
    rows = session.rows(
        f"SELECT split FROM {LEDGER}.joined_split "
        f"WHERE {_of(owner, request)} AND table_name = {literal(str(table))} AND {_IS_SPLIT} "
        "ORDER BY number"
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
    """Store a split as joined, with the keys of rows deleted for it, in its transaction."""
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
    """Delete a request's joined splits from the ledger."""
    session.execute(f"DELETE FROM {LEDGER}.joined_split WHERE {_of(owner, request)}")


def _of(owner: Owner, request: str) -> str:
    """Return the condition that picks a request's rows in the ledger."""
    return f"{pipeline_is(owner.pipeline)} AND request = {literal(request)}"
