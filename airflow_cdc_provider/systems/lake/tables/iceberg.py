"""Tables of Apache Iceberg, by PyIceberg, in a catalog of SQLite beside them or in a server.

What a table holds of our log is among its properties, which are set in the same commit as the
files are added: snapshots expire, properties stay. Files have no field ids, so their columns are
matched by name, by the mapping that the table has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import IntegerType, LongType

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import RefusedError, SinkUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import NO_LAYOUT, PartitionField
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.lake.columns import ORDER
from airflow_cdc_provider.systems.lake.partitions import Partition
from airflow_cdc_provider.systems.lake.table_columns import kept_columns
from airflow_cdc_provider.systems.lake.tables.iceberg_commits import (
    OneLook,
    Replacing,
    Rewriting,
    put_files,
)
from airflow_cdc_provider.systems.lake.tables.iceberg_layout import (
    fields_of,
    lay_out,
    require_free_names,
)
from airflow_cdc_provider.systems.lake.tables.store_options import IN_A_FOLDER
from airflow_cdc_provider.systems.lake.tables.table import (
    Bounds,
    DataFile,
    NewTable,
    Stamp,
    TableFile,
    TableMovedError,
    is_believed,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

    from airflow_cdc_provider.systems.file_log.state import LogState
    from airflow_cdc_provider.systems.lake.tables.rest_views import RestViews

CATALOG = "catalog.db"
_PIPELINE, _PLAN, _GENERATION, _FILES, _WRITTEN, _ORDER = (
    f"cdc.{name}" for name in ("pipeline", "plan", "generation", "files", "written", "order")
)
_COLUMNS = "cdc.columns"
_PROPERTIES = {"commit.retry.num-retries": "0"}
_KEPT, _KEPT_MS = "history.expire.min-snapshots-to-keep", "history.expire.max-snapshot-age-ms"
_DEFAULTS = {_KEPT: "100", _KEPT_MS: "3600000"}
_AT_FIRST = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    **_DEFAULTS,
}
"""Of a table that is made: what a commit costs does not grow with each one before it."""
_ONE_IN = 5
"""Snapshots expire once a fifth as many are too old as are kept."""


def open_tables(place: Folder, pipeline: str, state: LogState) -> IcebergTables:  # noqa: ARG001 - as of each format
    """Open the tables of a place; their catalog must be there if the log has given files to one."""
    is_new = not any(state.taken.values())
    if place.catalog is None:
        folder = Path(place.path).absolute()
        catalog = _own_catalog(folder, is_new=is_new)
        return IcebergTables(str(folder), catalog, is_own=True, is_new=is_new)
    # its libraries are not needed for folders
    from airflow_cdc_provider.systems.lake.tables.catalogs import open_catalog  # noqa: PLC0415

    catalog = open_catalog(place.catalog, place.store, is_new=is_new)
    # nobody decodes the path of such a URI
    root = f"file://{place.path}" if place.path.startswith("/") else place.path
    return IcebergTables(root, catalog, is_own=False, is_new=is_new)


def _own_catalog(folder: Path, *, is_new: bool) -> Catalog:
    """Open the catalog in a folder of tables; `is_new`: it is made if it is not there."""
    path = folder / CATALOG
    if not is_new and not _has_bytes(path):
        raise _catalog_gone(path)
    return SqlCatalog(
        "lake",
        uri=f"sqlite:///{path}",
        warehouse=f"file://{folder}",  # with a scheme its library logs no line at each look
        init_catalog_tables=str(is_new).lower(),
        **IN_A_FOLDER,
    )


class IcebergTables:
    """The Iceberg tables of one place."""

    def __init__(self, root: str, catalog: Catalog, *, is_own: bool, is_new: bool) -> None:
        """`root` is a path or URI; a catalog of its `own` is a file beside the tables.

        `is_new`: the log has given no files to them yet.
        """
        self._root, self._catalog = root, catalog
        self._is_own, self._is_new = is_own, is_new
        self._views: RestViews | None = None

    @property
    def knows_outcomes(self) -> bool:
        """Tell whether the catalog is a file: a server may commit after it has failed to answer."""
        return self._is_own

    def views(self, pipeline: str) -> RestViews:
        """Return the views of a pipeline in the catalog. `RefusedError` if it has none."""
        # its libraries are not needed for folders
        from airflow_cdc_provider.systems.lake.tables.rest_views import views_in  # noqa: PLC0415

        self._views = self._views or views_in(self._catalog, pipeline)
        return self._views

    def load(self, table: TableId) -> IcebergTable | None:
        """Load a table; None if there is none."""
        try:
            return IcebergTable(self._catalog.load_table(_name(table)), self._root)
        except NoSuchTableError:
            # readers who open a catalog that is gone make an empty one
            is_known = self._is_own and not self._is_new
            if is_known and not self._catalog.list_namespaces():
                raise _catalog_gone(Path(self._root) / CATALOG) from None
            return None
        except FileNotFoundError as error:
            raise RefusedError(
                f"the catalog knows {table}, and files of that table are gone: {error}",
                where=self._root,
                risk="none: nothing was committed to the table, and the log has what it lacks",
                remedy="put the files back; or drop the table in the catalog, or delete the "
                "catalog if it knows nothing else, then `reset` the pipeline: it is made anew",
            ) from error

    def create(self, table: TableId, wanted: NewTable, stamp: Stamp) -> None:
        """Create a table, empty first: its files come by a commit on that."""
        folder = f"{self._root}/{table_folder(table)}"
        namespace, _ = _name(table)
        with _moved_on():
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace((namespace,))
            empty = Stamp(stamp.pipeline, "", stamp.generation, 0)
            made = self._catalog.create_table(
                _name(table),
                schema=wanted.columns,
                location=folder,
                properties={**_PROPERTIES, **_AT_FIRST, **_stamped(empty)},
            )
        IcebergTable(made, self._root).exchange(wanted, stamp)


class IcebergTable:
    """An Iceberg table as it was loaded."""

    def __init__(self, table: Table, root: str) -> None:
        """`root` is the path or URI of all tables."""
        self._table, self._root = table, root

    @property
    def stamp(self) -> Stamp | None:
        """Return what the table holds of a log.

        Properties stay when somebody sets the table back, so they count only with the snapshot
        that was made with them. One that has expired cannot be asked: then the table must have a
        row of the greatest order.
        """
        found = self._table.properties
        if _PIPELINE not in found:
            return None
        order = int(found[_ORDER]) if found.get(_ORDER) else None
        told = Stamp(
            found[_PIPELINE], found[_PLAN], int(found[_GENERATION]), int(found[_FILES]), order
        )
        written = found.get(_WRITTEN, "")
        if not written:
            return told
        last = self._last_written()
        knows = _ORDER in found
        if last is None and not is_believed(
            told.files, order, tells_order=knows, has_row=self._has_row
        ):
            last = "", 0
        if last is None or last == (told.plan_id, int(written)):
            return told
        return replace(told, plan_id=last[0], files=last[1])

    def _last_written(self) -> tuple[str, int] | None:
        """Return plan and files of the last snapshot of ours that the table is made from.

        None if that has expired.
        """
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return "", 0
        while snapshot is not None:
            summary = snapshot.summary
            if summary is not None and summary.get(_FILES) is not None:
                return str(summary.get(_PLAN)), int(summary.get(_FILES) or 0)
            # who expires snapshots may clear the parent of the oldest one that stays, or not
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return None

    def _has_row(self, order: int) -> bool:
        """Tell whether the table has a row of an order."""
        scan = self._table.scan(f"{ORDER} = {order}", selected_fields=(ORDER,), limit=1)
        return any(batch.num_rows for batch in scan.to_arrow_batch_reader())

    @property
    def columns(self) -> pa.Schema:
        """Return the table's columns in Arrow's types."""
        return self._table.schema().as_arrow()

    @property
    def lost_columns(self) -> tuple[str, ...]:
        """Return the columns of our last commit that the table has no more; none if not known.

        One that has come back under the name is another one. Earlier releases told names alone.
        """
        told = json.loads(self._table.properties.get(_COLUMNS, "[]"))
        there = {field.name: field.field_id for field in self._table.schema().fields}
        numbers = told if isinstance(told, dict) else {name: there.get(name) for name in told}
        return tuple(n for n, number in numbers.items() if number is None or there.get(n) != number)

    def batches(
        self, names: Sequence[str], bounds: Bounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the loaded snapshot, file by file, all or those within bounds."""
        inside = AlwaysTrue() if bounds is None else _within(bounds)
        yield from self._table.scan(inside, selected_fields=tuple(names)).to_arrow_batch_reader()

    def append(self, files: Sequence[DataFile], columns: pa.Schema, stamp: Stamp) -> None:
        """Add files in one commit."""
        with self._commit(columns, stamp) as transaction:
            self._add(transaction, files, stamp)

    @property
    def partitions(self) -> tuple[PartitionField, ...] | None:
        """Return the fields of its partitions; None if one is not known here."""
        return fields_of(self._table.metadata)

    def exchange(self, wanted: NewTable, stamp: Stamp) -> None:
        """Put what is wanted in the place of all that is there, in one commit."""
        kept = kept_columns(self.columns, wanted.columns)
        with _moved_on(), OneLook(self._table) as transaction:
            if any(self._table.scan().plan_files()):
                # whoever goes back to this snapshot has nothing of ours
                nothing = replace(stamp, plan_id="", files=0)
                transaction.delete(AlwaysTrue(), snapshot_properties=_stamped(nothing))
            if gone := [name for name in self.columns.names if name not in kept]:
                lay_out(transaction, NO_LAYOUT)  # it may name them
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    for name in gone:
                        update.delete_column((name,))
            self._set(transaction, wanted.columns, stamp, kept)
            lay_out(transaction, wanted.layout)
            self._add(transaction, wanted.files, stamp)

    def files(self, column: str) -> Sequence[IcebergFile]:
        """Return the files of the loaded snapshot, with the bounds of a column."""
        tasks = self._table.scan().plan_files()
        return [IcebergFile(self._table, each, column) for each in tasks]

    def constants(self, file: TableFile) -> Mapping[str, Any]:  # noqa: ARG002 - of the port
        """Return none: files have the columns that they are partitioned by."""
        return {}

    def beside_files(self) -> str:
        """Return what others put on it that its files do not say: deleted rows, other names."""
        if any(task.delete_files for task in self._table.scan().plan_files()):
            return "rows are deleted by files beside them"
        mapping = self._table.name_mapping()
        known = {each.field_id: {*each.names} for each in (mapping.root if mapping else ())}
        renamed = [
            each.name
            for each in self._table.schema().fields
            if known.get(each.field_id, {each.name}) != {each.name}
        ]
        return f"column {renamed[0]} had another name" if renamed else ""

    def replace(
        self,
        gone: Sequence[TableFile],
        files: Sequence[DataFile],
        columns: pa.Schema,
        stamp: Stamp,
        *,
        are_same_rows: bool = False,
    ) -> None:
        """Put files in the place of some of its own, in one commit and one snapshot."""
        with self._commit(columns, stamp) as transaction:
            transaction.set_properties({_WRITTEN: str(stamp.files)})
            told, kind = _stamped(stamp), Rewriting if are_same_rows else Replacing
            snapshot = kind(
                Operation.OVERWRITE, transaction, self._table.io, snapshot_properties=told
            )
            with snapshot:
                snapshot.put(
                    self._root,
                    files,
                    [each.task.file for each in gone if isinstance(each, IcebergFile)],
                )

    def tidy(self) -> None:
        """Expire snapshots by the table's own settings, and delete what only they had."""
        table, found = self._table, {**_DEFAULTS, **self._table.properties}
        ordered = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms)
        most, now_ms = int(found[_KEPT]), time.time_ns() // 1_000_000
        old = [
            each
            for each in ordered[: max(0, len(ordered) - most)]
            if each.timestamp_ms < now_ms - int(found[_KEPT_MS])
        ]
        if len(old) <= most // _ONE_IN:
            return
        before = datetime.fromtimestamp((old[-1].timestamp_ms + 1) / 1000, UTC)
        with _moved_on():
            table.maintenance.expire_snapshots().older_than(before).commit()
        table = table.refresh()
        kept = {each.snapshot_id for each in table.metadata.snapshots}
        left = _lists_of(table, table.metadata.snapshots)
        gone = _lists_of(table, [each for each in old if each.snapshot_id not in kept])
        paths = {*gone} - {*left}
        only_old = [gone[path] for path in paths]
        paths |= _files_of(table, only_old) - _files_of(table, left.values(), living=True)
        for path in paths:
            with suppress(FileNotFoundError):
                table.io.delete(path)

    @contextmanager
    def _commit(self, columns: pa.Schema, stamp: Stamp) -> Iterator[Transaction]:
        """Open a commit that sets the columns and the stamp."""
        with _moved_on(), OneLook(self._table) as transaction:
            self._set(transaction, columns, stamp)
            yield transaction

    def _set(
        self,
        transaction: Transaction,
        columns: pa.Schema,
        stamp: Stamp,
        kept: Collection[str] | None = None,
    ) -> None:
        """Set the columns and the stamp; retries by the library are off.

        `kept` are the columns that stay what they are; None: all of them.
        """
        there = {*self.columns.names}
        left = there if kept is None else {*kept}
        schema = self._table.schema()
        require_free_names(self._table.metadata, {*columns.names} - left)
        if left != there or kept_columns(self.columns, columns, exactly=True) != {*columns.names}:
            with transaction.update_schema() as update:
                update.union_by_name(columns)
            schema = transaction.table_metadata.schema()
        numbers = {name: schema.find_field(name).field_id for name in columns.names}
        told = {_COLUMNS: json.dumps(numbers), **_stamped(stamp)}
        transaction.set_properties({**_PROPERTIES, **told})

    def _add(self, transaction: Transaction, files: Sequence[DataFile], stamp: Stamp) -> None:
        """Add files to a commit as they are, if any, as a snapshot.

        Without one the catalog would compare nothing with the table as it was loaded.
        """
        transaction.set_properties({_WRITTEN: str(stamp.files)})
        told = _stamped(stamp)
        if not files:
            transaction.update_snapshot(snapshot_properties=told).fast_append().commit()
            return
        with transaction.update_snapshot(snapshot_properties=told).merge_append() as snapshot:
            put_files(transaction, snapshot, self._root, files)


class IcebergFile:
    """A file of a snapshot."""

    def __init__(self, table: Table, task: FileScanTask, column: str) -> None:
        self._table, self.task, self._column = table, task, column

    @property
    def path(self) -> str:
        """Return where it is, as the table says."""
        return str(self.task.file.file_path)

    @property
    def rows(self) -> int:
        """Return how many rows it was written with."""
        return int(self.task.file.record_count)

    @property
    def bytes(self) -> int:
        """Return its size."""
        return int(self.task.file.file_size_in_bytes)

    @property
    def partition(self) -> Partition:
        """Return what its rows share."""
        file, now = self.task.file, self._table.metadata.default_spec_id
        values = tuple(file.partition[place] for place in range(len(file.partition)))
        return values if file.spec_id == now else (f"other partitions {file.spec_id}", *values)

    @property
    def bounds(self) -> Bounds | None:
        """Return the smallest and the greatest number of the column; None if it has none."""
        field, file = self._table.schema().find_field(self._column), self.task.file
        known = file.lower_bounds or {}, file.upper_bounds or {}
        if not isinstance(field.field_type, IntegerType | LongType):
            return None
        if any(field.field_id not in each for each in known):
            return None
        low, high = (int.from_bytes(each[field.field_id], "little", signed=True) for each in known)
        return Bounds(self._column, low, high)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows, without those that others deleted."""
        known = set(self._table.schema().column_names)
        scan = self._table.scan(selected_fields=tuple(name for name in names if name in known))
        reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue())
        yield from reader.to_record_batches([self.task])


def _within(bounds: Bounds) -> BooleanExpression:
    """Return the filter of rows within bounds, or with NULL there."""
    column = Reference(bounds.column)
    inside: BooleanExpression = AlwaysTrue()
    if bounds.low is not None:
        inside = And(inside, GreaterThanOrEqual(term=column, value=literal(bounds.low)))
    if bounds.high is not None:
        inside = And(inside, LessThanOrEqual(term=column, value=literal(bounds.high)))
    return Or(inside, IsNull(term=column))


def _lists_of(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile | None]:
    """Return the manifests of snapshots by their paths, and the paths of their lists."""
    found: dict[str, ManifestFile | None] = {}
    for each in snapshots:
        found[each.manifest_list] = None
        found |= {manifest.manifest_path: manifest for manifest in each.manifests(table.io)}
    return found


def _files_of(
    table: Table, manifests: Iterable[ManifestFile | None], *, living: bool = False
) -> set[str]:
    """Return the paths of the files that manifests name; `living`: without deleted ones."""
    return {
        entry.data_file.file_path
        for each in manifests
        if each is not None
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=living)
    }


@contextmanager
def _moved_on() -> Iterator[None]:
    """Tell that another writer was first in our own words."""
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError) as error:
        raise TableMovedError(str(error)) from error


def _name(table: TableId) -> tuple[str, str]:
    """Return a table's name in the catalog: the database is the namespace."""
    return table.database, table.table


def _stamped(stamp: Stamp) -> dict[str, str]:
    """Return a stamp as properties of a table or snapshot."""
    return {
        _PIPELINE: stamp.pipeline,
        _PLAN: stamp.plan_id,
        _GENERATION: str(stamp.generation),
        _FILES: str(stamp.files),
        _ORDER: "" if stamp.order is None else str(stamp.order),
    }


def _has_bytes(path: Path) -> bool:
    """Tell whether a file is there, and is not empty."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _catalog_gone(path: Path) -> SinkUnreachableError:
    """Return the error for a catalog that was there before."""
    return SinkUnreachableError(
        "the catalog of the lake's tables is gone",
        where=str(path),
        risk="none: the changes are in the log, and no other catalog is made in its place",
        remedy="put it back, and the tables catch up by themselves; if it is lost for good, "
        "`reset` the pipeline, which makes catalog and tables anew",
    )
