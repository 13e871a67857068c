"""What a table holds of our log: by itself, and with the log's files that it does not have yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    RefusedError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.behind import behind
from airflow_cdc_provider.systems.lake.columns import OP, ORDER, ROW, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.gathered import batches_of, in_columns
from airflow_cdc_provider.systems.lake.tables.table import (
    Bounds,
    ClosedTableError,
    LakeTables,
    LoadedTable,
    Stamp,
)

OpenTables = Callable[[LogState], LakeTables]
"""Opens a folder's tables, as a state of the log knows them."""
Found = TypeVar("Found")
_TRIES = 5
_NOISE = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|\(Background on this error at: [^)]*\)"
    r"|\[(?:SQL|parameters): .*?\](?=\s*(?:\n|\Z|\[parameters: |\(Background ))",
    re.DOTALL,
)
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table as its next commit would make it."""

    table: TableId
    store: ObjectStore
    columns: pa.Schema
    loaded: LoadedTable | None
    """None where the files take the place of all that is there."""
    files: Sequence[SealedFile]
    """Of the log, behind what the table has."""
    plan_id: str
    """Of the log."""
    settled: int
    """How many of the plan's files of changes it has with `files`."""
    is_mirror: bool = False
    """All rows of the table are current ones, whoever wrote them."""

    def batches(
        self, names: Sequence[str], bounds: Bounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in any order; of the table as it was loaded.

        With `bounds` all rows inside, those with NULL there, and maybe others.
        """
        columns = pa.schema([self.columns.field(name) for name in names])
        for each in self.files:  # first, for they go with the next commit
            yield from batches_of(self.store, each, columns)
        if self.loaded is not None:
            names_there = self.loaded.columns.names
            there = [name for name in names if name in names_there]
            known = None if bounds is None or bounds.column not in names_there else bounds
            with libraries_explained(partial(unreadable, self.store, table=self.table)):
                for batch in self.loaded.batches(there, known):
                    rows = in_columns(pa.Table.from_batches([batch]), columns)
                    yield from (_as_read(rows) if self.is_mirror else rows).to_batches()


@dataclass(frozen=True, slots=True)
class HeldTables:
    """The tables of one pipeline's lake, to be read; nothing is committed."""

    store: ObjectStore
    pipeline: str
    open_tables: OpenTables
    widens: bool
    """A column's type can become one that holds more values."""
    are_mirrors: bool = False
    """They hold the current rows."""

    def looked_at(self, table: TableId, use: Callable[[HeldTable | None], Found]) -> Found:
        """Use what a table holds now; that is None if neither lake nor log have anything of it.

        Files of the log that are gone by then are in the table: it is looked at again.
        """
        manifest = Manifest(self.store, self.pipeline)
        for left in reversed(range(_TRIES)):
            state = manifest.read()
            taken = dict(state.taken)
            try:
                return use(self.at(table, state))
            except IntegrityError:
                if not left or manifest.read().taken == taken:
                    raise
        raise AssertionError("the last try returns or raises")

    def at(self, table: TableId, state: LogState) -> HeldTable | None:
        """Look what a table holds after a state of the log; it may be ahead of an old state.

        None if neither lake nor log have anything of it. `IntegrityError` if files of the log are
        gone: of an old state the table may have them.
        """
        with libraries_explained(partial(unreadable, self.store, table=table)):
            loaded = self.open_tables(state).load(table)
            stamp = None if loaded is None else own_stamp(loaded, table, self.store, self.pipeline)
        there = pa.schema([]) if loaded is None else loaded.columns
        known = None
        if stamp is not None and stamp.plan_id == state.plan_id:
            known = min(stamp.files, state.settled(table_folder(table)))
        new = behind(self.store, state, table, there=there, known=known, widens=self.widens)
        if not new.columns.names:
            return None
        return HeldTable(
            table,
            self.store,
            new.columns,
            None if new.is_anew else loaded,
            (*new.read, *new.changes),
            state.plan_id,
            state.settled(table_folder(table)),
            self.are_mirrors,
        )


def _as_read(rows: pa.Table) -> pa.Table:
    """Return current rows of which each counts, also those that others added without an order."""
    if {OP, ORDER} - {*rows.column_names}:
        return rows
    place, kind = rows.schema.get_field_index(ORDER), rows.schema.field(ORDER)
    rows = rows.set_column(place, kind, rows.column(ORDER).fill_null(SNAPSHOT_ORDER))
    place, kind = rows.schema.get_field_index(OP), rows.schema.field(OP)
    return rows.set_column(place, kind, pa.repeat(pa.scalar(ROW, kind.type), rows.num_rows))


def own_stamp(loaded: LoadedTable, table: TableId, store: ObjectStore, pipeline: str) -> Stamp:
    """Return what a table has of a pipeline's log; refuse one of others."""
    stamp = loaded.stamp
    if stamp is None or stamp.pipeline != pipeline:
        whose = "nobody we know" if stamp is None else f"pipeline {stamp.pipeline}"
        raise RefusedError(
            f"the table {table} of the lake was made by {whose}",
            where=str(store),
            risk="rows of two owners would be mixed; nothing was committed to it",
            remedy="drop it in the lake, or route the source's table to another name",
        )
    return stamp


@contextmanager
def libraries_explained(told: Callable[[Exception], CdcError]) -> Iterator[None]:
    """Tell what the formats' libraries meet, of many kinds, as an error that `told` makes of it."""
    try:
        yield
    except CdcError:
        raise
    except Exception as error:
        raise told(error) from error


def said_by(error: Exception) -> str:
    """Return what a library says in its error, in one line, without colours, links and SQL."""
    text = " ".join(_NOISE.sub("", str(error)).split())
    return f"{type(error).__name__}: {text[:_LONGEST]}"


def unreadable(store: ObjectStore, error: Exception, *, table: TableId | None = None) -> CdcError:
    """Return the error for tables that cannot be read, or for the one that others closed."""
    if table is not None and isinstance(error, ClosedTableError):
        return RefusedError(
            f"others have closed {table} to this pipeline: {said_by(error)}",
            where=str(store),
            risk="none: nothing was changed",
            remedy="take off the table what it names; or route the source's table to another name, "
            "then `reset` it",
        )
    return SinkUnreachableError(
        f"tables cannot be read: {said_by(error)}",
        where=str(store),
        risk="none: nothing was changed",
        remedy="mend what it says, such as a folder or a catalog that is out of reach",
    )
