"""What is asked of a table, whatever its format: what it holds of our log, and to hold more of it.

Each commit is a compare-and-swap: it is made on the table as it was loaded, or not at all. So who
loads a table, looks at what it holds, and commits what is behind, adds nothing twice.

Others may set a table back. The last commit of ours in its history says what it holds then. Where
that has expired, the rows have to prove it: one of them has the greatest `_order` of our commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout
from airflow_cdc_provider.systems.lake.partitions import Partition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a table's last commit of ours says it holds. It is part of the commit."""

    pipeline: str
    plan_id: str
    """Of the plan whose rows these are; empty for a table that has none yet."""
    generation: int
    files: int
    """How many of the log's files of changes it has, from the first one of the plan on."""
    order: int | None = None
    """The greatest `_order` of all rows that were committed with it or before it, from the last
    exchange on. None if there were none, or if an older version committed."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that is to be part of a table; it is below the table's folder."""

    name: str
    """Below the folder of all tables."""
    rows: int
    bytes: int
    order: int
    """The greatest `_order` of its rows."""
    partition: Partition = ()
    """What its rows share, by the fields of the table's partitions."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range of a column of whole numbers: files and parts of files beyond it may be left out."""

    column: str
    low: int | None
    """The smallest number; None is no end."""
    high: int | None
    """The greatest number; None is no end."""


class TableFile(Protocol):
    """A file of a table as it was loaded."""

    @property
    def path(self) -> str:
        """Where it is, as the table says; it ends with the file's name."""

    @property
    def rows(self) -> int:
        """How many rows it was written with."""

    @property
    def bytes(self) -> int:
        """Its size."""

    @property
    def bounds(self) -> Bounds | None:
        """Of the column that was asked for; None if they are not known."""

    @property
    def partition(self) -> Partition | None:
        """What its rows share; None if they are of several partitions.

        Of a file that has other partitions than the table has now it is anything of its own.
        """

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows, in those of these columns that the table had, in the order of the file.

        Rows that others deleted are left out.
        """


@dataclass(frozen=True, slots=True)
class NewTable:
    """All that a table is to have."""

    files: Sequence[DataFile]
    columns: pa.Schema
    layout: TableLayout


class TableMovedError(Exception):
    """Somebody else committed to the table first: nothing was committed, load it again."""


class ClosedTableError(Exception):
    """Others have put something on the table that lets us not read it, or not commit to it."""


def is_believed(
    files: int, order: int | None, *, tells_order: bool, has_row: Callable[[int], bool]
) -> bool:
    """Tell whether a table has what it says, though none of our commits is in its history.

    A row must have the greatest `order`. Where no row had, as behind a delete, a table is believed
    only without `files` of changes; so is one of an older version, which never `tells_order`.
    """
    if order is not None:
        return has_row(order)
    return not files or not tells_order


class LoadedTable(Protocol):
    """A table as it was loaded: commits are made on that. It may raise `ClosedTableError`."""

    @property
    def stamp(self) -> Stamp | None:
        """What it holds of a log; None for a table that we never committed to."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns, in Arrow's types."""

    @property
    def lost_columns(self) -> tuple[str, ...]:
        """Columns that it had with our last commit, and that others have renamed or taken away."""

    @property
    def partitions(self) -> tuple[PartitionField, ...] | None:
        """By which fields new files are parted; None if it is by unknown ones."""

    def batches(
        self, names: Sequence[str], bounds: Bounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that it had when it was loaded, in some columns and in any order.

        With `bounds` all rows inside, those with NULL there, and maybe others.
        """

    def append(self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp) -> None:
        """Add files in one commit; `columns` are the table's then. `TableMovedError`."""

    def exchange(self, wanted: NewTable, stamp: Stamp) -> None:
        """Put what is wanted in the place of all that is there, in one commit. `TableMovedError`.

        `RefusedError` where its partitions cannot become others.
        """

    def files(self, column: str) -> Sequence[TableFile]:
        """Return the files of which it was made, with the bounds of a column."""

    def constants(self, file: TableFile) -> Mapping[str, Any]:
        """Return values that all rows of a file have in columns which it need not have."""

    def beside_files(self) -> str:
        """Return what others put on it that its Parquet files do not say; empty for nothing."""

    def replace(
        self,
        gone: Sequence[TableFile],
        files: Sequence[DataFile],
        columns: pa.Schema,
        stamp: Stamp,
        *,
        are_same_rows: bool = False,
    ) -> None:
        """Put files in the place of some of its own, in one commit. `TableMovedError`.

        `columns` are the table's then, with all that it had. `are_same_rows` is told to those who
        follow a table's commits: they need not look.
        """

    def tidy(self) -> None:
        """Drop what is too old by the table's own settings, where a commit does not.

        What the table holds does not depend on it. Files of rows go, too, which no version that is
        kept has. `TableMovedError`.
        """


class LakeTables(Protocol):
    """The tables of one format in one place."""

    @property
    def knows_outcomes(self) -> bool:
        """Tell whether a commit that failed, for whatever reason, is never made afterwards."""

    def load(self, table: TableId) -> LoadedTable | None:
        """Load a table; None if there is none."""

    def create(self, table: TableId, wanted: NewTable, stamp: Stamp) -> None:
        """Create a table. `TableMovedError` if somebody else was first."""
