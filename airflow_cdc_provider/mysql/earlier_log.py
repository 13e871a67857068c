"""Rows of an XA transaction that was prepared before the log is read from.

The log has an XA transaction's rows where it is prepared and only its name where it is committed.
A stream that starts in between (after a snapshot, or after a crash) does not have them. They need
not be kept anywhere else, because the log before still has them: it is searched backwards, file by
file, from the commit on. A name is in use by one prepared transaction at a time, so what is
prepared under it before the commit, and neither committed nor rolled back in between, is the one.

The search looks at no rows: it follows transactions only, until it knows where the one it wants
begins and ends. Then those bytes are read once more, with the rows. Both are dumps of the name
that `mysqlbinlog` takes, server id 0: they register nowhere, disturb no reader, and end where the
log ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.columnar.binlog.pending import Piece
from airflow_cdc_provider.columnar.binlog.prepared import Prepared, XaName
from airflow_cdc_provider.columnar.changes import ChangeBatch
from airflow_cdc_provider.core.errors import BinlogPurgedError
from airflow_cdc_provider.core.positions import BinlogPosition
from airflow_cdc_provider.mysql.connection import connect, query

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint

log = logging.getLogger(__name__)

NO_SERVER_ID = 0
_FIRST_EVENT = 4


class Reader(Protocol):
    """What the search needs of a log reader."""

    def read_to(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]: ...

    def prepared(self, name: XaName) -> Prepared | None: ...

    def close(self) -> None: ...


class OpenReader(Protocol):
    """Opens a reader at a place of the log: with the rows, or without looking at any."""

    def __call__(self, start: BinlogPosition, *, rows: bool) -> Reader: ...


class EarlierLog:
    """A `PreparedBefore`: finds prepared transactions in the log before a place."""

    def __init__(self, files: Callable[[], list[BinlogPosition]], open_reader: OpenReader) -> None:
        self._files = files
        """The ends of the server's log files."""
        self._open_reader = open_reader

    def __call__(self, name: XaName, before: BinlogPosition) -> list[Piece] | None:
        """Return the rows of the transaction, None if the log does not hold it any more."""
        log.info("log is searched for a prepared transaction: xa=%s before=%s", name, before)
        found = self._found(name, before)
        if found is None:
            return None
        log.info("prepared transaction found: xa=%s at=%s", name, found.start)
        again = self._prepared_at(name, found.start, found.end, rows=True)
        return None if again is None else again.pieces

    def _found(self, name: XaName, before: BinlogPosition) -> Prepared | None:
        ends = [end for end in self._files() if end.file_number < before.file_number]
        for end in (before, *reversed(ends)):
            try:
                found = self._prepared_at(name, end.at(_FIRST_EVENT), end, rows=False)
            except BinlogPurgedError:
                return None  # the server has dropped the file since it listed it
            if found is not None:
                return found
        return None

    def _prepared_at(
        self, name: XaName, start: BinlogPosition, until: BinlogPosition, *, rows: bool
    ) -> Prepared | None:
        """Read a part of one file; return the transaction if it is prepared at its end."""
        with closing(self._open_reader(start, rows=rows)) as reader:
            for _ in reader.read_to(until):
                pass
            return reader.prepared(name)


def log_files(endpoint: Endpoint) -> list[BinlogPosition]:
    """Ask for the ends of the server's log files, oldest first."""
    with closing(connect(endpoint, purpose="files of the log")) as connection:
        rows = query(connection, "SHOW BINARY LOGS")
    return [BinlogPosition.of(str(row[0]), int(row[1])) for row in rows]


def without_rows(_name: XaName, _place: BinlogPosition) -> list[Piece]:
    """Take a commit for one without rows: whoever only searches has no use for them."""
    return []
