"""Tables of Delta Lake in a folder, by delta-rs.

What a table holds of our log is the version of an application's transaction, in the same commit as
the files: that is kept in checkpoints. The library stores such versions and compares nothing, so we
do; and it commits on the version that was loaded or not at all, because its retries are off.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    TableNotFoundError,
)
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from airflow_cdc_provider.core.endpoint import Folder, Store
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import PartitionField
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.partitions import Partition, UnfitLayoutError, Value
from airflow_cdc_provider.systems.lake.tables.bounds import bounds_in
from airflow_cdc_provider.systems.lake.tables.store_options import options_of
from airflow_cdc_provider.systems.lake.tables.table import (
    Bounds,
    ClosedTableError,
    DataFile,
    NewTable,
    Stamp,
    TableFile,
    TableMovedError,
    is_believed,
)

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset, ParquetFileFragment

_LOCAL_TIMES = "timestampNtz"
_COLUMN_NAMES = "delta.columnMapping.mode"
_CONSTRAINT = "delta.constraints."
_CLOSED = ("table features required", "is append-only", "Unsupported: Feature")
"""What the library says of a table that it may not read or commit to."""
_BATCH_ROWS = 65_536
_LOG = "_delta_log"
_ONE_IN = 10
"""Files that are not kept longer are deleted with one in so many versions."""
_STAMP = "cdc"
"""The key in a commit's metadata that has the stamp, for people who look at the history."""


def open_tables(place: Folder, pipeline: str, state: LogState) -> DeltaTables:
    """Open the tables of a place, for one pipeline's plan."""
    return DeltaTables(place.store, pipeline, state.plan_id)


class DeltaTables:
    """The Delta tables of one place, as one pipeline's log has them."""

    def __init__(self, place: Store, pipeline: str, plan_id: str) -> None:
        self._place, self._pipeline, self._plan_id = place, pipeline, plan_id
        self._files, self._options = open_files(place), options_of(place)

    @property
    def knows_outcomes(self) -> bool:
        """Tell whether the place is a folder: a put to a store may arrive after it has failed."""
        return self._options is None

    def load(self, table: TableId) -> LoadedDelta | None:
        """Load a table; None if there is none."""
        if not self._files.holds_any(self._log_of(table)):
            return None
        try:
            with _closed():
                found = DeltaTable(self._uri(table), storage_options=self._options)
        except TableNotFoundError:
            return None
        folder = self._files.below(table_folder(table))
        return LoadedDelta(found, folder, self._pipeline, self._plan_id)

    def create(self, table: TableId, wanted: NewTable, stamp: Stamp) -> None:
        """Create a table, in one commit."""
        uri, partitions = self._uri(table), wanted.layout.partitions
        try:
            create_table_with_add_actions(
                uri,
                Schema.from_arrow(wanted.columns),
                _all_added(wanted.files, partitions, wanted.columns),
                mode="error",
                partition_by=[each.column for each in partitions],
                storage_options=self._options,
                commit_properties=_stamped(stamp),
            )
        except DeltaError as error:
            first = f"{self._log_of(table)}/{_version(0)}"
            if self._files.read(first) is not None:
                raise TableMovedError(str(error)) from error
            raise

    @staticmethod
    def _log_of(table: TableId) -> str:
        """Return the folder of a table's log, below the place."""
        return f"{table_folder(table)}/{_LOG}"

    def _uri(self, table: TableId) -> str:
        """Return where a table is: the path of its folder, or a URI."""
        return f"{self._place}/{table_folder(table)}"


class LoadedDelta:
    """A Delta table as it was loaded."""

    def __init__(self, table: DeltaTable, folder: ObjectStore, pipeline: str, plan_id: str) -> None:
        """`folder` is the table's."""
        self._table, self._folder, self._log = table, folder, folder.below(_LOG)
        self._pipeline, self._plan_id = pipeline, plan_id
        self._told: tuple[int, Stamp | None] | None = None

    @property
    def stamp(self) -> Stamp | None:
        """Return what the table holds of a log; of another plan than ours only that it is one."""
        version = self._table.version()
        if self._told is None or self._told[0] != version:
            self._told = version, self._stamp_of_version()
        return self._told[1]

    def _stamp_of_version(self) -> Stamp | None:
        """Return what the loaded version holds of a log."""
        generation = self._table.transaction_version(_generation_of(self._pipeline))
        if generation is None:
            return None
        files = self._table.transaction_version(_files_of(self._pipeline, self._plan_id))
        version = self._table.transaction_version(_order_of(self._pipeline, self._plan_id))
        order = version + SNAPSHOT_ORDER - 1 if version else None
        tells_order = version is not None
        if (restored := self._restored(files or 0, order, tells_order=tells_order)) is not None:
            return replace(restored, generation=generation, order=order)
        plan_id = "" if files is None else self._plan_id
        return Stamp(self._pipeline, plan_id, generation, files or 0, order)

    def _restored(self, files: int, order: int | None, *, tells_order: bool) -> Stamp | None:
        """Return what the table holds if somebody restored an older version; None if nobody did.

        The versions of applications stay then, so the commit that was restored is asked. If neither
        one of ours nor a restored one is in the history, the table must have a row of that order.
        """
        limit = None
        for version, told in self._commits():
            if limit is not None and version > limit:
                continue
            if told.get("operation") == "RESTORE":
                limit = _version_of(told["operationParameters"])
            elif _STAMP in told:
                return None if limit is None else _stamp_from(told[_STAMP])
        if limit is None and is_believed(
            files, order, tells_order=tells_order, has_row=self._has_row
        ):
            return None
        return Stamp(self._pipeline, "", 0, 0)

    def _commits(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield what commits tell of themselves, from the loaded version back; old ones are gone.

        The library's own history lets no other thread of the process run while it reads.
        """
        for version in range(self._table.version(), -1, -1):
            content = self._log.read(_version(version))
            if content is None:
                return
            lines = (json.loads(line) for line in content.splitlines() if b"commitInfo" in line)
            yield version, next((each["commitInfo"] for each in lines if "commitInfo" in each), {})

    def _has_row(self, order: int) -> bool:
        """Tell whether the table has a row of an order."""
        rows = self._rows()
        return bool(rows.head(1, columns=[ORDER], filter=pc.field(ORDER) == order).num_rows)

    def _rows(self) -> Dataset:
        """Return the rows of the loaded version."""
        with _closed():
            return self._table.to_pyarrow_dataset()

    @property
    def columns(self) -> pa.Schema:
        """Return the table's columns in Arrow's types."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def lost_columns(self) -> tuple[str, ...]:
        """Return none: who takes a column away leaves a table that the library does not read."""
        return ()

    def batches(
        self, names: Sequence[str], bounds: Bounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the loaded version, file by file, all or those within bounds."""
        rows = self._rows()
        yield from rows.to_batches(
            columns=list(names),
            filter=None if bounds is None else _within(bounds),
            batch_size=_BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """Return the columns of its partitions."""
        return tuple(map(PartitionField, self._table.metadata().partition_columns))

    def append(self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp) -> None:
        """Add files in one commit; columns that are new are added by a commit before it."""
        with _moved_on():
            self._add_columns(columns)
            self._write(_all_added(files, self.partitions, columns), columns, stamp, "append")

    def _add_columns(self, columns: pa.Schema) -> None:
        """Commit the columns that are new, if any: then the table is to be loaded again."""
        there = set(self.columns.names)
        new = pa.schema([field for field in columns if field.name not in there])
        if new.names:
            self._table.alter.add_columns(
                Schema.from_arrow(new).fields,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
            raise TableMovedError("columns were added to it")

    def exchange(self, wanted: NewTable, stamp: Stamp) -> None:
        """Put what is wanted in the place of all that is there, columns too, in one commit.

        The library cannot make other partitions: it then writes what it does not read itself.
        """
        columns, fields = wanted.columns, wanted.layout.partitions
        if fields != self.partitions:
            raise UnfitLayoutError(
                "a table of Delta keeps the partitions with which it was made, by "
                f"{', '.join(map(str, self.partitions)) or 'none'}"
            )
        with _moved_on():
            if any(_is_local_time(field.type) for field in columns) and not self._has_local_times:
                self._table.alter.add_feature(
                    TableFeatures.TimestampWithoutTimezone,
                    allow_protocol_versions_increase=True,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                raise TableMovedError("it can have times without a zone now")
            added = _all_added(wanted.files, fields, columns)
            self._write(added, columns, stamp, "overwrite")

    def files(self, column: str) -> Sequence[DeltaFile]:
        """Return the files of the loaded version, with the bounds of a column."""
        rows, fields = self._rows(), self.partitions
        # what the log has in percent signs the library opens without
        actions = self._actions()
        actions = {unquote(path): each for path, each in actions.items()} | actions
        return [
            DeltaFile(each, rows.schema, actions[each.path], column, fields)
            for each in rows.get_fragments()
        ]

    def constants(self, file: TableFile) -> Mapping[str, Any]:
        """Return the values of a file's partition: others leave them out of the file."""
        return file.shared if isinstance(file, DeltaFile) else {}

    def beside_files(self) -> str:
        """Return what others put on it that its files do not say, by its protocol."""
        found = {*(self._table.protocol().reader_features or ())} - {_LOCAL_TIMES}
        mapped = self._table.metadata().configuration.get(_COLUMN_NAMES, "none")
        names = [*sorted(found), *([] if mapped == "none" else [_COLUMN_NAMES])]
        return f"it has {', '.join(names)}" if names else ""

    def _actions(self) -> dict[str, Mapping[str, Any]]:
        """Return what the log tells of each file; days as numbers, for Python has no year 0."""
        told = pa.table(self._table.get_add_actions(flatten=True))
        for place, field in enumerate(told.schema):
            if pa.types.is_date(field.type):
                days = told.column(place).cast(pa.date32()).cast(pa.int32())
                told = told.set_column(place, field.name, days)
        return {each["path"]: each for each in told.to_pylist()}

    def replace(
        self,
        gone: Sequence[TableFile],
        files: Sequence[DataFile],
        columns: pa.Schema,
        stamp: Stamp,
        *,
        are_same_rows: bool = False,
    ) -> None:
        """Put files in the place of some of its own in one commit, on the columns it has."""
        now_ms = time.time_ns() // 1_000_000
        removed = [
            # the library puts the percent signs in again
            RemoveAction(unquote(each.path), not are_same_rows, now_ms, each.bytes, each.values)
            for each in gone
            if isinstance(each, DeltaFile)
        ]
        with _moved_on():
            self._add_columns(columns)
            added = _all_added(files, self.partitions, columns, data_change=not are_same_rows)
            self._write([*removed, *added], columns, stamp, "append")

    @property
    def _has_local_times(self) -> bool:
        """Tell whether the table can have times without a zone, by its protocol."""
        return _LOCAL_TIMES in (self._table.protocol().reader_features or ())

    def tidy(self) -> None:
        """Delete files that were taken away longer ago than the table keeps them, now and then.

        The library writes checkpoints and drops old logs with its commits.
        """
        if self._table.version() % _ONE_IN == 0:
            for path in self._table.vacuum(dry_run=True):
                self._folder.delete(path)

    def _write(
        self,
        actions: Sequence[AddAction | RemoveAction],
        columns: pa.Schema,
        stamp: Stamp,
        mode: str,
    ) -> None:
        """Commit files on the version that was loaded, and read on to what was made.

        The library checks no constraints.
        """
        told = self._table.metadata().configuration
        if checks := [name for name in told if name.startswith(_CONSTRAINT)]:
            names = ", ".join(name.removeprefix(_CONSTRAINT) for name in checks)
            raise ClosedTableError(f"it has the constraint {names}, which nobody would check")
        self._table.create_write_transaction(
            [*actions],
            mode,
            Schema.from_arrow(columns),
            commit_properties=_stamped(stamp),
        )
        with suppress(DeltaError, OSError):  # it is made: who needs it loads it anew
            self._table.update_incremental()


class DeltaFile:
    """A file of a version."""

    def __init__(
        self,
        rows: ParquetFileFragment,
        columns: pa.Schema,
        action: Mapping[str, Any],
        column: str,
        fields: Sequence[PartitionField],
    ) -> None:
        self._rows, self._columns, self._action, self._column = rows, columns, action, column
        self._fields = fields

    @property
    def path(self) -> str:
        """Return its path below the table, as the table's log has it."""
        return str(self._action["path"])

    @property
    def rows(self) -> int:
        """Return how many rows it was written with."""
        told = self._action.get("num_records")
        return int(self._rows.count_rows() if told is None else told)

    @property
    def bytes(self) -> int:
        """Return its size."""
        return int(self._action["size_bytes"])

    @property
    def partition(self) -> Partition:
        """Return what its rows share."""
        return tuple(self._action[f"partition.{each.column}"] for each in self._fields)

    @property
    def values(self) -> dict[str, str | None]:
        """Return the same as the table's log has it."""
        return _values_of(self.partition, self._fields, self._columns)

    @property
    def bounds(self) -> Bounds | None:
        """Return the smallest and the greatest number of the column, as the file tells."""
        return bounds_in(self._rows.metadata, self._column)

    @property
    def shared(self) -> Mapping[str, Any]:
        """Return the values of its partition."""
        told = ((name.partition("."), value) for name, value in self._action.items())
        return {name: value for (kind, _, name), value in told if kind == "partition" and name}

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows."""
        there = [name for name in names if name in self._columns.names]
        yield from self._rows.to_batches(
            self._columns, columns=there, batch_size=_BATCH_ROWS, batch_readahead=2
        )


def _within(bounds: Bounds) -> pc.Expression:
    """Return the filter of rows within bounds, or with NULL there."""
    column = pc.field(bounds.column)
    inside = pc.scalar(True)  # noqa: FBT003 - of the library
    if bounds.low is not None:
        inside &= column >= bounds.low
    if bounds.high is not None:
        inside &= column <= bounds.high
    return inside | column.is_null()


def _version(number: int) -> str:
    """Return the name of a commit's file in a table's log."""
    return f"{number:020d}.json"


def _is_local_time(kind: pa.DataType) -> bool:
    """Tell whether a type is a time without a zone, which a table must say that it has."""
    return pa.types.is_timestamp(kind) and kind.tz is None


@contextmanager
def _moved_on() -> Iterator[None]:
    """Tell that another writer was first in our own words."""
    try:
        with _closed():
            yield
    except CommitFailedError as error:
        raise TableMovedError(str(error)) from error


@contextmanager
def _closed() -> Iterator[None]:
    """Tell in our own words that the library may not read a table, or not commit to it."""
    try:
        yield
    except DeltaError as error:
        is_closed = isinstance(error, DeltaProtocolError)
        if is_closed or any(mark in str(error) for mark in _CLOSED):
            raise ClosedTableError(str(error)) from error
        raise


def _all_added(
    files: Sequence[DataFile],
    fields: Sequence[PartitionField],
    columns: pa.Schema,
    *,
    data_change: bool = True,
) -> list[AddAction]:
    """Return what a commit says of files that it adds, with the values of their partitions."""
    return [
        _added(each, _values_of(each.partition, fields, columns), data_change=data_change)
        for each in files
    ]


def _values_of(
    partition: Partition, fields: Sequence[PartitionField], columns: pa.Schema
) -> dict[str, str | None]:
    """Return the values of a partition as texts; `UnfitLayoutError` for one that has none."""
    return {
        each.column: _text_of(value, each.column, columns.field(each.column).type)
        for each, value in zip(fields, partition, strict=True)
    }


def _text_of(value: Value, column: str, kind: pa.DataType) -> str | None:
    """Return a partition's value as a text."""
    if value is None:
        return None
    if value == "":
        raise UnfitLayoutError(
            f"{column} is empty in a row, and for Delta the empty text of a partition is NULL"
        )
    if pa.types.is_date32(kind):
        return str(np.datetime64(int(value), "D"))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _added(file: DataFile, partition: dict[str, str | None], *, data_change: bool) -> AddAction:
    """Return what a commit says of a file that it adds: its numbers of rows and bytes."""
    # where only some columns have bounds, the library's own reader leaves files out that have rows
    stats = json.dumps({"numRecords": file.rows})
    return AddAction(
        path=file.name.rpartition("/")[2],
        size=file.bytes,
        partition_values=partition,
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=stats,
    )


def _stamped(stamp: Stamp) -> CommitProperties:
    """Return a stamp as the properties of a commit, without the library's own retries."""
    order = 0 if stamp.order is None else stamp.order - SNAPSHOT_ORDER + 1
    told = {"pipeline": stamp.pipeline, "plan": stamp.plan_id, "generation": stamp.generation}
    return CommitProperties(
        custom_metadata={_STAMP: json.dumps({**told, "files": stamp.files})},
        max_commit_retries=0,
        app_transactions=[
            Transaction(_generation_of(stamp.pipeline), stamp.generation),
            Transaction(_files_of(stamp.pipeline, stamp.plan_id), stamp.files),
            Transaction(_order_of(stamp.pipeline, stamp.plan_id), order),
        ],
    )


def _stamp_from(text: str) -> Stamp:
    """Return the stamp that a commit's metadata has."""
    told = json.loads(text)
    return Stamp(told["pipeline"], told["plan"], told["generation"], told["files"])


def _version_of(parameters: Mapping[str, Any]) -> int:
    """Return the version that a RESTORE names; 0, the first, if it names a time."""
    version = str(parameters.get("version"))
    return int(version) if version.isdigit() else 0


def _generation_of(pipeline: str) -> str:
    """Return the name under which a table keeps the generation that committed last."""
    return f"cdc:{pipeline}:generation"


def _files_of(pipeline: str, plan_id: str) -> str:
    """Return the name under which a table keeps how many files of a plan it has."""
    return f"cdc:{pipeline}:{plan_id}:files"


def _order_of(pipeline: str, plan_id: str) -> str:
    """Return the name under which a table keeps a plan's greatest order, where 0 is none."""
    return f"cdc:{pipeline}:{plan_id}:order"
