"""Rows of the marker table, by which the other edges of a topology know what an edge has written.

They are the first rows of a transaction: who reads this server's log judges the whole transaction
by them. Of transactions that follow each other, as a stream's do, one row a node is counted up.
Those that write at the same time, as splits do, would wait for each other at that row: each inserts
a row of its own, with a token behind the sink's name, and deletes it again before it commits. The
log has both; the table has neither.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CdcError,
    RefusedError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.markers import BEHIND_NAME, MARKER_COLUMNS
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_NAME = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_COLUMNS = ", ".join(MARKER_COLUMNS)
_NO_SUCH_TABLE = 1146


class MarkerRows:
    """Writes the marker rows of one edge's transactions; without an edge there are none."""

    def __init__(self, edge: Topology | None) -> None:
        self._edge = edge

    def counted(self, origins: Collection[str]) -> list[bytes]:
        """Return the statements that mark a transaction as written at these nodes."""
        edge = self._edge
        if edge is None or not origins:
            return []
        rows = ", ".join(self._row(edge, origin, edge.dst_node) for origin in sorted(origins))
        insert = f"INSERT INTO {quote_table(edge.marker)} ({_COLUMNS}, n) VALUES {rows}"
        return [f"{insert} ON DUPLICATE KEY UPDATE n = n + 1".encode()]

    def mark(self, session: SinkSession, origins: Collection[str]) -> None:
        """Mark the session's transaction as written at these nodes."""
        for statement in self.counted(origins):
            self._write(session, statement)

    def mark_read(self, session: SinkSession) -> None:
        """Mark the session's transaction, whose rows were read at the source by SELECT."""
        if self._edge is not None:
            self.mark(session, {self._edge.src_node})

    def begin_own(self, session: SinkSession) -> str:
        """Mark the session's transaction by a row that no other writes; return its token."""
        edge, token = self._edge, secrets.token_hex(12)
        if edge is not None:
            row = self._row(edge, edge.src_node, f"{edge.dst_node}{BEHIND_NAME}{token}")
            insert = f"INSERT INTO {quote_table(edge.marker)} ({_COLUMNS}, n) VALUES {row}"
            self._write(session, insert.encode())
        return token

    def end_own(self, session: SinkSession, token: str) -> None:
        """Delete the marker row again, after all that the transaction writes."""
        edge = self._edge
        if edge is None:
            return
        there = literal(f"{edge.dst_node}{BEHIND_NAME}{token}")
        session.execute(
            f"DELETE FROM {quote_table(edge.marker)} WHERE data_origin_node = "
            f"{literal(edge.src_node)} AND src_node = {literal(edge.src_node)} "
            f"AND dst_node = {there}"
        )

    def _write(self, session: SinkSession, statement: bytes) -> None:
        """Write marker rows; a table that is gone is created again when the sink is next opened."""
        try:
            session.execute(statement)
        except CdcError as error:
            if error.server_error != _NO_SUCH_TABLE or self._edge is None:
                raise
            raise SinkUnreachableError(
                "the marker table is gone",
                where=f"{self._edge.marker} on {session.where}",
                risk="none: nothing was written without it",
                remedy="nothing: it is created again, and what was to be written is tried again",
            ) from error

    @staticmethod
    def _row(edge: Topology, origin: str, dst_node: str) -> str:
        """Return a marker row as SQL values."""
        names = ", ".join(literal(name) for name in (origin, edge.src_node, dst_node))
        return f"({names}, 1)"


def create_marker(session: SinkSession, edge: Topology | None) -> None:
    """Create the marker table unless it is there; one that is no marker is refused."""
    if edge is None or _is_there(session, edge):
        return
    marker = edge.marker
    try:
        session.execute(
            f"CREATE DATABASE IF NOT EXISTS {quote_identifier(marker.database)} "
            "CHARACTER SET utf8mb4"
        )
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {quote_table(marker)} (data_origin_node {_NAME}, "
            f"src_node {_NAME}, dst_node {_NAME}, n BIGINT UNSIGNED NOT NULL DEFAULT 0, "
            f"PRIMARY KEY ({_COLUMNS})) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
        )
    except CdcError as error:
        if _is_there(session, edge):
            return
        raise _not_usable(session, edge, f"cannot be created: {error.what}") from error


def _is_there(session: SinkSession, edge: Topology) -> bool:
    """Tell whether the marker table exists; refuse a table of that name that is no marker."""
    marker = edge.marker
    of_it = (
        f"WHERE table_schema = {literal(marker.database)} AND table_name = {literal(marker.table)}"
    )
    columns = session.rows(f"SELECT column_name FROM information_schema.columns {of_it}")
    if not columns:
        return False
    names = {str(row[0]).lower() for row in columns}
    if missing := [name for name in (*MARKER_COLUMNS, "n") if name not in names]:
        raise _not_usable(session, edge, f"has no column {', '.join(missing)}")
    key = session.rows(
        f"SELECT column_name FROM information_schema.statistics {of_it} "
        "AND index_name = 'PRIMARY' ORDER BY seq_in_index"
    )
    if {str(row[0]).lower() for row in key} != set(MARKER_COLUMNS):
        raise _not_usable(session, edge, "has another primary key")
    return True


def _not_usable(session: SinkSession, edge: Topology, why: str) -> RefusedError:
    """Return the error for a marker table that cannot be used."""
    return RefusedError(
        f"the marker table {why}",
        where=f"{edge.marker} on {session.where}",
        risk=NOTHING_STARTED,
        remedy=f"let the account create it, or create it with the columns {_COLUMNS}, which are "
        "its primary key, and n, a BIGINT; or name another table as topology.marker",
    )
