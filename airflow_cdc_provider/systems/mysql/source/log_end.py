"""Asking a server over an ordinary connection where its log ends."""

from __future__ import annotations

from airflow_cdc_provider.columns.source_port import NextEnd
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition, own
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.source.log_pacing import LogFile, bytes_between, next_end
from airflow_cdc_provider.systems.mysql.source.log_start import purged_unread
from airflow_cdc_provider.systems.mysql.source.watermarks import watermarks_of


class MySqlLogEnd:
    """Queries one server, over one connection, for the end and the size of its log."""

    def __init__(self, endpoint: Endpoint, *, purpose: str) -> None:
        self._connection = connect(endpoint, purpose=purpose, read_timeout_s=30.0)
        self._capabilities = read_capabilities(self._connection)

    @property
    def server_uuid(self) -> str:
        return self._capabilities.server_uuid

    def now(self) -> MySqlPosition:
        """Return the end of the server's log: everything committed so far is before it."""
        rows = query(self._connection, self._capabilities.status_statement)
        if not rows:
            raise RefusedError(
                "the source has no binary log, or the account may not see it",
                where=self._capabilities.status_statement,
                risk="changes cannot be followed",
                remedy="turn on log_bin and grant REPLICATION CLIENT (MariaDB: BINLOG MONITOR)",
            )
        file, offset = rows[0][0], rows[0][1]
        return MySqlPosition(self.server_uuid, BinlogPosition.of(str(file), int(offset)))

    def seen(self) -> MySqlPosition:
        """Return a position that is after all that can be seen now.

        By its GTIDs it is known on other servers, too, so a low watermark is taken where it is one.
        """
        watermarks = watermarks_of(self._connection, self._capabilities)
        low = watermarks.low()
        watermarks.release()
        if watermarks.settled is None:
            return low
        return MySqlPosition(self.server_uuid, watermarks.settled)

    def next_end(
        self, start: LogPosition, *, bound: LogPosition | None, batch_bytes: int
    ) -> NextEnd:
        """Return the position at which the micro-batch from `start` ends."""
        return self._next_end(own(start), None if bound is None else own(bound), batch_bytes)

    def _next_end(
        self, start: MySqlPosition, bound: MySqlPosition | None, batch_bytes: int
    ) -> NextEnd:
        """Return where the micro-batch ends.

        A bound of another server is replaced by the log's end.
        """
        now = self.now()
        if bound is not None and bound.server_uuid != now.server_uuid:
            # no place in this server's log; its end of now has all that the bound was to bring
            bound = now
        behind = (
            start.binlog is not None
            and now.binlog is not None
            and start.binlog.file_number < now.binlog.file_number
        )
        files = self._files() if behind else ()
        end = next_end(start, now, bound=bound, files=files, batch_bytes=batch_bytes)
        return NextEnd(end, bound)

    def bytes_behind(self, start: LogPosition) -> int | None:
        """Return how many bytes of log come after `start`; None if `start` is not in the log."""
        here, now = own(start), self.now()
        if here.binlog is None or now.binlog is None or here.server_uuid != now.server_uuid:
            return None
        is_in_last = here.binlog.file_number == now.binlog.file_number
        return bytes_between(here.binlog, now.binlog, () if is_in_last else self._files())

    def reach(self, start: LogPosition) -> LogReach:
        """Return what log the server keeps, and how many bytes of it are before `start`."""
        here, files = own(start), self._files()
        settings = read_capabilities(self._connection)  # they may be changed at any time
        before = None
        if files and here.binlog is not None and here.server_uuid == self.server_uuid:
            oldest = BinlogPosition(files[0].file_number, 0)
            before = bytes_between(oldest, here.binlog, files)
        return LogReach(
            files=len(files),
            kept_bytes=sum(file.bytes for file in files),
            applied_bytes=before,
            kept_s=settings.retention_s,
            limit_bytes=settings.log_size_limit[1],
            is_outside=before is None and self._is_outside(here),
        )

    def _is_outside(self, here: MySqlPosition) -> bool:
        """Tell whether a position is known to lack transactions that the server has purged."""
        if here.gtids is not None:
            return purged_unread(self._connection, here.gtids) is not None
        return here.server_uuid == self.server_uuid

    def _files(self) -> tuple[LogFile, ...]:
        """Return the server's log files with their sizes."""
        rows = query(self._connection, "SHOW BINARY LOGS")
        return tuple(
            LogFile(BinlogPosition.of(str(row[0]), 0).file_number, int(row[1])) for row in rows
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
