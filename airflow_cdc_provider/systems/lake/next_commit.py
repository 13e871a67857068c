"""What a table's next commit adds and takes away: changes as rows, or the rows that are current."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import pyarrow as pa

from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_layout import TableLayout
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import NATIVE
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.behind import Behind
from airflow_cdc_provider.systems.lake.columns import ORDER, SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.gathered import (
    batches_of,
    columns_of,
    gathered,
    opened,
)
from airflow_cdc_provider.systems.lake.laid_out import laid_out
from airflow_cdc_provider.systems.lake.marks import (
    SoftDeletes,
    converted,
    flag_in,
    require_key,
)
from airflow_cdc_provider.systems.lake.mirror import Limit, bounded_column, rewritten
from airflow_cdc_provider.systems.lake.partitions import Partition, UnfitLayoutError
from airflow_cdc_provider.systems.lake.rows import void_before_all
from airflow_cdc_provider.systems.lake.sorted_files import SortedFiles
from airflow_cdc_provider.systems.lake.tables.bounds import bounds_in
from airflow_cdc_provider.systems.lake.tables.table import (
    Bounds,
    DataFile,
    LoadedTable,
    TableFile,
)

log = logging.getLogger(__name__)

MIRROR = "mirror"
"""What a log's plan says of tables that hold the current rows."""


@dataclass(frozen=True, slots=True)
class NextCommit:
    """What one commit of a table does."""

    files: Sequence[DataFile]
    """That are added, or are all that is there."""
    made: Sequence[DataFile]
    """Those of them that were made for it."""
    order: int | None
    """The greatest order of the table's rows then, where it is known."""
    gone: Sequence[TableFile] = ()
    """Of the table as it was loaded."""
    unused: Sequence[str] = ()
    """Files of a snapshot that the table will not have, by their names in the store."""


class Commits(Protocol):
    """How tables take what the log has for them."""

    @property
    def types(self) -> str:
        """What a log's plan says of such tables."""

    @property
    def compacts(self) -> bool:
        """Tell whether small files are to become larger ones behind a commit."""

    def require_mode(self, types: str) -> None:
        """Refuse a plan whose tables are kept in the other way."""

    def takes(self, table: TableId) -> bool:
        """Tell whether a table that the stream does not own any more is committed to."""

    def layout_of(self, table: TableId, loaded: LoadedTable | None) -> TableLayout:
        """Return how a table's files are to be laid out when it is made, or begins anew.

        One without a plan keeps the partitions that it has.
        """

    def next(
        self, table: TableId, loaded: LoadedTable | None, new: Behind, order: int | None
    ) -> NextCommit:
        """Write the files of the next commit; `order` is the greatest of the rows that stay."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Each change is a row more."""

    store: ObjectStore
    plans: Mapping[TableId, TablePlan]
    """By the tables of the lake."""
    compacts: bool
    """Small files become larger ones now and then."""
    types: str = NATIVE

    def require_mode(self, types: str) -> None:
        """Refuse a plan whose tables hold current rows."""
        if types == MIRROR:
            raise _other_mode(self.store, "mirror", "append")

    def takes(self, table: TableId) -> bool:  # noqa: ARG002 - of the port
        """Return True: changes are rows, whatever their key is."""
        return True

    def layout_of(self, table: TableId, loaded: LoadedTable | None) -> TableLayout:
        """Return how a table's files are to be laid out when it is made, or begins anew."""
        if table in self.plans:
            return self.plans[table].shape.layout
        return TableLayout(() if loaded is None else loaded.partitions or ())

    def next(
        self, table: TableId, loaded: LoadedTable | None, new: Behind, order: int | None
    ) -> NextCommit:
        """Gather the changes in one file, or one for each partition."""
        read, changes = _with_rows(new.read), _with_rows(new.changes)
        layout = _layout_now(loaded, new, self.layout_of(table, loaded))
        taken: list[DataFile] = []
        if layout.columns:
            out = SortedFiles(
                self.store,
                table_folder(table),
                new.columns,
                [ORDER],
                "changes",
                layout,
            )
            made = laid_out(out, self.store, [*read, *changes])
        else:
            taken = [DataFile(f.path, f.rows, f.bytes, SNAPSHOT_ORDER) for f in read]
            made = [gathered(self.store, changes, new.columns)] if changes else []
        unused = [each.path for each in read] if layout.columns else []
        orders = [*([] if order is None else [order]), *(each.order for each in (*taken, *made))]
        return NextCommit([*taken, *made], made, max(orders, default=None), unused=unused)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A row is there as it is now."""

    store: ObjectStore
    plans: Mapping[TableId, TablePlan]
    """By the tables of the lake."""
    megabytes: int
    """How much of a table one commit may write again."""
    types: str = MIRROR
    compacts: bool = False
    """Commits see to that themselves."""

    def require_mode(self, types: str) -> None:
        """Refuse a plan whose tables hold all changes."""
        if types != MIRROR:
            raise _other_mode(self.store, "append", "mirror")

    def takes(self, table: TableId) -> bool:
        """Tell whether the table's key is known; else it stays as it is."""
        return table in self.plans

    def layout_of(self, table: TableId, loaded: LoadedTable | None) -> TableLayout:  # noqa: ARG002 - of the port
        """Return how a table's files are to be laid out when it is made, or begins anew."""
        return self.plans[table].shape.layout

    def next(
        self, table: TableId, loaded: LoadedTable | None, new: Behind, order: int | None
    ) -> NextCommit:
        """Write the changed rows' files anew."""
        plan = self.plans[table]
        key = plan.target.primary_key
        column = bounded_column(key, new.columns)
        soft = _soft(plan) if plan.shape.deleted_flag else None
        layout = _layout_now(loaded, new, self.layout_of(table, loaded))
        if soft is not None and new.is_anew:
            lost: set[str] = set()
            earlier = self._rows_of_before(plan, loaded, new, lost)
            if earlier or new.before:
                return self._with_rows_of_before(plan, earlier, new, lost)
        read = [
            _ReadFile.of(self.store, each, new.columns, column, is_kept=not layout.columns)
            for each in _with_rows(new.read)
        ]
        base: Sequence[TableFile] = read
        if loaded is not None and not new.is_anew:
            self._require_columns(plan, loaded, new)
            if soft is not None:
                require_key(table, loaded.columns, new.columns, key)
            base = loaded.files(column)
        elif read:
            order = SNAPSHOT_ORDER
        changes = (
            batch
            for each in _with_rows(new.changes)
            for batch in batches_of(self.store, each, new.columns)
        )
        out = self._out(plan, new, layout)
        done = rewritten(base, changes, out, self._limit(plan), order, soft)
        if not new.is_anew:
            return NextCommit(done.made, done.made, done.order, gone=done.gone)
        unused = {each.path for each in read if any(each is other for other in done.gone)}
        kept = [each.as_it_is for each in read if each.path not in unused]
        return NextCommit([*kept, *done.made], done.made, done.order, unused=sorted(unused))

    def _require_columns(self, plan: TablePlan, loaded: LoadedTable, new: Behind) -> None:
        """Refuse a table of which others took columns: rows that are written again had NULL there.

        A new column of the source is none that the table had.
        """
        lost = [name for name in loaded.lost_columns if name in new.columns.names]
        if lost:
            raise IntegrityError(
                f"others have taken {', '.join(lost)} from {plan.sink_table}, or renamed it",
                where=str(self.store),
                risk="rows that are written again would have NULL there; nothing was committed",
                remedy="where it has another name, give it its own back, and the changes follow; "
                f"else `reset` the table with {table_option(plan.schema.table)}: it is made anew",
            )

    def _out(self, plan: TablePlan, new: Behind, layout: TableLayout) -> SortedFiles:
        """Return what writes a table's files."""
        folder, key = table_folder(plan.sink_table), plan.target.primary_key
        return SortedFiles(self.store, folder, new.columns, key, "mirror", layout)

    def _limit(self, plan: TablePlan) -> Limit:
        """Return how much of a table may be written again."""
        return Limit(plan.sink_table, self.megabytes)

    def _rows_of_before(
        self, plan: TablePlan, loaded: LoadedTable | None, new: Behind, lost: set[str]
    ) -> Sequence[TableFile]:
        """Return the files of a table that begins anew and may have rows marked as deleted.

        One of an older plan without their column never had any. Columns whose values become NULL
        are added to `lost`.
        """
        if loaded is None or not (new.is_of_plan or flag_in(loaded.columns, plan.shape)):
            return ()
        key = plan.target.primary_key
        require_key(plan.sink_table, loaded.columns, new.columns, key)
        files = loaded.files(key[0])
        return [_EarlierFile(each, new.columns, lost, keeps_order=new.is_of_plan) for each in files]

    def _with_rows_of_before(
        self, plan: TablePlan, earlier: Sequence[TableFile], new: Behind, lost: set[str]
    ) -> NextCommit:
        """Write all rows anew: those that are new, and of those of before which they lack."""
        first = None
        if not new.is_of_plan:
            first = void_before_all(plan, new.columns, new.high, time.time_ns() // 1000)
        soft = replace(_soft(plan), is_anew=True, first=first)
        changes = chain(
            chain.from_iterable(self._converted(plan, each, new, lost) for each in new.before),
            chain.from_iterable(
                batches_of(self.store, each, new.columns)
                for each in _with_rows([*new.read, *new.changes])
            ),
        )
        out = self._out(plan, new, plan.shape.layout)
        done = rewritten(earlier, changes, out, self._limit(plan), None, soft)
        if lost:
            log.warning(
                "rows that are kept though they are not read again have NULL where the new type "
                "of a column does not have their value: table=%s columns=%s",
                plan.sink_table,
                ", ".join(sorted(lost)),
            )
        unused = [each.path for each in _with_rows(new.read)]
        return NextCommit(done.made, done.made, done.order, unused=unused)

    def _converted(
        self, plan: TablePlan, file: SealedFile, new: Behind, lost: set[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file of the log from before the table began anew; none if it is gone.

        It is none of the table's any more, and a table is to come back without it.
        """
        if not file.rows:
            return
        try:
            there = columns_of(self.store, file.path)
        except IntegrityError as error:
            log.warning("file of before is gone: table=%s cause=%s", plan.sink_table, error)
            return
        require_key(plan.sink_table, there, new.columns, plan.target.primary_key)
        for batch in batches_of(self.store, file, there):
            yield from converted(pa.Table.from_batches([batch]), new.columns, lost).to_batches()


def _soft(plan: TablePlan) -> SoftDeletes:
    """Return how a table keeps the rows that are gone at the source."""
    return SoftDeletes(plan.shape.marks, shard="" if plan.shard is None else plan.shard.name)


class _InColumns:
    """A file that is read in other columns than it has."""

    __slots__ = ()
    file: TableFile | SealedFile

    @property
    def path(self) -> str:
        """Return where it is."""
        return self.file.path

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return self.file.rows

    @property
    def bytes(self) -> int:
        """Return its size."""
        return self.file.bytes


@dataclass(frozen=True, slots=True)
class _EarlierFile(_InColumns):
    """A file of a table that begins anew, in the columns that the table has then."""

    file: TableFile
    columns: pa.Schema
    lost: set[str]
    """Columns of which values were found that these do not have."""
    keeps_order: bool
    """Its rows' numbers are of the same log."""
    bounds: Bounds | None = None
    partition: Partition | None = ()

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows."""
        columns = pa.schema([self.columns.field(name) for name in names])
        for batch in self.file.batches(names):
            rows = converted(pa.Table.from_batches([batch]), columns, self.lost)
            if not self.keeps_order and ORDER in names:
                place = columns.get_field_index(ORDER)
                none = pa.repeat(pa.scalar(SNAPSHOT_ORDER, pa.int64()), rows.num_rows)
                rows = rows.set_column(place, columns.field(place), none)
            yield from rows.to_batches()


@dataclass(frozen=True, slots=True)
class _ReadFile(_InColumns):
    """A file of a snapshot's rows, which is part of no table yet."""

    store: ObjectStore
    file: SealedFile
    columns: pa.Schema
    """Of the table."""
    bounds: Bounds | None
    partition: Partition | None = ()
    """None: its rows may be of several ones, or in another order."""

    @classmethod
    def of(
        cls, store: ObjectStore, file: SealedFile, columns: pa.Schema, column: str, *, is_kept: bool
    ) -> _ReadFile:
        """Look at a file's bounds; `is_kept`: the table has no layout that it could differ from."""
        with opened(store, file.path) as there:
            bounds = bounds_in(there.metadata, column)
        return cls(store, file, columns, bounds, () if is_kept else None)

    @property
    def as_it_is(self) -> DataFile:
        """Return it as a file of a table."""
        return DataFile(self.path, self.rows, self.bytes, SNAPSHOT_ORDER)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows."""
        columns = pa.schema([self.columns.field(name) for name in names])
        yield from batches_of(self.store, self.file, columns)


def _other_mode(store: ObjectStore, before: str, now: str) -> RefusedError:
    """Return the error for tables that are kept in another way than the file says."""
    return RefusedError(
        f"the tables were begun with `mode: {before}`, and the file says `mode: {now}`",
        where=str(store),
        risk="rows would be there twice or be missing; nothing was committed",
        remedy=f"write mode: {before}; or `reset` the pipeline: its next run makes them anew",
    )


def _layout_now(loaded: LoadedTable | None, new: Behind, planned: TableLayout) -> TableLayout:
    """Return how the files of the next commit are laid out: others may have changed partitions."""
    if loaded is None or new.is_anew:
        return planned
    if loaded.partitions is None:
        raise UnfitLayoutError("somebody gave it partitions of another kind")
    return replace(planned, partitions=loaded.partitions)


def _with_rows(files: Sequence[SealedFile]) -> list[SealedFile]:
    """Return the files that have rows; others only tell columns."""
    return [each for each in files if each.rows]
