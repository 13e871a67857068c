"""How the rows of a log's files look: envelopes in a change log, plain columns in a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_cdc_provider.core.positions import Fact, LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.events import Places, TableEvents
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.transactions import Transactions
from airflow_cdc_provider.systems.file_log.tree import Members
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import Root, files_at

if TYPE_CHECKING:
    import pyarrow as pa


class RowForm(Protocol):
    """Makes what is written of one table's rows and changes."""

    def read(self, rows: pa.RecordBatch, position: LogPosition, now_us: int) -> Members:
        """Return what is written of a snapshot's rows, read at a position."""

    def changed(
        self, events: TableEvents, places: Places, transactions: Transactions, now_us: int
    ) -> Members:
        """Return what is written of a table's changes."""

    def truncated(
        self, columns: pa.Schema, by: TruncatedBy, facts: Mapping[str, Fact], now_us: int
    ) -> Members:
        """Return what is written of a TRUNCATE of the table: one row."""


@runtime_checkable
class JoinedRowForm(Protocol):
    """A form of rows that can join a log beside its stream."""

    def joined(
        self, rows: pa.RecordBatch, position: LogPosition, now_us: int, *, first: int
    ) -> Members:
        """Return what is written of rows that join at a position.

        `first` is the first row's number among the log's events; the others follow.
        """

    def voided(
        self, columns: pa.Schema, position: LogPosition, now_us: int, *, number: int
    ) -> Members:
        """Return what says that the table's events of before are void: one row.

        `number` is its number among the log's events.
        """


@dataclass(frozen=True, slots=True)
class TruncatedBy:
    """The TRUNCATE that emptied a table."""

    transactions: Transactions
    """Itself alone."""
    in_log: int
    """Its number among the log's events."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Where a log's files are, and how they are written."""

    root: Root
    form: Format
    rows_of: Callable[[TablePlan, str], RowForm]
    """By a table's plan and the types that the log was begun with."""
    has_markers: bool = True
    """Transactions have rows of their own, in a folder beside the tables'."""
    tells_columns: bool = False
    """A split that is a whole table has a file, also without a row: it tells the columns."""
    tells_before: bool = True
    """An event has its row as it was, too; else one without a key is deleted and comes again."""
    counts_events: bool = False
    """The rows have their events' numbers in the log, which goes on in the manifest."""

    @property
    def store(self) -> ObjectStore:
        """Return the store of the files."""
        return files_at(self.root)
