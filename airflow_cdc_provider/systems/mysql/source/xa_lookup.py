"""Rows of an XA transaction, read again at its commit.

The log has an XA transaction's rows where it is prepared and only its name where it is committed.
A stream that starts in between (after a snapshot, or after a crash) does not have them, and one
that met more of them than fit into memory has dropped them. They need not be kept anywhere else,
because the log before still has them. Where their place is not known, it is searched backwards,
file by file, from the commit on. A name is in use by one prepared transaction at a time, so what is
prepared under it before the commit, and neither committed nor rolled back in between, is the one.

The search looks at no rows: it follows transactions only, until it knows where the one it wants
begins and ends. Then those bytes are read once more, with the rows, which come in parts: there may
be more of them than memory. Both are dumps of the name
that `mysqlbinlog` takes, server id 0: they register nowhere, disturb no reader, and end where the
log ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

import numpy as np

from airflow_cdc_provider.columns.arrow_arrays import as_numpy
from airflow_cdc_provider.columns.changes import ChangeBatch, TableChanges
from airflow_cdc_provider.core.errors import LogPurgedError
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import Piece
from airflow_cdc_provider.systems.mysql.binlog.transactions.prepared import (
    Prepared,
    RowsPart,
    XaName,
    rows_are_gone,
)
from airflow_cdc_provider.systems.mysql.positions.position import FIRST_EVENT, BinlogPosition
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.source.log_transport import NO_SERVER_ID as NO_SERVER_ID

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint

log = logging.getLogger(__name__)


class Reader(Protocol):
    """What the search for XA transactions needs of a log reader."""

    def read_to(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]: ...

    def prepared(self, name: XaName) -> Prepared | None: ...

    def close(self) -> None: ...


class OpenReader(Protocol):
    """Opens a log reader at a binlog position: with rows, or for transactions only.

    With the rows, what is prepared counts as committed.
    """

    def __call__(self, start: BinlogPosition, *, rows: bool) -> Reader: ...


class EarlierLog:
    """Finds the rows of prepared XA transactions in the log before a position."""

    def __init__(self, files: Callable[[], list[BinlogPosition]], open_reader: OpenReader) -> None:
        self._files = files
        """The ends of the server's log files."""
        self._open_reader = open_reader

    def find(self, name: XaName, before: BinlogPosition) -> Iterator[RowsPart] | None:
        """Return the rows of an XA transaction prepared before a position.

        None if they were purged.
        """
        log.info("log is searched for a prepared transaction: xa=%s before=%s", name, before)
        found = self._found(name, before)
        if found is None:
            return None
        log.info("prepared transaction found: xa=%s at=%s", name, found.start)
        return self.between(found.start, found.end)

    def between(self, start: BinlogPosition, end: BinlogPosition) -> Iterator[RowsPart]:
        """Yield the rows of the XA transaction that is between two positions of one log file."""
        try:
            with closing(self._open_reader(start, rows=True)) as reader:
                for batch in reader.read_to(end):
                    yield RowsPart([_piece(changes) for changes in batch.tables], batch.bytes)
        except LogPurgedError as error:
            raise rows_are_gone(f"an XA transaction logged at {start}") from error

    def _found(self, name: XaName, before: BinlogPosition) -> Prepared | None:
        """Search the log files backwards for a prepared transaction; None if it is not there."""
        ends = [end for end in self._files() if end.file_number < before.file_number]
        for end in (before, *reversed(ends)):
            try:
                found = self._prepared_at(name, end)
            except LogPurgedError:
                return None  # the server has dropped the file since it listed it
            if found is not None:
                return found
        return None

    def _prepared_at(self, name: XaName, until: BinlogPosition) -> Prepared | None:
        """Read one log file up to a position; return the transaction if it is prepared there."""
        with closing(self._open_reader(until.at(FIRST_EVENT), rows=False)) as reader:
            for _ in reader.read_to(until):
                pass
            return reader.prepared(name)


def _piece(changes: TableChanges) -> Piece:
    """Return changes in the decoder's form, to be given the number of their transaction."""
    return Piece(
        changes.table,
        as_numpy(changes.transaction).astype(np.int64),
        as_numpy(changes.ordinal),
        as_numpy(changes.op),
        changes.before,
        changes.after,
        changes.facts,
    )


def log_files(endpoint: Endpoint) -> list[BinlogPosition]:
    """Query the end positions of the server's log files, oldest first."""
    with closing(connect(endpoint, purpose="files of the log")) as connection:
        rows = query(connection, "SHOW BINARY LOGS")
    return [BinlogPosition.of(str(row[0]), int(row[1])) for row in rows]


class WithoutRows:
    """A `PreparedBefore` that finds no rows, for readers that follow transactions only."""

    def find(self, name: XaName, before: BinlogPosition) -> Iterator[RowsPart] | None:  # noqa: ARG002
        """Return no rows."""
        return iter(())

    def between(self, start: BinlogPosition, end: BinlogPosition) -> Iterator[RowsPart]:  # noqa: ARG002
        """Return no rows: this reader does not need those of prepared transactions."""
        return iter(())
