"""Run statements on a real server and decode what its log says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch, TableChanges
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, ThrowawayServer
from tests.systems.mysql.binlog.log_file import read_file

SERVER = "00000000-0000-0000-0000-000000000001"
"""The uuid under which logs are decoded; it is no part of the log itself."""


@dataclass
class CapturedLog:
    """A log file of its own with the statements of one test."""

    path: Path
    flavour: str = "mysql"
    chunk_bytes: int = 4 << 20
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> MySqlPosition:
        gtids = MariaDbGtidPosition() if self.flavour == "mariadb" else GtidSet()
        return MySqlPosition(SERVER, BinlogPosition.of(self.path.name, 4), gtids)

    def chunks(self) -> Iterator[EventChunk]:
        yield from read_file(self.path, self.chunk_bytes)

    def chunk_from(self, offset: int) -> EventChunk:
        """Give the format description and then all events from an offset on, as a dump does."""
        (chunk,) = read_file(self.path, 1 << 30)
        wanted = chunk.starts >= offset - 4 if offset - 4 in chunk.starts else chunk.starts < 0
        wanted[0] = True
        return EventChunk(chunk.buffer, chunk.starts[wanted], chunk.ends[wanted])

    def kinds_between(self, first: int, behind: int) -> list[int]:
        """Return the types of the events that begin between two offsets of the file."""
        (chunk,) = read_file(self.path, 1 << 30)
        starts = chunk.starts[(chunk.starts >= first - 4) & (chunk.starts < behind - 4)]
        return [chunk.buffer[start + 4] for start in starts]

    def decoder(self, **options: Any) -> ColumnDecoder:
        everything = {"captured": lambda _table: True} | self.options | options
        return ColumnDecoder(self.start, server_uuid=SERVER, flavour=self.flavour, **everything)

    def batches(self, **options: Any) -> list[ChangeBatch]:
        return decoded(self.decoder(**options), self.chunks())


def decoded(decoder: ColumnDecoder, chunks: Iterable[EventChunk]) -> list[ChangeBatch]:
    """Feed all chunks and take all batches, the last one by a flush."""
    batches = [batch for chunk in chunks for batch in decoder.feed(chunk)]
    last = decoder.flush()
    return batches if last is None else [*batches, last]


def flavour_of(server: SqlServer) -> str:
    return "mariadb" if isinstance(server, MariaDbServer) else "mysql"


@contextmanager
def captured_log(server: SqlServer) -> Iterator[Callable[[], CapturedLog]]:
    """Give the log of what happens inside, in a file of its own; only for servers of our own."""
    if not isinstance(server, ThrowawayServer):
        pytest.skip("reads log files, which lie on the server's own disk")
    server.execute("FLUSH BINARY LOGS")
    name = server.execute("SHOW BINARY LOGS")[-1][0]

    def log() -> CapturedLog:
        server.execute("FLUSH BINARY LOGS")
        return CapturedLog(server.datadir / name, flavour_of(server))

    yield log


Statement = str | tuple[str, tuple[Any, ...]]
"""A statement, or one with its values."""


@contextmanager
def session(server: SqlServer, database: str) -> Iterator[Callable[..., None]]:
    """Give what runs statements one after the other in one session."""
    connection = server.connect(database)

    def run(*statements: Statement) -> None:
        for statement in statements:
            sql, values = (statement, ()) if isinstance(statement, str) else statement
            cursor.execute(sql, values or None)

    with closing(connection), connection.cursor() as cursor:
        yield run


def log_of(server: SqlServer, database: str, *statements: Statement) -> CapturedLog:
    """Run statements in one session and return the log of them."""
    with captured_log(server) as log:
        with session(server, database) as run:
            run(*statements)
        return log()


def changes_of(batches: Iterable[ChangeBatch], table: str) -> list[TableChanges]:
    return [each for batch in batches for each in batch.tables if each.table.table == table]


def rows_after(batches: Iterable[ChangeBatch], table: str) -> list[dict[str, Any]]:
    """Return the after rows of a table, in log order."""
    parts = [each.after for each in changes_of(batches, table)]
    return pa.Table.from_batches(parts).to_pylist() if parts else []


def replayed(batches: Iterable[ChangeBatch], table: str, key: str = "id") -> dict[Any, Any]:
    """Apply all changes of a table to nothing, one by one: what the table holds now."""
    rows: dict[Any, Any] = {}
    for changes in changes_of(batches, table):
        before, after = changes.before.to_pylist(), changes.after.to_pylist()
        for op, old, new in zip(changes.op.to_pylist(), before, after, strict=True):
            if op != 1:
                gone = rows.pop(old[key])
                assert gone == {name: old[name] for name in gone}  # columns may have been added
            if op != 3:
                assert new[key] not in rows
                rows[new[key]] = new
    return rows


def in_columns(decoder: ColumnDecoder) -> ColumnDecoder:
    """Have a decoder read no events value by value."""
    few: Any = decoder._few
    few.take = lambda _chunk, **_: None
    return decoder


def all_said(batches: Iterable[ChangeBatch]) -> list[Any]:
    """Return all that batches say: places, names, times, and rows as columns."""
    return [
        (
            batch.start,
            batch.end,
            list(batch.transactions),
            batch.barrier,
            batch.bytes,
            batch.only_ledgers,
            batch.changes,
            sorted(map(_columns, batch.tables), key=lambda one: one[0]),
        )
        for batch in batches
    ]


def _columns(changes: TableChanges) -> tuple[Any, ...]:
    assert changes.before.schema == changes.after.schema
    return (
        changes.table,
        changes.ordinal.to_pylist(),
        changes.transaction.to_pylist(),
        changes.op.to_pylist(),
        _bytes(changes.before),
        _bytes(changes.after),
    )


def _bytes(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return rows such that -0.0 is not 0.0."""
    return [
        tuple(value.hex() if isinstance(value, float) else value for value in row.values())
        for row in rows.to_pylist()
    ]
