"""What the log holds of a split beyond a place: replayed onto its rows, or handed out.

A statement in there that changes the split's table is an error, for it may have changed rows
without naming them. There is one exception: where L lies well before the place the log had come to
when it was taken (`Watermarks.settled`), a statement before that place was complete when the rows
were read, and so was all that came before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.backfill import replay
from airflow_cdc_provider.columns.changes import Statement, TableChanges
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.core.errors import (
    SchemaMovedError,
    SourceIdentityError,
    SplitOutdatedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPosition,
    own_point,
)
from airflow_cdc_provider.systems.mysql.source.log_tail import LogTail

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.source.split_rows import TextRows

REPLAY_BYTES = 16 * 1024 * 1024
"""Replayed at once, so that a hot split does not pile them up."""
MAX_CHANGES_BYTES = 64 * 1024 * 1024
"""Handed out at once: whoever asks keeps them together with the rows."""


class SplitLog:
    """Reads the changes of a split's table from the log tail: to replay them, or to return them."""

    def __init__(self, tail: LogTail, tables: Mapping[TableId, TableSchema], where: str) -> None:
        self._tail = tail
        self._tables = tables
        self._where = where

    def replayed(
        self,
        rows: TextRows,
        split: SnapshotSplit,
        watermarks: tuple[MySqlPosition, MySqlPosition],
        settled: BinlogPosition | None,
    ) -> tuple[SplitRows, int]:
        """Replay the log of (L, H] onto a split's rows; return the rows at H and how many changes.

        The first replay takes the rows; they are kept only where a statement may lead back to them.
        """
        low, high = watermarks
        if high.binlog is None:
            raise SourceIdentityError("a high watermark has no place in the log")
        schema = self._tables[split.table]
        replayed: list[pa.Table] = []  # of one or none, so that it can be given away
        waiting: list[TableChanges] = []
        total = held = 0

        def taken() -> pa.Table:
            """Give away what was replayed onto so far, else the rows; nobody holds it then."""
            if replayed:
                return replayed.pop()
            batches = rows.drained() if settled is None else rows.batches()
            return pa.Table.from_batches(batches, rows.schema)

        def catch_up() -> None:
            replayed.append(replay(taken(), waiting, schema, split.keys))
            waiting.clear()
            # Arrow keeps what was freed; with wide rows that soon is more than what is in use.
            pa.default_memory_pool().release_unused()

        for change in self._tail.changes(split.table, low, high.binlog):
            if isinstance(change, Statement):
                if self._is_settled(change, split, settled):
                    total = held = 0  # what came before it was seen, or is gone
                    replayed.clear()
                    waiting.clear()
                continue
            waiting.append(change)
            total += len(change)
            held += _bytes(change)
            if held >= REPLAY_BYTES:
                catch_up()
                held = 0
        if waiting:
            catch_up()
        return (ArrowRows(replayed.pop()) if replayed else rows), total

    def changes(
        self,
        split: SnapshotSplit,
        between: tuple[MySqlPosition, MySqlPosition],
        until: BinlogPosition,
        settled: BinlogPosition | None,
    ) -> list[TableChanges]:
        """Return all changes of the split's table between two positions, the later in the log.

        `until` is its place there, or a later one where it has none.
        """
        found: list[TableChanges] = []
        held = 0
        after, up_to = between
        for change in self._tail.changes(split.table, after, until, up_to=up_to):
            if isinstance(change, Statement):
                if self._is_settled(change, split, settled):
                    found.clear()
                    held = 0
                continue
            found.append(change)
            held += _bytes(change)
            if held > MAX_CHANGES_BYTES:
                what = f"the log holds more than {MAX_CHANGES_BYTES} bytes of changes since"
                raise outdated(split, what, f"{self._where}, up to {until}")
        return found

    def _is_settled(
        self, statement: Statement, split: SnapshotSplit, settled: BinlogPosition | None
    ) -> bool:
        """Tell whether a statement changed the table before the rows were read; later is an error.

        False if it does not concern the table.
        """
        if not statement.effect.changes(self._tables[split.table], ignore_case=True):
            return False
        point = own_point(statement.point)
        if settled is not None and point.end <= settled:
            return True
        raise SchemaMovedError(
            f"{split.table} was changed by a statement while it was read: {statement.sql[:200]}",
            f"{point.start}",
            "none: the rows read so far are dropped",
            "the split is read again",
        )


def require_servers(
    position: MySqlPosition, split: SnapshotSplit, servers: Collection[str]
) -> None:
    """Refuse rows that were not read from the server of the stream's position."""
    if any(server != position.server_uuid for server in servers):
        named = " and ".join(sorted(servers))
        raise outdated(split, f"the stream's position is not of {named}", str(position))


def outdated(split: SnapshotSplit, what: str, where: str) -> SplitOutdatedError:
    """Return the error for a split whose rows cannot be brought to the stream's position."""
    return SplitOutdatedError(
        f"the rows of split {split.split_id} cannot be brought to the stream's position: {what}",
        where,
        "none: the rows read so far are dropped",
        "the split is read again",
    )


def _bytes(changes: TableChanges) -> int:
    """Return the bytes of the changes' row images."""
    return int(changes.before.nbytes + changes.after.nbytes)
