"""The slow decoder: events read one by one with mysql-replication's classes.

It stands beside the column decoder as its fall-back and as the oracle of its tests, and shares no
code with it. The library's stream is not used: events come from our own transport, so its silent
reconnect cannot happen. Framing, GTIDs, transaction ends and checksums are judged here; the
library reads table maps and rows.

Whatever is not known is fatal, with type and place: compressed transactions, tagged GTIDs,
partial JSON, XA groups, encrypted logs, incidents. So are partial row images and table maps
without column names, because their values could only be guessed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, assert_never
from uuid import UUID

from airflow_cdc_provider.columnar.binlog.prepared import PreparedBefore, nothing_before
from airflow_cdc_provider.columnar.binlog.table_map import SchemaSource, no_schema
from airflow_cdc_provider.columnar.changes import ChangeBatch, Op, Statement
from airflow_cdc_provider.columnar.events import BatchLimits, EventChunk
from airflow_cdc_provider.columnar.value_model import ZeroDates, arrow_schema
from airflow_cdc_provider.core.ddl_effects import StatementKind, effect_of
from airflow_cdc_provider.core.errors import (
    CorruptLogError,
    IntegrityError,
    PreparedTransactionError,
    UnknownEventError,
    UnknownTypeError,
)
from airflow_cdc_provider.core.gtid import Gtid, GtidSource, MariaDbGtid
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import (
    AnyGtid,
    LogPosition,
)
from airflow_cdc_provider.mysql.event_framing import rotation_target
from airflow_cdc_provider.mysql.library_batches import Image, OpenTransaction, RowBatches
from airflow_cdc_provider.mysql.library_events import Dialect, library_event
from airflow_cdc_provider.mysql.library_values import (
    CapturedTableMap,
    ExactDeleteRows,
    ExactUpdateRows,
    ExactWriteRows,
    captured_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY, _STOP, _ROTATE, _FORMAT, _XID, _TABLE_MAP = 2, 3, 4, 15, 16, 19
_HEARTBEAT, _GTID, _ANONYMOUS_GTID, _XA_PREPARE = 27, 33, 34, 38
_MARIADB_GTID = 162
# Rows-query and ignorable events, previous GTIDs, view changes; MariaDB's annotations, binlog
# checkpoints and GTID lists: none of them changes a row.
_HARMLESS = {28, 29, 35, 37, 160, 161, 163}
_ROWS = {
    23: (Op.INSERT, ExactWriteRows),
    24: (Op.UPDATE, ExactUpdateRows),
    25: (Op.DELETE, ExactDeleteRows),
    30: (Op.INSERT, ExactWriteRows),
    31: (Op.UPDATE, ExactUpdateRows),
    32: (Op.DELETE, ExactDeleteRows),
}
_WHY_NOT = {
    26: "an incident: the server lost events",
    39: "a partial JSON update; set binlog_row_value_options = ''",
    40: "a compressed transaction",
    42: "a tagged GTID",
    164: "an encrypted log",
    **dict.fromkeys(range(165, 172), "a compressed event"),
}
_HEADER = 19
_DISGUISED = {"uuid", "inet4", "inet6"}
_MARIADB_STANDALONE = 1
_MARIADB_XA = 64 | 128


class LibraryDecoder:
    """An `EventDecoder` on mysql-replication's event classes."""

    def __init__(  # noqa: PLR0913 - each option is one a caller chooses by name
        self,
        start: LogPosition,
        *,
        server_uuid: str,
        flavour: str,
        captured: Collection[TableId] | Callable[[TableId], bool],
        limits: BatchLimits | None = None,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        schemas: SchemaSource = no_schema,
        before: PreparedBefore = nothing_before,  # noqa: ARG002 - it reads no XA transactions
    ) -> None:
        self._captured = captured if callable(captured) else captured.__contains__
        self._schemas = schemas
        self._server_uuid = server_uuid
        self._dialect = Dialect(flavour)
        self._zero_dates = zero_dates
        self._batches = RowBatches(start, limits or BatchLimits())
        self._at = start.binlog
        self._checksums = True
        self._tables: dict[int, Any] = {}
        self._columns: dict[int, tuple[TableId, pa.Schema]] = {}

    @property
    def position(self) -> LogPosition:
        """Return the last boundary seen, with the GTIDs up to there."""
        return self._batches.position

    def feed(self, chunk: EventChunk) -> Iterator[ChangeBatch]:
        """Take events in log order; yield the batches that the limits or a barrier end."""
        view = memoryview(chunk.buffer)
        for start, end in zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True):
            barrier = self._event(bytes(view[start:end]))
            if self._at is not None and (barrier is not None or self._batches.is_full):
                yield self._batches.take(self._at, barrier)

    def flush(self) -> ChangeBatch | None:
        """Return what is complete but not yet handed out, up to the last boundary."""
        return self._batches.flush(self._at)

    # --- events -------------------------------------------------------------------------------

    def _event(self, event: bytes) -> Statement | None:
        kind = event[4]
        log_pos = int.from_bytes(event[13:17], "little")
        if kind == _FORMAT:
            self._read_format(event)
        self._batches.count_bytes(len(event))
        if kind == _ROTATE:
            self._at = rotation_target(event)
            self._move()
            return None
        body = self._verified(event)
        if log_pos and self._at is not None:
            self._at = self._at.at(log_pos)
        if kind in _ROWS:
            self._read_rows(kind, event)
        elif kind == _TABLE_MAP:
            self._read_table_map(event, body)
        elif kind == _XID:
            self._end()
        elif kind == _QUERY:
            return self._query(body)
        elif kind in {_GTID, _ANONYMOUS_GTID, _MARIADB_GTID}:
            self._begin_group(kind, event, body)
        elif kind == _FORMAT or kind in _HARMLESS or kind in {_STOP, _HEARTBEAT}:
            self._move()
        else:
            self._refuse(kind)
        return None

    def _read_format(self, event: bytes) -> None:
        algorithm = event[-5]
        if algorithm not in {0, 1}:
            raise CorruptLogError(f"checksum algorithm {algorithm} is not known", self._where)
        self._checksums = algorithm == 1
        self._tables.clear()
        self._columns.clear()

    def _verified(self, event: bytes) -> bytes:
        """Check length and CRC32; return the body."""
        if int.from_bytes(event[9:13], "little") != len(event):
            raise CorruptLogError(
                "an event's length differs from its packet's",
                self._where,
                "rows could be read wrong",
                "read again; if it stays, check the log with mysqlbinlog",
            )
        # Without checksums the format event still has the bytes of one, but not its value.
        if not self._checksums:
            return event[_HEADER:-4] if event[4] == _FORMAT else event[_HEADER:]
        if zlib.crc32(event[:-4]) != int.from_bytes(event[-4:], "little"):
            raise CorruptLogError(
                "an event's checksum is wrong",
                self._where,
                "rows could be read wrong",
                "read again; if it stays, check the log with mysqlbinlog",
            )
        return event[_HEADER:-4]

    def _move(self) -> None:
        if self._at is not None:
            self._batches.move_to(self._at, self._server_uuid)

    def _begin_group(self, kind: int, event: bytes, body: bytes) -> None:
        if self._batches.open is not None:
            self._unexpected("a transaction begins inside another")
        if self._at is None:
            self._unexpected("a transaction comes before the log file's name")
        start = self._at.at(max(self._at.offset - len(event), 0))
        seconds = int.from_bytes(event[:4], "little")
        if kind == _MARIADB_GTID:
            gtid: AnyGtid = MariaDbGtid(
                int.from_bytes(body[8:12], "little"),
                int.from_bytes(event[5:9], "little"),
                int.from_bytes(body[:8], "little"),
            )
            if body[12] & _MARIADB_XA:
                self._refuse_xa()
            standalone = bool(body[12] & _MARIADB_STANDALONE)
            self._batches.open = OpenTransaction(
                self._server_uuid, gtid, start, seconds * 1_000_000, standalone=standalone
            )
            return
        source = GtidSource(str(UUID(bytes=body[1:17])))
        number = int.from_bytes(body[17:25], "little")
        named = Gtid(source, number) if kind == _GTID else None
        self._batches.open = OpenTransaction(
            self._server_uuid, named, start, _committed_us(body, seconds), standalone=True
        )

    def _query(self, body: bytes) -> Statement | None:
        status_length = int.from_bytes(body[11:13], "little")
        at = 13 + status_length
        database = body[at : at + body[8]].decode("utf-8", "replace")
        sql = body[at + body[8] + 1 :].decode("utf-8", "replace")
        words = sql.upper().split(None, 2)
        first = words[0].rstrip(";") if words else ""
        if first == "BEGIN":
            if self._batches.open is None:
                self._unexpected("BEGIN without a GTID event")
            self._batches.open.standalone = False
        elif first == "COMMIT":
            self._end()
        elif first == "ROLLBACK" and words[1:2] != ["TO"]:
            self._end(keep=False)
        elif first == "XA":
            self._refuse_xa()
        elif first not in {"SAVEPOINT", "ROLLBACK"}:
            return self._statement(database, sql)
        return None

    def _statement(self, database: str, sql: str) -> Statement | None:
        """Judge a statement; one that may concern a captured table is a barrier."""
        opened = self._batches.open
        if opened is None or self._at is None:
            self._unexpected("a statement without a GTID event")
        effect = effect_of(sql, default_database=database)
        concerns = not effect.harmless and (
            effect.reaches_all
            or not effect.tables
            or any(self._captured(table) for table in effect.tables)
        )
        if concerns and effect.kind is StatementKind.ROWS:
            raise IntegrityError(
                f"the log holds row changes as a statement: {sql[:200]}",
                self._where,
                "the rows it changed are lost to us",
                "set binlog_format=ROW for every session, then restart the pipeline",
            )
        if not opened.standalone:
            # CREATE TABLE ... SELECT stands inside the transaction of its rows.
            if concerns:
                self._unexpected(f"a statement inside a transaction: {sql[:200]}")
            return None
        point = self._batches.commit(self._at)
        return Statement(database, sql, point) if concerns else None

    def _end(self, *, keep: bool = True) -> None:
        opened = self._batches.open
        if opened is None or self._at is None:
            self._unexpected("a commit without a transaction")
        if keep:
            self._batches.commit(self._at)
        elif opened.handed_out:
            self._unexpected("a transaction whose rows were handed out is rolled back")
        else:
            self._batches.roll_back(self._at)

    # --- rows ---------------------------------------------------------------------------------

    def _library_event(self, kind: type[Any], event: bytes) -> Any:
        """Read an event with one of the library's classes."""
        bare = event[:-4] if self._checksums else event
        return library_event(kind, bare, self._tables, self._dialect)[0]

    def _read_table_map(self, event: bytes, body: bytes) -> None:
        number = int.from_bytes(body[:6], "little")
        database = body[9 : 9 + body[8]].decode()
        at = 10 + body[8]
        table = TableId(database, body[at + 1 : at + 1 + body[at]].decode())
        self._tables.pop(number, None)
        self._columns.pop(number, None)
        if not self._captured(table):
            return
        table_map = self._library_event(CapturedTableMap, event)
        if not table_map.optional_metadata.column_name_list:
            raise IntegrityError(
                f"the log does not name the columns of {table}",
                self._where,
                "values could be taken for another column's",
                "set binlog_row_metadata=FULL and restart the pipeline",
            )
        self._refuse_disguised(table)
        columns = captured_columns(table_map, str(table))
        self._tables[number] = table_map.get_table()
        self._columns[number] = (table, arrow_schema(columns, self._zero_dates))

    def _refuse_disguised(self, table: TableId) -> None:
        """Refuse MariaDB's types that the log does not tell from BINARY."""
        schema = self._schemas(table)
        names = (
            [] if schema is None else [c.name for c in schema.columns if c.type.name in _DISGUISED]
        )
        if names:
            raise UnknownTypeError(
                f"columns {', '.join(names)} of {table} look like BINARY in the log",
                self._where,
                "their values would not be those that SELECT gives",
                "read this log with the column decoder",
            )

    def _read_rows(self, kind: int, event: bytes) -> None:
        number = int.from_bytes(event[_HEADER : _HEADER + 6], "little")
        if number not in self._columns:
            return
        if self._batches.open is None:
            self._unexpected("rows outside a transaction")
        table, schema = self._columns[number]
        op, reader = _ROWS[kind]
        rows_event = self._library_event(reader, event)
        rows_event.zero_dates = self._zero_dates
        self._check_image(rows_event, table)
        images = [_images_of(op, row) for row in rows_event.rows]
        self._batches.add(table, schema, op, images)

    def _check_image(self, rows_event: Any, table: TableId) -> None:
        count = rows_event.number_of_columns
        present = rows_event.columns_present_bitmap
        after = getattr(rows_event, "columns_present_bitmap2", present)
        full = (1 << count) - 1
        if any(int.from_bytes(bits, "little") & full != full for bits in (present, after)):
            raise IntegrityError(
                f"the log holds only a part of a row of {table}",
                self._where,
                "absent columns would become NULL",
                "set binlog_row_image=FULL for every session and restart the pipeline",
            )

    # --- refusals -----------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        gtid = self._batches.open.gtid if self._batches.open is not None else None
        return f"{self._at}" + (f", transaction {gtid}" if gtid else "")

    def _refuse(self, kind: int) -> NoReturn:
        if kind == _XA_PREPARE:
            self._refuse_xa()
        raise UnknownEventError(
            f"event type {kind} is not understood: {_WHY_NOT.get(kind, 'unknown')}",
            self._where,
            "the changes in it would be lost",
            "read this log with the column decoder",
        )

    def _refuse_xa(self) -> NoReturn:
        raise PreparedTransactionError(
            "the fall-back decoder does not read XA transactions",
            self._where,
            "rows of a prepared transaction could be applied before their commit",
            "read this log with the column decoder",
        )

    def _unexpected(self, what: str) -> NoReturn:
        raise UnknownEventError(
            what,
            self._where,
            "changes could be counted to the wrong transaction",
            "start at a boundary between transactions",
        )


def _committed_us(body: bytes, seconds: int) -> int:
    """Read the original commit's time; servers before 8.0.1 give only the header's seconds."""
    if len(body) < 49:
        return seconds * 1_000_000
    immediate = int.from_bytes(body[42:49], "little")
    if immediate >> 55:
        return int.from_bytes(body[49:56], "little")
    return immediate


def _images_of(op: Op, row: dict[str, dict[str, Any]]) -> tuple[Image, Image]:
    """Return a row before and after its change."""
    match op:
        case Op.INSERT:
            return None, tuple(row["values"].values())
        case Op.DELETE:
            return tuple(row["values"].values()), None
        case Op.UPDATE:
            return tuple(row["before_values"].values()), tuple(row["after_values"].values())
        case _:
            assert_never(op)
