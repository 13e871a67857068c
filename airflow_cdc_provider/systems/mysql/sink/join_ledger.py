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

from airflow_cdc_provider.core.codec import (
    dumps,
    known_from_json,
    position_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.ledger.state import Slot
from airflow_cdc_provider.engine.sink.port import JoinedSplit, Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink import change_counts, ledger
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_keys import keys_from_text, keys_to_text
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import (
    position_literal,
    rewrite_splits,
    slot_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

_FREED, _LEFT = "freed", "left"
"""Beside the split's own parts; a reader that does not know of them is not hindered."""
_EPOCH = 2**32 - 1
"""The number of the row that holds a table's epoch: the largest there is, and no split's."""
_IS_SPLIT = f"number < {_EPOCH}"


class MySqlJoinLedger:
    """The joins of one pipeline's requests, over one session."""

    def __init__(self, session: SinkSession, owner: Owner) -> None:
        self._session = session
        self._owner = owner

    def begin_epoch(self, request: str, tables: Collection[TableId]) -> int:
        """Begin a request, or resume it; return the new epoch. Joins under way come first."""
        found = self._session.rows(
            f"SELECT split FROM {LEDGER}.joined_split WHERE {self._of(request)} "
            f"AND number = {_EPOCH} FOR UPDATE"
        )
        epoch = 1 + max((int(json.loads(form)["epoch"]) for (form,) in found), default=0)
        for table in tables:
            values = (
                literal(str(self._owner.pipeline)),
                literal(request),
                literal(str(table)),
                str(_EPOCH),
                str(self._owner.generation),
                text_literal(dumps({"epoch": epoch})),
                "''",
                NOW_US,
            )
            self._session.execute(
                f"INSERT INTO {LEDGER}.joined_split (pipeline, request, table_name, number, "
                f"generation, split, position, committed_us) VALUES ({', '.join(values)}) "
                "ON DUPLICATE KEY UPDATE generation = VALUES(generation), split = VALUES(split), "
                "committed_us = VALUES(committed_us)"
            )
        return epoch

    def held_epoch(self, request: str, table: TableId) -> int:
        """Return a request's epoch, 0 for none; a new one waits for the commit."""
        found = self._session.rows(
            f"SELECT split FROM {LEDGER}.joined_split WHERE {self._of(request)} "
            f"AND table_name = {literal(str(table))} AND number = {_EPOCH} "
            f"{self._session.capabilities.share_lock}"
        )
        return int(json.loads(found[0][0])["epoch"]) if found else 0

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits that have joined for a request."""
        return self._joined(f"{self._of(request)} AND {_IS_SPLIT}")

    def joined_as(self, request: str, split: SnapshotSplit) -> JoinedSplit | None:
        """Return what has joined under a split's table and number for a request."""
        named = f"table_name = {literal(str(split.table))} AND number = {split.number}"
        found = self._joined(f"{self._of(request)} AND {named}")
        return found[0] if found else None

    def freed_keys(self, request: str, table: TableId) -> Iterator[pa.Table]:
        """Yield the keys of rows that a request's joins deleted to free unique values."""
        rows = self._session.rows(
            f"SELECT split FROM {LEDGER}.joined_split WHERE {self._of(request)} "
            f"AND table_name = {literal(str(table))} AND {_IS_SPLIT} ORDER BY number"
        )
        for (split,) in rows:
            yield from map(keys_from_text, json.loads(split).get(_FREED, ()))

    def forget(self, request: str) -> None:
        """Delete a request's joined splits."""
        self._session.execute(f"DELETE FROM {LEDGER}.joined_split WHERE {self._of(request)}")

    def slots(self, *, hold: bool = False) -> Sequence[Slot]:
        """Return the stream's writer slots; `hold` locks them, and refuses an older owner."""
        if not hold:
            return slot_rows(self._session, self._owner)
        ledger.check_generation(self._session, self._owner)
        return slot_rows(self._session, self._owner, lock="FOR UPDATE")

    def knew(self) -> KnownLog | None:
        """Return what an edge's source knew of the sink's log at the stream's position.

        The slots are held. None if that was not stored.
        """
        found = self._session.rows(
            f"SELECT knew FROM {LEDGER}.stream WHERE {pipeline_is(self._owner.pipeline)} "
            f"AND slot = 0 {self._session.capabilities.share_lock}"
        )
        return known_from_json(json.loads(found[0][0])) if found and found[0][0] else None

    def owns(self, table: TableId) -> bool:
        """Tell whether the stream owns a table."""
        return ledger.stream_owns(self._session, self._owner, table)

    def store_joined(self, request: str, joined: JoinedSplit, freed: Sequence[pa.Table]) -> None:
        """Store a split as joined, with the keys of rows deleted for it, and count its rows."""
        split = joined.split
        form = split_to_json(split)
        if freed:
            form[_FREED] = [keys_to_text(keys) for keys in freed]
        if joined.left:
            form[_LEFT] = joined.left
        values = (
            literal(str(self._owner.pipeline)),
            literal(request),
            literal(str(split.table)),
            str(split.number),
            str(self._owner.generation),
            text_literal(dumps(form)),
            str(joined.rows),
            position_literal(joined.position),
            NOW_US,
        )
        self._session.execute(
            f"INSERT INTO {LEDGER}.joined_split (pipeline, request, table_name, number, "
            f"generation, split, rows_written, position, committed_us) "
            f"VALUES ({', '.join(values)})"
        )
        counted = {split.table: max(joined.rows, 1)}
        change_counts.count_changes(self._session, self._owner, counted, joined.position)

    def store_read(self, table: TableId, slots: Sequence[Slot]) -> None:
        """Store that all rows of a table are in the sink; `slots` are the stream's, held."""
        rewrite_splits(self._session, self._owner, [slot.stream.read({table}) for slot in slots])

    def claim(self) -> None:
        """Refuse an older owner, as the last statement before the commit."""
        ledger.claim_commit(self._session, self._owner)

    def _joined(self, condition: str) -> tuple[JoinedSplit, ...]:
        """Return the joined splits whose rows meet a condition."""
        rows = self._session.rows(
            f"SELECT split, rows_written, position FROM {LEDGER}.joined_split WHERE {condition} "
            "ORDER BY table_name, number"
        )
        return tuple(
            JoinedSplit(
                split_from_json(form := json.loads(split)),
                int(count),
                position_from_json(json.loads(position)),
                int(form.get(_LEFT, 0)),
            )
            for split, count, position in rows
        )

    def _of(self, request: str) -> str:
        """Return the condition that picks a request's rows."""
        return f"{pipeline_is(self._owner.pipeline)} AND request = {literal(request)}"
