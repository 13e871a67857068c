"""Columns at the sink that say of each row where it comes from, by names of the user's choice.

A row has one such entry, of what wrote it last: a change of the log, or a read of its table. So
`RowStamp` is what one event writes to many rows; of changes the log has as many as transactions,
and `columns.row_stamps` keeps those as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.table_schema import Column, ColumnType

LONGEST_POSITION = 255
"""Characters of the column of positions."""


class MetadataKind(StrEnum):
    """What a column of metadata says."""

    OPERATION = "operation"
    POSITION = "position"
    COMMITTED_AT = "committed_at"
    TABLE = "table"
    SERVER = "server"


class Operation(StrEnum):
    """What wrote a row last, by Debezium's letters."""

    READ = "r"
    INSERT = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"


@dataclass(frozen=True, slots=True)
class RowMetadata:
    """The names of a table's metadata columns at the sink; empty: there is none of that kind."""

    operation: str = ""
    """Of one character: an `Operation`."""
    position: str = ""
    """The place in the log up to which the row is known."""
    committed_at: str = ""
    """The commit's moment in UTC, NULL of rows that were read."""
    table: str = ""
    """The source's table."""
    server: str = ""
    """The server whose log or table was read."""

    @property
    def named(self) -> Mapping[MetadataKind, str]:
        """Return the names of the columns that there are, in their order."""
        names = {MetadataKind(each.name): getattr(self, each.name) for each in fields(self)}
        return {kind: name for kind, name in names.items() if name}


NO_METADATA = RowMetadata()


@dataclass(frozen=True, slots=True)
class MetadataTypes:
    """A sink's types for the columns of metadata."""

    operation: ColumnType
    """A text of one character."""
    text: ColumnType
    """A text of up to 255 characters."""
    moment: ColumnType
    """A date and time in microseconds, without a zone."""

    def columns_of(self, metadata: RowMetadata) -> Iterator[Column]:
        """Yield the definitions of the columns of metadata."""
        for kind, name in metadata.named.items():
            match kind:
                case MetadataKind.OPERATION:
                    yield Column(name, self.operation, nullable=False)
                case MetadataKind.COMMITTED_AT:
                    yield Column(name, self.moment)
                case MetadataKind.POSITION | MetadataKind.TABLE | MetadataKind.SERVER:
                    yield Column(name, self.text, nullable=False)


@dataclass(frozen=True, slots=True)
class RowStamp:
    """What one event, such as a read of many rows, writes to the metadata columns of each."""

    operation: Operation
    position: str
    server: str
    committed_us: int = 0
    """Microseconds since the epoch; 0: not known."""

    @classmethod
    def of_read(cls, position: LogPosition, high: LogPosition) -> RowStamp:
        """Return the stamp of rows that are the source's at a position, read up to `high`.

        `high` says the place where the position has none of its own.
        """
        placed = position.placed_by([high])
        known = placed if len(placed.short) <= LONGEST_POSITION else high
        return cls(Operation.READ, known.short, known.server or high.server)
