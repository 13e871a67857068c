"""A change log as a sink, from plain values: opened where it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import airflow_cdc_provider
from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.columns.verify_port import VerifySide
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import TableShape, shaped_schema
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import Owner, SinkAbilities, SinkSettings
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.systems.changelog.abilities import ABILITIES
from airflow_cdc_provider.systems.changelog.envelope import Origin, TableEnvelope
from airflow_cdc_provider.systems.file_log.added_types import ADDED_TYPES
from airflow_cdc_provider.systems.file_log.changes import LogChangeSink
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.joins import LogJoinSink
from airflow_cdc_provider.systems.file_log.ledger import LogLedgerStore
from airflow_cdc_provider.systems.file_log.preflight import folder_look
from airflow_cdc_provider.systems.file_log.row_form import LogFiles
from airflow_cdc_provider.systems.file_log.splits import LogSplitSink
from airflow_cdc_provider.systems.file_log.state import NATIVE
from airflow_cdc_provider.systems.file_log.targets import LogTables, LogTargets
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from airflow_cdc_provider.systems.kinds import FIRST

if TYPE_CHECKING:
    import pyarrow as pa

_WITH_QUERIES = replace(ABILITIES, facts=(*ABILITIES.facts, "query"))


@dataclass(frozen=True, slots=True)
class ChangelogSink:
    """A sink that is a folder of change log files, for one pipeline and generation."""

    folder: Folder
    owner: Owner
    plans: tuple[TablePlan, ...] = ()
    settings: SinkSettings = field(default_factory=SinkSettings)

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def abilities(self) -> SinkAbilities:
        """Return what a change log can do as a sink; with queries if the pipeline wants them."""
        return _WITH_QUERIES if self.folder.with_queries else ABILITIES

    def identity(self) -> str:
        """Return the folder as a URL with its format, which no other sink has."""
        return self.folder.identity

    def target_of(self, schema: TableSchema, table: TableId, shape: TableShape) -> TableSchema:
        """Return the definition of the rows in the change log, in the source's types."""
        return shaped_schema(schema, table, shape, ADDED_TYPES)

    def reserved_for(self, database: str) -> str:  # noqa: ARG002 - any name makes a folder
        """Return an empty text: every database name is allowed in a change log."""
        return ""

    def preflight(self, plans: Sequence[TablePlan], source: SourceLook) -> tuple[Finding, ...]:  # noqa: ARG002 - the source's own findings say what its log lacks
        """Return the preflight findings about the folder and the tables."""
        return tuple(folder_look(self._root, plans))

    def open_side(self) -> VerifySide:
        """Refuse: a change log holds no rows that could be verified."""
        raise RefusedError(
            "a change log holds no rows that could be compared",
            where=str(self.folder),
            risk="none: nothing was compared",
            remedy="replay the log and compare that",
        )

    def open_ledger(self) -> Ledger:
        """Open the ledger of the change log."""
        folder = self.folder
        is_native = self._form is Format.PARQUET and not folder.debezium_types
        types = NATIVE if is_native else ""
        store = LogLedgerStore(self._root, self.owner, types=types)
        return Ledger(store, self.owner.generation)

    def open_targets(self) -> LogTargets:
        """Open the claims of the pipeline on the folder's tables."""
        return LogTargets(self._root, self.owner)

    def open_tables(self) -> LogTables:
        """Open the table builder, which has nothing to build."""
        return LogTables(self._root, self.owner)

    def open_splits(self) -> LogSplitSink:
        """Open the sink that publishes splits into the change log."""
        return LogSplitSink(self._files, self.owner, self.plans)

    def open_joins(self, *, reader: int = 0) -> LogJoinSink:  # noqa: ARG002 - of the port
        """Open the sink that takes the rows of new tables beside the stream."""
        return LogJoinSink(self._files, self.owner, self.plans)

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> LogChangeSink:
        """Open the sink that appends changes; `columns` are the Arrow schemas of the changes."""
        return LogChangeSink(
            self._files, self.owner, CapturedTables(self.plans, columns, self.abilities)
        )

    def open_stopped(
        self, table: TableId, columns: Mapping[TableId, pa.Schema], /, *, is_ahead: bool = False
    ) -> LogChangeSink:
        """Open the sink that appends the changes of one isolated table."""
        del is_ahead  # files have no definition that could be ahead
        captured = CapturedTables(self.plans, columns, self.abilities)
        return LogChangeSink(self._files, self.owner, captured, alone=table)

    @property
    def _root(self) -> ObjectStore:
        """Return the store of the files."""
        return open_files(self.folder.store)

    @property
    def _files(self) -> LogFiles:
        """Return where the files are, with how they are written."""
        origin = self._origin
        return LogFiles(
            self._root,
            self._form,
            lambda plan, types: TableEnvelope(plan, origin, is_native=types == NATIVE),
        )

    @property
    def _form(self) -> Format:
        """Return the format of the files."""
        return Format(self.folder.form)

    @property
    def _origin(self) -> Origin:
        """Return what an envelope says of its writer: connector, pipeline and version."""
        flavours = {plan.schema.flavour for plan in self.plans}
        connector = max(flavours, default="") or FIRST
        return Origin(connector, str(self.owner.pipeline), airflow_cdc_provider.__version__)
