"""The files of a server's log: which are there, and where each ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow_cdc_provider.core.errors import RESET, SourceIdentityError
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from airflow_cdc_provider.systems.mysql.server.connection import query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a server's log with their sizes, and the end of the log."""

    bytes: Mapping[int, int]
    """By file number; of the last file at least so many."""
    end: BinlogPosition
    """Asked for before the files were listed: what is listed before its file has its last size."""

    @classmethod
    def ask(cls, connection: ServerConnection, capabilities: Capabilities) -> Self:
        """Query the server for its log files and the end of its log."""
        end = log_end(connection, capabilities)
        listed = query(connection, "SHOW BINARY LOGS")
        sizes = {BinlogPosition.of(str(row[0]), 0).file_number: int(row[1]) for row in listed}
        return cls(sizes, end)

    def ends_before(self, place: BinlogPosition) -> bool:
        """Tell whether the log ends before a position; False for a purged file."""
        if place > self.end:
            return True
        if place.file_number == self.end.file_number:
            return False
        return place.offset > self.bytes.get(place.file_number, place.offset)

    def lacks(self, place: BinlogPosition) -> bool:
        """Tell whether the log file of a position was purged."""
        listed = place.file_number in self.bytes or place.file_number == self.end.file_number
        return not listed and place <= self.end

    def end_near(self, place: BinlogPosition) -> str:
        """Return a text on where the log ends, for a position beyond its end."""
        if place.file_number in self.bytes and place.file_number != self.end.file_number:
            return f"{place.file} ends at {self.bytes[place.file_number]}"
        if place.file_number != self.end.file_number:
            return f"there is no file {place.file} yet, it ends at {self.end}"
        return f"it ends at {self.end}"


def log_end(connection: ServerConnection, capabilities: Capabilities) -> BinlogPosition:
    """Query the end of the server's log: an upper bound of what any earlier read has seen."""
    rows = query(connection, capabilities.status_statement)
    if not rows:
        raise SourceIdentityError(
            "the server writes no binary log",
            f"{connection.host}:{connection.port}",
            "changes cannot be followed",
            f"switch log_bin on and {RESET}",
        )
    return BinlogPosition.of(str(rows[0][0]), int(rows[0][1]))
