"""Tables in a lake as a sink, from plain values: opened where it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import TableShape, shaped_schema
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import Owner, SinkAbilities
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.systems.file_log.changes import LogChangeSink
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.joins import LogJoinSink
from airflow_cdc_provider.systems.file_log.ledger import LogLedgerStore
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.row_form import LogFiles
from airflow_cdc_provider.systems.file_log.splits import LogSplitSink
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.targets import LogTargets
from airflow_cdc_provider.systems.file_log.told_columns import ToldColumns
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.lake.abilities import ABILITIES, MIRRORED
from airflow_cdc_provider.systems.lake.added_types import LAKE_TYPES
from airflow_cdc_provider.systems.lake.current_views import CurrentViews
from airflow_cdc_provider.systems.lake.held import HeldTables, libraries_explained, unreadable
from airflow_cdc_provider.systems.lake.layouts import DELTA, require_layout
from airflow_cdc_provider.systems.lake.next_commit import Appended, Commits, Mirrored
from airflow_cdc_provider.systems.lake.packages import is_there, require_package
from airflow_cdc_provider.systems.lake.preflight import kept_partitions, lake_look, not_shared
from airflow_cdc_provider.systems.lake.publisher import Publisher
from airflow_cdc_provider.systems.lake.queries import query_of
from airflow_cdc_provider.systems.lake.rows import LakeRows
from airflow_cdc_provider.systems.lake.rows_again import LakeRowsAgain
from airflow_cdc_provider.systems.lake.shared_tables import by_target
from airflow_cdc_provider.systems.lake.tables.table import LakeTables
from airflow_cdc_provider.systems.lake.target_tables import LakeTargetTables
from airflow_cdc_provider.systems.lake.verify_side import LakeVerifySide

if TYPE_CHECKING:
    import pyarrow as pa

_WIDENING = frozenset({"iceberg"})
"""Formats in which a column's type can become one that holds more values."""
_SWEPT = ("stream-*", "joined-*", "columns-*")
"""Files that no table has as they are; one may still have those of an older plan's splits."""


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A sink that is a folder of tables of one format, for one pipeline and generation."""

    folder: Folder
    owner: Owner
    plans: tuple[TablePlan, ...] = ()

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def abilities(self) -> SinkAbilities:
        """Return what a lake can do as a sink."""
        return MIRRORED if self.folder.mirror_mb else ABILITIES

    def identity(self) -> str:
        """Return the folder as a URL with its format, which no other sink has."""
        return self.folder.identity

    def target_of(self, schema: TableSchema, table: TableId, shape: TableShape) -> TableSchema:
        """Return the definition of the table's rows, in the source's types."""
        target = shaped_schema(schema, table, shape, LAKE_TYPES)
        require_layout(target, shape.layout, self.folder.form)
        return target

    def reserved_for(self, database: str) -> str:  # noqa: ARG002 - any name makes a namespace
        """Return an empty text: every database name is allowed in a lake."""
        return ""

    def preflight(self, plans: Sequence[TablePlan], source: SourceLook) -> tuple[Finding, ...]:  # noqa: ARG002 - the source's own findings say what its log lacks
        """Return the preflight findings about the folder and the tables; refuse another mode."""
        shared = not_shared(self.open_tables().unshared(plans))
        found = (*lake_look(self._store, self.folder, plans), *shared)
        state = Manifest(self._store, str(self.owner.pipeline)).read()
        if state.plan_id:
            self._commits.require_mode(state.types)
        if self.folder.form == DELTA and is_there(DELTA):
            with libraries_explained(partial(unreadable, self._store)):
                return (*found, *kept_partitions(self._open_tables(state), plans))
        return found

    def open_side(self) -> LakeVerifySide:
        """Open the lake's side of a comparison."""
        return LakeVerifySide(self._held, by_target(self.plans))

    def open_ledger(self) -> Ledger:
        """Open the ledger, which is in the manifests beside the tables."""
        # a table may still have the files of an older plan's splits
        types = self._commits.types
        store = LogLedgerStore(self._store, self.owner, types=types, is_exact=False, swept=_SWEPT)
        return Ledger(store, self.owner.generation)

    def open_targets(self) -> LogTargets:
        """Open the claims of the pipeline on the folder's tables."""
        return LogTargets(self._store, self.owner)

    def open_tables(self) -> LakeTargetTables:
        """Open the table builder, which has nothing to build: a table comes with its rows."""
        return LakeTargetTables(self._store, self.owner, self.plans, widens=self._widens)

    def open_splits(self) -> LogSplitSink:
        """Open the sink that publishes splits."""
        return LogSplitSink(self._files, self.owner, self.plans)

    def open_joins(self, *, reader: int = 0) -> LogJoinSink:  # noqa: ARG002 - of the port
        """Open the sink that takes rows of new tables, and rows that are read again."""
        plans = {plan.schema.table: plan for plan in self.plans}
        return LogJoinSink(self._files, self.owner, self.plans, LakeRowsAgain(self._held, plans))

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> LogChangeSink:
        """Open the sink that appends changes; `columns` are the Arrow schemas of the changes."""
        return LogChangeSink(
            self._files, self.owner, CapturedTables(self.plans, columns, self.abilities)
        )

    def tell_columns(self, columns: Mapping[TableId, pa.Schema]) -> None:
        """Write to the log which columns its tables have got; they come with the next publish."""
        captured = CapturedTables(self.plans, columns, self.abilities)
        ToldColumns(self._files, self.owner, captured).tell()

    def current_rows(self, plan: TablePlan) -> str:
        """Return the SQL query of a table's current rows, by its name in the catalog."""
        plan = by_target(self.plans).get(plan.sink_table, plan)
        names = [column.name for column in plan.target.copied_columns]
        return query_of(plan, names, is_mirror=bool(self.folder.mirror_mb))

    @property
    def commit_every_s(self) -> float:
        """Return the seconds from one commit of a table to the next."""
        return float(self.folder.commit_seconds)

    def publish_tables(self) -> None:
        """Bring the tables that the stream owns to the end of the log."""
        self._publisher.publish()

    def has_unpublished(self) -> bool:
        """Tell whether a table lacks something that the log holds; commits nothing."""
        return self._publisher.is_behind()

    @property
    def _held(self) -> HeldTables:
        """Return the tables, to be read."""
        return HeldTables(
            self._store,
            str(self.owner.pipeline),
            self._open_tables,
            self._widens,
            are_mirrors=bool(self.folder.mirror_mb),
        )

    @property
    def _publisher(self) -> Publisher:
        """Return what commits to the tables."""
        return Publisher(
            self._store,
            self.owner,
            self._open_tables,
            self._commits,
            widens=self._widens,
            views=self._views,
        )

    @property
    def _views(self) -> CurrentViews | None:
        """Return the views that the catalog is to have; None for none."""
        catalog = self.folder.catalog
        if catalog is None or not catalog.view:
            return None
        plans = by_target(self.plans)
        are_mirrors = bool(self.folder.mirror_mb)
        name = str(self.owner.pipeline)
        return CurrentViews(catalog.view, catalog.name, name, plans, are_mirrors)

    @property
    def _commits(self) -> Commits:
        """Return how tables take what the log has for them."""
        plans = by_target(self.plans)
        if not self.folder.mirror_mb:
            return Appended(self._store, plans, compacts=self.folder.compacts)
        return Mirrored(self._store, plans, self.folder.mirror_mb)

    @property
    def _widens(self) -> bool:
        """Tell whether a column's type can become one that holds more values."""
        return self.folder.form in _WIDENING

    def _open_tables(self, state: LogState) -> LakeTables:
        """Open the folder's tables, by the log's state; the format's library is loaded here."""
        require_package(self.folder.form)
        tables = import_module(f"airflow_cdc_provider.systems.lake.tables.{self.folder.form}")
        found: LakeTables = tables.open_tables(self.folder, str(self.owner.pipeline), state)
        return found

    def open_stopped(
        self, table: TableId, columns: Mapping[TableId, pa.Schema], /, *, is_ahead: bool = False
    ) -> LogChangeSink:
        """Open the sink that appends the changes of one isolated table."""
        del is_ahead  # files have no definition that could be ahead
        captured = CapturedTables(self.plans, columns, self.abilities)
        return LogChangeSink(self._files, self.owner, captured, alone=table)

    @property
    def _store(self) -> ObjectStore:
        """Return the store of the log and of the tables."""
        return open_files(self.folder.store)

    @property
    def _files(self) -> LogFiles:
        """Return where the files are, with how they are written."""
        return LogFiles(
            self._store,
            Format.PARQUET,
            lambda plan, _types: LakeRows(plan),
            has_markers=False,
            tells_columns=True,
            tells_before=False,
            counts_events=True,
        )
