"""Tables of Delta Lake in a folder, by delta-rs.

What a table holds of our log is the version of an application's transaction, in the same commit as
the files: that is kept in checkpoints. The library stores such versions and compares nothing, so we
do; and it commits on the version that was loaded or not at all, because its retries are off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.tables.table import Bounds, DataFile, Stamp, TableMovedError

_LOCAL_TIMES = "timestampNtz"
_BATCH_ROWS = 65_536
_STAMP = "cdc"
"""The key in a commit's metadata that has the stamp, for people who look at the history."""


def open_tables(root: Path, pipeline: str, state: LogState) -> DeltaTables:
    """Open the folder's tables, for one pipeline's plan."""
    return DeltaTables(root, pipeline, state.plan_id)


class DeltaTables:
    """The Delta tables of one folder, as one pipeline's log has them."""

    def __init__(self, root: Path, pipeline: str, plan_id: str) -> None:
        self._root, self._pipeline, self._plan_id = root, pipeline, plan_id

    def load(self, table: TableId) -> LoadedDelta | None:
        """Load a table; None if there is none."""
        folder = self._folder(table)
        if not (folder / "_delta_log").is_dir():
            return None
        try:
            return LoadedDelta(DeltaTable(str(folder)), self._pipeline, self._plan_id)
        except TableNotFoundError:
            return None

    def create(
        self, table: TableId, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp
    ) -> None:
        """Create a table with these files, in one commit."""
        folder = self._folder(table)
        try:
            create_table_with_add_actions(
                str(folder),
                Schema.from_arrow(columns),
                [_added(each) for each in files],
                mode="error",
                commit_properties=_stamped(stamp),
            )
        except DeltaError as error:
            if DeltaTable.is_deltatable(str(folder)):
                raise TableMovedError(str(error)) from error
            raise

    def _folder(self, table: TableId) -> Path:
        """Return a table's folder."""
        return (self._root / table_folder(table)).absolute()


class LoadedDelta:
    """A Delta table as it was loaded."""

    def __init__(self, table: DeltaTable, pipeline: str, plan_id: str) -> None:
        self._table, self._pipeline, self._plan_id = table, pipeline, plan_id

    @property
    def stamp(self) -> Stamp | None:
        """Return what the table holds of a log; of another plan than ours only that it is one."""
        generation = self._table.transaction_version(_generation_of(self._pipeline))
        if generation is None:
            return None
        files = self._table.transaction_version(_files_of(self._pipeline, self._plan_id))
        version = self._table.transaction_version(_order_of(self._pipeline, self._plan_id))
        order = version + SNAPSHOT_ORDER - 1 if version else None
        if (restored := self._restored(order)) is not None:
            return replace(restored, generation=generation, order=order)
        plan_id = "" if files is None else self._plan_id
        return Stamp(self._pipeline, plan_id, generation, files or 0, order)

    def _restored(self, order: int | None) -> Stamp | None:
        """Return what the table holds if somebody restored an older version; None if nobody did.

        The versions of applications stay then, so the commit that was restored is asked. If neither
        one of ours nor a restored one is in the history, the table must have a row of that order.
        """
        if _STAMP in self._table.history(1)[0]:
            return None
        limit = None
        for each in self._table.history():
            if limit is not None and each["version"] > limit:
                continue
            if each.get("operation") == "RESTORE":
                limit = _version_of(each["operationParameters"])
            elif _STAMP in each:
                return None if limit is None else _stamp_from(each[_STAMP])
        if limit is None and (order is None or self._has_row(order)):
            return None
        return Stamp(self._pipeline, "", 0, 0)

    def _has_row(self, order: int) -> bool:
        """Tell whether the table has a row of an order."""
        rows = self._table.to_pyarrow_dataset()
        return bool(rows.head(1, columns=[ORDER], filter=pc.field(ORDER) == order).num_rows)

    @property
    def columns(self) -> pa.Schema:
        """Return the table's columns in Arrow's types."""
        return pa.schema(self._table.schema().to_arrow())

    def batches(
        self, names: Sequence[str], bounds: Bounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the loaded version, file by file, all or those within bounds."""
        rows = self._table.to_pyarrow_dataset()
        yield from rows.to_batches(
            columns=list(names),
            filter=None if bounds is None else _within(bounds),
            batch_size=_BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )

    def append(self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp) -> None:
        """Add files in one commit; columns that are new are added by a commit before it."""
        there = set(self.columns.names)
        new = pa.schema([field for field in columns if field.name not in there])
        with _moved_on():
            if new.names:
                self._table.alter.add_columns(
                    Schema.from_arrow(new).fields,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                raise TableMovedError("columns were added to it")
            self._write(files, columns, stamp, "append")

    def exchange(self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp) -> None:
        """Put files in the place of all that is there, columns too, in one commit."""
        with _moved_on():
            if any(_is_local_time(field.type) for field in columns) and not self._has_local_times:
                self._table.alter.add_feature(
                    TableFeatures.TimestampWithoutTimezone,
                    allow_protocol_versions_increase=True,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                raise TableMovedError("it can have times without a zone now")
            self._write(files, columns, stamp, "overwrite")

    @property
    def _has_local_times(self) -> bool:
        """Tell whether the table can have times without a zone, by its protocol."""
        return _LOCAL_TIMES in (self._table.protocol().reader_features or ())

    def tidy(self) -> None:
        """Do nothing: the library writes checkpoints and drops old logs with its commits."""

    def _write(
        self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp, mode: str
    ) -> None:
        """Commit files on the version that was loaded."""
        self._table.create_write_transaction(
            [_added(each) for each in files],
            mode,
            Schema.from_arrow(columns),
            commit_properties=_stamped(stamp),
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


def _is_local_time(kind: pa.DataType) -> bool:
    """Tell whether a type is a time without a zone, which a table must say that it has."""
    return pa.types.is_timestamp(kind) and kind.tz is None


@contextmanager
def _moved_on() -> Iterator[None]:
    """Tell that another writer was first in our own words."""
    try:
        yield
    except CommitFailedError as error:
        raise TableMovedError(str(error)) from error


def _added(file: DataFile) -> AddAction:
    """Return what a commit says of a file that it adds: its numbers of rows and bytes."""
    changed_ms = int(file.path.stat().st_mtime * 1000)
    stats = json.dumps({"numRecords": file.rows})
    return AddAction(
        path=file.path.name,
        size=file.bytes,
        partition_values={},
        modification_time=changed_ms,
        data_change=True,
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


def _version_of(parameters: Mapping[str, str]) -> int:
    """Return the version that a RESTORE names; 0, the first, if it names a time."""
    version = parameters.get("version")
    return int(version) if version is not None and version.isdigit() else 0


def _generation_of(pipeline: str) -> str:
    """Return the name under which a table keeps the generation that committed last."""
    return f"cdc:{pipeline}:generation"


def _files_of(pipeline: str, plan_id: str) -> str:
    """Return the name under which a table keeps how many files of a plan it has."""
    return f"cdc:{pipeline}:{plan_id}:files"


def _order_of(pipeline: str, plan_id: str) -> str:
    """Return the name under which a table keeps a plan's greatest order, where 0 is none."""
    return f"cdc:{pipeline}:{plan_id}:order"
