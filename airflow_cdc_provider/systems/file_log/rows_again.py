"""What is asked of a log whose readers make tables of it: what these hold, and how they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.sink.port import JoinedRows
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.tree import Members

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class JoinPlace:
    """Where rows join a log."""

    state: LogState
    """The log's; what it names is what the table holds."""
    position: LogPosition
    now_us: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a table lacks of a split's rows, as it is written."""

    members: Members
    count: int
    events: int
    """The number of the log's events behind it."""


class SplitLook(Protocol):
    """A look at what a table holds of one split."""

    def ahead(self, joined: JoinedRows) -> None:
        """Read what the table holds, so that little is left to read while the stream waits."""

    def changes(self, joined: JoinedRows, place: JoinPlace) -> Lacking:
        """Return what is written so that the joined rows are the split's only ones.

        `IntegrityError` if files of the log are gone; another process may have published them.
        """


class RowsAgain(Protocol):
    """The tables that are made of a log, in which rows take the place of others."""

    def held_keys(self, split: SnapshotSplit) -> pa.Table:
        """Return the keys that a table has in a split; `SplitTooBigError` if they are too many."""

    def look(self, split: SnapshotSplit) -> SplitLook:
        """Begin to look at what a table holds of a split; nothing is read yet."""
