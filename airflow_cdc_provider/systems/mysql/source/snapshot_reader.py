"""One split after another, each read whole and brought to one place of the log.

For each split, in this order (laws 1 to 3):

1. L is taken;
2. one SELECT in autocommit mode reads the rows under a read view of its own, column by column
   from the socket, with every column named and no ORDER BY;
3. H is taken: the end of the log, after the last row;
4. the log of (L, H] is replayed onto the rows, which then are the table at H.

A table without a key is read under a view that is known to be of one place (`quiet_views`).

On MariaDB the rows are read in the transaction that L belongs to, L is H, and there is nothing to
replay. A split that is not backfilled (by wish, or because its keys are texts) is left at L, and
its H only says from where on the sink is consistent.

The table's definition is compared with the planned one at L, and again after the read; a
statement of the log in (L, H] that concerns the table counts as a change of it, for TRUNCATE
changes every row and no definition. Then the split is read again.

What a reader holds is bounded by bytes. A split that is larger is given up in the middle and cut in
two by whoever asked for it. A result that ends before the packet that says so is an error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.changes import TableChanges
from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import (
    RESET,
    LogPurgedError,
    RetryableError,
    SchemaMovedError,
    SourceIdentityError,
    SplitTooBigError,
    TableChangedError,
)
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.named_keys import NamedKeys
from airflow_cdc_provider.core.ports import PhaseListener, SilentListener
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.dialect.create_statement import without_counter
from airflow_cdc_provider.systems.mysql.dialect.sql import by_key, split_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    Imprint,
    MySqlPosition,
    own,
)
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import keys_in
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import RawConnection, connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import create_statement, read_schema
from airflow_cdc_provider.systems.mysql.source.gtid_history import check_history
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from airflow_cdc_provider.systems.mysql.source.log_fingerprint import imprint_at, require_known
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from airflow_cdc_provider.systems.mysql.source.log_tail import LogTail
from airflow_cdc_provider.systems.mysql.source.quiet_views import open_quiet_view
from airflow_cdc_provider.systems.mysql.source.split_log import (
    REPLAY_BYTES,
    SplitLog,
    outdated,
    require_servers,
)
from airflow_cdc_provider.systems.mysql.source.split_rows import TextRows
from airflow_cdc_provider.systems.mysql.source.watermarks import Watermarks, watermarks_of
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk
from airflow_cdc_provider.systems.mysql.wire.text_result import chunks_of

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

MAX_SPLIT_BYTES = 64 * 1024 * 1024
_OWNED_WAIT_S = 1.0
_OWNED_POLL_S = 0.01


@dataclass(slots=True)
class _Session:
    """The connection that reads rows, with its watermarks and the definitions that were checked."""

    connection: ServerConnection
    capabilities: Capabilities
    watermarks: Watermarks
    definitions: dict[TableId, str]
    """SHOW CREATE TABLE of the tables whose columns were compared with the plan."""


class SnapshotReader:
    """Reads splits with watermarks and backfill, over a connection for rows and one for the log."""

    def __init__(  # noqa: PLR0913 - each option is one a caller chooses by name
        self,
        endpoint: Endpoint,
        tables: Mapping[TableId, TableSchema],
        *,
        server_id: int,
        backfill: bool = True,
        max_split_bytes: int = MAX_SPLIT_BYTES,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        listener: PhaseListener | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._tables = tables
        self._fingerprints = {table: tables[table].fingerprint for table in tables}
        self._server_id = server_id
        self._backfill = backfill
        self._max_split_bytes = max_split_bytes
        self._zero_dates = zero_dates
        self._listener = listener or SilentListener()
        self._session: _Session | None = None
        self._last_low: MySqlPosition | None = None
        self._last_read: AppliedThrough | None = None
        self._begun: dict[str, Imprint | None] = {}
        """Imprints of files that say when they were begun; for as long as a session lasts."""
        self._settled: dict[str, BinlogPosition] = {}
        """Of splits that were left at their L."""
        self.tail = LogTail(self._open_log)
        self._log = SplitLog(self.tail, tables, str(endpoint))

    def read(
        self, split: SnapshotSplit, listed: pa.RecordBatch | None = None
    ) -> tuple[SplitRows, SplitReport]:
        """Read a split and backfill it; return its rows and report.

        After an error the connections are opened anew.
        """
        completed = False
        try:
            outcome = self._read(split, listed)
            completed = True
        finally:
            if not completed:
                self.close()
        return outcome

    def changes(
        self, split: SnapshotSplit, report: SplitReport, up_to: LogPosition
    ) -> Iterator[TableChanges]:
        """Return the changes of a split's table from the split's own position to `up_to`."""
        is_backfilled = split.is_backfilled(wanted=self._backfill)
        after = own(report.high if is_backfilled else report.low)
        completed = False
        try:
            session = self._session or self._open_session()
            end, settled = own(up_to), self._settled.get(split.split_id)
            require_servers(end, split, {report.high.server, session.capabilities.server_uuid})
            until = end.binlog or log_end(session.connection, session.capabilities)
            found = self._log.changes(split, (after, end), until, settled)
            completed = True
        except LogPurgedError as error:
            raise outdated(split, error.what, error.where) from error
        finally:
            if not completed:
                self.close()
        return iter(found)

    def close(self) -> None:
        """Close the connections; the server gives up what they were doing."""
        session, self._session = self._session, None
        if session is not None:
            RawConnection(session.connection).abandon()
        self.tail.close()

    def _read(
        self, split: SnapshotSplit, listed: pa.RecordBatch | None
    ) -> tuple[SplitRows, SplitReport]:
        """Read a split: take L, read the rows, take H, and replay the log between."""
        began = time.monotonic()
        session = self._session or self._open_session()
        schema = self._tables[split.table]
        if not schema.has_key:
            return self._read_without_key(session, split, schema, began)
        listener, watermarks = self._listener, session.watermarks
        listener.before_low(split)
        low = self._checked_low(watermarks.low())
        if self.tail.forget(low):
            # The last split had changes: what they took is given back before rows come.
            pa.default_memory_pool().release_unused()
        self._check_definition(session, schema)
        listener.after_low(split)
        decoder = TextDecoder(schema, zero_dates=self._zero_dates)
        condition = split_predicate(split)
        if listed is not None:
            condition = self._one_of(session, schema, listed)
        read = TextRows(self._select(session.connection, split, condition, decoder), decoder)
        listener.before_high(split)
        high = watermarks.high(low)
        self._check_definition(session, schema)
        watermarks.release()
        listener.after_high(split)
        rows: SplitRows = read
        read_bytes, changes = read.bytes, 0
        if high != low and split.is_backfilled(wanted=self._backfill):
            rows, changes = self._log.replayed(read, split, (low, high), watermarks.settled)
            high = self._exact(high, low)
        elif high != low and isinstance(low.gtids, GtidSet):
            high = MySqlPosition(high.server_uuid, high.binlog, _seen_gtids(session.connection))
        elif watermarks.settled is not None:
            self._settled[split.split_id] = watermarks.settled
        high = self._identified(high)
        report = self._report(split, (low, high), rows, began)
        return rows, replace(report, bytes=read_bytes, changes=changes)

    def _read_without_key(
        self, session: _Session, split: SnapshotSplit, schema: TableSchema, began: float
    ) -> tuple[SplitRows, SplitReport]:
        """Read all rows of a table without a key at one place of the log, which is L and H."""
        connection, listener = session.connection, self._listener
        listener.before_low(split)
        low, high = open_quiet_view(
            connection, session.watermarks, self.tail, schema, self._checked_low
        )
        self._check_definition(session, schema)
        listener.after_low(split)
        decoder = TextDecoder(schema, zero_dates=self._zero_dates)
        read = TextRows(self._select(connection, split, split_predicate(split), decoder), decoder)
        listener.before_high(split)
        session.watermarks.high(low)  # for its checks: it is the same server, and session
        self._check_definition(session, schema)
        query(connection, "COMMIT")
        listener.after_high(split)
        if high != low:
            high = self._exact(high, low)
        high = self._identified(high)
        report = self._report(split, (high, high), read, began)
        return read, replace(report, bytes=read.bytes)

    def _report(
        self,
        split: SnapshotSplit,
        between: tuple[MySqlPosition, MySqlPosition],
        rows: SplitRows,
        began: float,
    ) -> SplitReport:
        """Return the report of a split that was read, and remember where; without its bytes."""
        low, high = between
        self._last_read = AppliedThrough(split.split_id, high)
        return SplitReport(
            split_id=split.split_id,
            low=low,
            high=high,
            rows=rows.rows,
            bytes=0,
            fingerprint=self._fingerprints[split.table],
            attempt=0,
            read_s=time.monotonic() - began,
        )

    # --- the session --------------------------------------------------------------------------

    def _open_session(self) -> _Session:
        """Connect, check the server against the last split, and choose the watermarks."""
        connection = connect(self._endpoint, purpose="snapshot")
        capabilities = read_capabilities(connection)
        self._check_history(connection, capabilities)
        watermarks = watermarks_of(connection, capabilities)
        self._session = _Session(connection, capabilities, watermarks, {})
        return self._session

    def _identified(self, high: MySqlPosition) -> MySqlPosition:
        """Return H with the time when its log file was begun, if the log reader did not say."""
        if high.imprint is not None or high.binlog is None:
            return high
        file = high.binlog.file
        if file not in self._begun:
            self._begun[file] = imprint_at(self._endpoint, high)
        begun = self._begun[file]
        if begun is None:
            return high
        imprint = Imprint(high.binlog, high.binlog.offset, begun.created)
        return replace(high, imprint=imprint)

    def _check_history(self, connection: ServerConnection, capabilities: Capabilities) -> None:
        """Refuse a new connection's server if it lacks what the last split was read with."""
        self._begun.clear()
        if self._last_read is not None and self._last_low is not None:
            check_history(connection, capabilities, self._last_low, (self._last_read,))
            self._check_log(capabilities, own(self._last_read.position))

    def _check_log(self, capabilities: Capabilities, high: MySqlPosition) -> None:
        """Refuse the server if its log is not the one that the last H was taken from."""
        if high.imprint is not None and high.server_uuid == capabilities.server_uuid:
            require_known(self._endpoint, high)

    def _open_log(self, low: MySqlPosition) -> LogReader:
        """Open a log reader at L; refuse one whose server is not the one of the rows."""
        reader = LogReader(
            self._endpoint,
            server_id=self._server_id,
            start=low,
            captured=frozenset(self._tables),
            limits=BatchLimits(bytes=REPLAY_BYTES),
            zero_dates=self._zero_dates,
            schemas=self._schema_of,
        )
        if self._session is not None:
            log_of, rows_of = reader.position.server, self._session.capabilities.server_uuid
            if log_of != rows_of:
                reader.close()
                raise RetryableError(
                    f"the log is that of {log_of}, the rows are those of {rows_of}",
                    str(self._endpoint),
                    "none: the rows read so far are dropped",
                    "the split is read again; connect to one server, not to a proxy that chooses",
                )
        return reader

    def _schema_of(self, table: TableId) -> TableSchema | None:
        """Return the planned definition of a captured table, None for another table."""
        return self._tables.get(table)

    def _checked_low(self, low: MySqlPosition) -> MySqlPosition:
        """Return L, and refuse an L that does not contain the last split's L."""
        before = self._last_low
        if before is not None and not low.covers(before):
            raise SourceIdentityError(
                f"the log went back from {before} to {low} between two splits",
                str(self._endpoint),
                "the source was reset, restored or replaced while it was read",
                RESET,
            )
        self._last_low = low
        return low

    def _check_definition(self, session: _Session, schema: TableSchema) -> None:
        """Refuse the table if its definition is not the planned one, or changed since."""
        table = schema.table
        found = without_counter(create_statement(session.connection, table))
        known = session.definitions.get(table)
        if known is not None and found != known:
            raise SchemaMovedError(
                f"the definition of {table} changed while it was read",
                str(self._endpoint),
                "none: the rows read so far are dropped",
                "the split is read again under the new definition",
            )
        if known is None:
            self._check_planned(session, schema)
            self._check_cascades(session, table, found)
            session.definitions[table] = found

    def _check_planned(self, session: _Session, schema: TableSchema) -> None:
        """Refuse the table if its definition is not the planned one."""
        keys = NamedKeys.as_read(schema)
        found = read_schema(session.connection, schema.table, keys=keys)
        if not found.is_defined_as(schema):
            raise TableChangedError(
                f"{schema.table} is no longer defined as when it was planned",
                str(self._endpoint),
                "its rows would not fit the sink's table",
                "`reset` the pipeline",
            )

    def _check_cascades(self, session: _Session, table: TableId, found: str) -> None:
        """Refuse a table that has got a foreign key by which rows change that nobody logs.

        The log behind the rows need not tell of it: the statement came before them.
        """
        if session.capabilities.logs_cascades or "REFERENCES" not in found:
            return
        for key in keys_in(table, found):
            if key.cascades:
                raise TableChangedError(
                    f"the foreign key {key.name} of {table} changes rows by itself, and came after "
                    "preflight",
                    str(self._endpoint),
                    "the server does not log these rows: the sink would keep them as they were",
                    "drop it, or give it NO ACTION; the table is read again then",
                )

    # --- the rows -----------------------------------------------------------------------------

    def _one_of(self, session: _Session, schema: TableSchema, listed: pa.RecordBatch) -> str:
        """Return the condition that a key is one of the listed keys."""
        columns = key_columns(schema)
        names = ", ".join(quote_identifier(column.name) for column in columns)
        keys = key_list(listed, columns, own_charset=session.capabilities.is_mariadb)
        return f"({names}) IN ({bytes(keys.run(0, listed.num_rows)).decode()})"

    def _select(
        self,
        connection: ServerConnection,
        split: SnapshotSplit,
        condition: str,
        decoder: TextDecoder,
    ) -> tuple[TextChunk, ...]:
        """Read the split's rows by one SELECT, under one read view."""
        raw = RawConnection(connection, where=str(self._endpoint))
        by_values = split.chosen is not None and split.keys == KeyRange() and not split.listed
        schema = self._tables[split.table]
        hint = f" {by_key(schema)}" if schema.primary_key and not by_values else ""
        sql = (
            f"SELECT {decoder.select_list} FROM {quote_table(split.table)}{hint} WHERE {condition}"
        )
        chunks = chunks_of(raw, sql, decoder, max_bytes=self._max_split_bytes)
        if chunks is None:
            raise self._too_big(split)
        return chunks

    def _too_big(self, split: SnapshotSplit) -> SplitTooBigError:
        """Return the error for a split of too many bytes."""
        if not self._tables[split.table].has_key:
            return SplitTooBigError(
                f"{split.table} has no key, so it is read as one split, and it holds more than "
                f"{self._max_split_bytes} bytes",
                str(self._endpoint),
                "none: what was read is dropped",
                "raise snapshot.max_split_mb, if readers have that much memory, or give it a key",
            )
        return SplitTooBigError(
            f"split {split.split_id} {split.keys} holds more than {self._max_split_bytes} bytes",
            str(self._endpoint),
            "none: what was read is dropped",
            "the split is cut in two; smaller splits (snapshot.split_rows) avoid this",
        )

    # --- the log ------------------------------------------------------------------------------

    def _exact(self, high: MySqlPosition, low: MySqlPosition) -> MySqlPosition:
        """Return H with its GTIDs: those of L, and those logged up to H."""
        read = self.tail.position
        gtids = None if read is None else read.gtids
        if isinstance(gtids, GtidSet) and isinstance(low.gtids, GtidSet):
            gtids = gtids.union(low.gtids)
        imprint = None if read is None or read.binlog != high.binlog else read.imprint
        return MySqlPosition(high.server_uuid, high.binlog, gtids, imprint)


def _seen_gtids(connection: ServerConnection) -> GtidSet:
    """Return an upper bound of the GTIDs in the log: the executed ones and those being committed.

    In this order: one that leaves the second set enters the first at the same moment, or was
    rolled back. One of these would be asked of every server in vain, so they are given some time.
    """
    owned = _owned_gtids(connection)
    deadline = time.monotonic() + _OWNED_WAIT_S
    while True:
        executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
        owned = owned.subtract(executed)
        if not owned or time.monotonic() >= deadline:
            return executed.union(owned)
        time.sleep(_OWNED_POLL_S)
        owned = owned.intersection(_owned_gtids(connection))


def _owned_gtids(connection: ServerConnection) -> GtidSet:
    """Return the GTIDs of transactions that are being committed."""
    owned = str(query(connection, "SELECT @@global.gtid_owned")[0][0] or "")
    return GtidSet.parse(re.sub(r"#\d+", "", owned))
