"""MySQL, MariaDB and what speaks their protocol as a sink, from plain values.

Each part that is opened has a connection of its own and is closed by who asked for it. What reads
or writes rows is imported where it is opened: it brings Arrow, which whoever only asks the ledger
or makes tables does without.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import MetadataTypes
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import AddedTypes, TableShape, shaped_schema
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import Owner, SinkAbilities, SinkSettings
from airflow_cdc_provider.systems.mysql.abilities import ABILITIES
from airflow_cdc_provider.systems.mysql.dialect.column_types import ZeroDates, mysql_type
from airflow_cdc_provider.systems.mysql.dialect.shaped_statement import (
    require_names,
    require_unpadded,
    with_statement,
)
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import (
    named_types,
    with_types,
)
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.mysql.own_log import MySqlOwnLog
from airflow_cdc_provider.systems.mysql.preflight.edges import edge_findings, of_two_nodes
from airflow_cdc_provider.systems.mysql.preflight.preflight import SourceFacts, sink_look
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import reserved_for
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.sink.ledger_store import MySqlLedgerStore
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.table_builder import MySqlTableBuilder
from airflow_cdc_provider.systems.mysql.sink.targets import MySqlTargets

_GUARDS_OF_JOINS = 2
"""The numbers of their readers of the sink's log: the stream's is 0, that of `verify` 1."""

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.engine.sink.change_sink import SlotChangeSink
    from airflow_cdc_provider.engine.sink.guard import Guard
    from airflow_cdc_provider.engine.sink.join_sink import StreamJoinSink
    from airflow_cdc_provider.engine.sink.split_sink import RangeSplitSink
    from airflow_cdc_provider.systems.mysql.sink.change_store import StoppedSlot
    from airflow_cdc_provider.systems.mysql.verify.verify_side import MySqlVerifySide

ADDED_TYPES = AddedTypes(
    number=mysql_type("bigint"),
    text=mysql_type("varchar", length=255, charset="utf8mb4", collation="utf8mb4_bin"),
    flag=mysql_type("tinyint"),
    digest=mysql_type("char", length=64, charset="ascii", collation="ascii_bin"),
    metadata=MetadataTypes(
        operation=mysql_type("char", length=1, charset="ascii", collation="ascii_bin"),
        text=mysql_type("varchar", length=255, charset="utf8mb4", collation="utf8mb4_bin"),
        moment=mysql_type("datetime", fraction=6),
    ),
)


@dataclass(frozen=True, slots=True)
class MySqlSink:
    """A sink that is a MySQL or MariaDB server, for one pipeline and generation."""

    endpoint: Endpoint
    owner: Owner
    plans: tuple[TablePlan, ...] = ()
    settings: SinkSettings = field(default_factory=SinkSettings)

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def abilities(self) -> SinkAbilities:
        """Return what a MySQL sink can do."""
        return ABILITIES

    def identity(self) -> str:
        """Return the server's own id, which no other server has."""
        with closing(connect(self.endpoint, purpose="identity", role=Role.SINK)) as connection:
            return read_capabilities(connection, role=Role.SINK).server_uuid

    def target_of(self, schema: TableSchema, table: TableId, shape: TableShape) -> TableSchema:
        """Return the definition of the sink's table for a table of the source."""
        target = shaped_schema(schema, table, shape, ADDED_TYPES)
        require_names(schema, shape)
        require_unpadded(schema, shape)
        types = named_types(schema, shape)
        made = with_statement(target, schema, shape)
        return with_types(made, types) if types else made

    def reserved_for(self, database: str) -> str:
        """Return what a database is reserved for, empty if tables may be copied there."""
        return reserved_for(database, fold=True)

    def preflight(self, plans: Sequence[TablePlan], source: SourceLook) -> tuple[Finding, ...]:
        """Return the preflight findings about the sink and its tables."""
        is_node = self.settings.edge is not None
        found = sink_look(self.endpoint, plans, source.facts, is_node=is_node)
        if not is_node:
            return found
        own_log = self.own_log().preflight(is_new=False)
        both = map(of_two_nodes, found)
        facts = source.facts if isinstance(source.facts, SourceFacts) else None
        return (*both, *own_log, *edge_findings(self.endpoint, plans, facts))

    def open_side(self) -> MySqlVerifySide:
        """Open the sink's side of a verification."""
        from airflow_cdc_provider.systems.mysql.verify.verify_side import (  # noqa: PLC0415
            MySqlVerifySide,
        )

        connection = connect(self.endpoint, purpose="verify", role=Role.SINK)
        return MySqlVerifySide(connection, Role.SINK)

    def own_log(self) -> MySqlOwnLog:
        """Return the log of the sink's server, with readers that no source has."""
        return MySqlOwnLog.of(self.endpoint, self.owner.pipeline, self.settings.source_options)

    def open_ledger(self) -> Ledger:
        """Open the pipeline's ledger in the sink."""
        store = MySqlLedgerStore(self._session("ledger"), self.owner)
        return Ledger(store, self.owner.generation)

    def open_targets(self) -> MySqlTargets:
        """Open the pipeline's claims on tables of the sink."""
        return MySqlTargets(self._session("claiming tables"), self.owner, edge=self.settings.edge)

    def open_tables(self) -> MySqlTableBuilder:
        """Open the builder of the sink's tables."""
        session, is_edge = self._session("making tables"), self.settings.edge is not None
        return MySqlTableBuilder(session, self.owner, self.plans, is_edge=is_edge)

    def open_splits(self) -> RangeSplitSink:
        """Open the sink that publishes splits."""
        from airflow_cdc_provider.engine.sink.split_sink import RangeSplitSink  # noqa: PLC0415
        from airflow_cdc_provider.systems.mysql.sink.split_store import (  # noqa: PLC0415
            MySqlSplitStore,
        )

        session = self._session("publishing splits")
        store = MySqlSplitStore(
            session,
            self.owner,
            self.plans,
            zero_dates=self._zero_dates,
            edge=self.settings.edge,
        )
        return RangeSplitSink(store, self.owner)

    def open_joins(self, *, reader: int = 0) -> StreamJoinSink:
        """Open the sink that lets re-read splits join the stream.

        `reader` is its number among those that are open at the same time.
        """
        from airflow_cdc_provider.engine.sink.join_sink import StreamJoinSink  # noqa: PLC0415
        from airflow_cdc_provider.systems.mysql.sink.join_store import (  # noqa: PLC0415
            MySqlJoinStore,
        )

        session = self._session("joining splits", repeatable=self._is_guarded)
        store = MySqlJoinStore(
            session,
            self.owner,
            self.plans,
            zero_dates=self._zero_dates,
            edge=self.settings.edge,
        )
        return StreamJoinSink(store, self._guard(_GUARDS_OF_JOINS + reader))

    def open_changes(self, columns: Mapping[TableId, pa.Schema]) -> SlotChangeSink:
        """Open the sink that applies changes; `columns` are the Arrow schemas of the changes."""
        slots = self.settings.writers if self.settings.apply is ApplyMode.MERGED else 1
        return self._changes(columns, slots=slots)

    def open_stopped(
        self, table: TableId, columns: Mapping[TableId, pa.Schema], /, *, is_ahead: bool = False
    ) -> SlotChangeSink:
        """Open the sink that applies the changes of one stopped table."""
        from airflow_cdc_provider.systems.mysql.sink.change_store import (  # noqa: PLC0415
            StoppedSlot,
        )

        return self._changes(columns, stopped=StoppedSlot(table, is_ahead))

    def _changes(
        self,
        columns: Mapping[TableId, pa.Schema],
        *,
        slots: int = 1,
        stopped: StoppedSlot | None = None,
    ) -> SlotChangeSink:
        """Open the sink of changes, for the stream or for one stopped table."""
        from airflow_cdc_provider.engine.sink.change_sink import SlotChangeSink  # noqa: PLC0415
        from airflow_cdc_provider.engine.sink.selection import CapturedTables  # noqa: PLC0415
        from airflow_cdc_provider.systems.mysql.sink.change_store import (  # noqa: PLC0415
            MySqlChangeStore,
        )

        captured = CapturedTables(self.plans, columns, self.abilities)
        store = MySqlChangeStore(
            lambda: self._session("applying changes", scripts=True, repeatable=self._is_guarded),
            self.owner,
            captured,
            slots=slots,
            stopped=stopped,
            edge=self.settings.edge,
        )
        guard = self._guard(captured=columns)
        if stopped is not None:
            guard = self._guard(self.own_log().most_readers - 1, captured=[stopped.table])
        return SlotChangeSink(store, captured, of_stopped_table=stopped is not None, guard=guard)

    def _guard(
        self, reader: int = 0, *, captured: Collection[TableId] | None = None
    ) -> Guard | None:
        """Return the guard of an edge whose conflicts are settled; it is not connected yet.

        `reader` is its number among the readers of the sink's log; the stream's is 0. `captured`
        are the tables of the source that it is to look for, None for all.
        """
        from airflow_cdc_provider.engine.sink.guard import Guard  # noqa: PLC0415

        edge, settings = self.settings.edge, self.settings
        if edge is None or not self._is_guarded:
            return None
        return Guard(
            self.own_log(),
            edge,
            [p for p in self.plans if captured is None or p.schema.table in captured],
            settings.source_options,
            settings.known,
            reader=reader,
        )

    @property
    def _zero_dates(self) -> ZeroDates:
        """Return the policy for zero and partial dates."""
        return MySqlOptions.of(self.settings.source_options).zero_dates

    @property
    def _is_guarded(self) -> bool:
        """Tell whether the pipeline is an edge whose conflicts are settled."""
        return self.settings.edge is not None and self.settings.edge.is_guarded

    def _session(
        self, purpose: str, *, scripts: bool = False, repeatable: bool = False
    ) -> SinkSession:
        """Open a session on the sink for a purpose; `repeatable` keeps absent keys absent."""
        files = self.settings.local_files
        session = SinkSession.open(
            self.endpoint, purpose=purpose, local_files=files, scripts=scripts
        )
        if repeatable:
            session.lock_gaps()
        return session
