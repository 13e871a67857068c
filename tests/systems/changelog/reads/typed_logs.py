"""A change log of a table with every type, made from a real server by SELECT and from its log."""

from __future__ import annotations

import datetime as dt
import struct
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.core.endpoint import Endpoint, Folder
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.changelog.changelog_sink import ChangelogSink
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import own
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import position_of, reading
from tests.systems.mysql.wire.raw_select import select_rows

Row = dict[str, Any]
_MOST_DIGITS = 38


class TypedLog:
    """The change log of one table of a real server."""

    def __init__(self, server: SqlServer, table: TableId, root: Path) -> None:
        self._server, self.table, self.root = server, table, root
        endpoint = Endpoint.parse(server.dsn())
        with closing(connect(endpoint, purpose="test")) as connection:
            (self.schema,) = read_schemas(connection, [table]).values()
        self._plan = TablePlan.alike(self.schema, table, 0)
        owner = Owner(PipelineName("typed"), 1)
        self._sink = ChangelogSink(Folder(str(root), "parquet"), owner, (self._plan,))
        self._ledger = self._sink.open_ledger()
        self._ledger.take_over(1)
        self._ledger.start_plan("one")
        self._snapshot()

    def _snapshot(self) -> None:
        """Publish the table's rows as one split, and hand off."""
        place = position_of(self._server)
        rows = ArrowRows(self.selected())
        keys = (self.schema.primary_key, self.schema.key_kinds)
        split = SnapshotSplit(self.table, 0, *keys, KeyRange(None, None))
        report = SplitReport(split.split_id, place, place, rows.rows, rows.bytes, "f", 1)
        with closing(self._sink.open_splits()) as splits:
            splits.publish(split, rows, report)
        self._ledger.store_stream(hand_off([FinishedSplit.of(split, report, backfilled=True)]))

    def selected(self) -> Any:
        """The source's rows now, as SELECT decodes them."""
        return select_rows(self._server, self.schema, order_by="id")

    def follow(self) -> None:
        """Append what the server's log has since."""
        end = position_of(self._server)
        stream = self._ledger.stream()
        assert stream is not None
        options = {"facts": self._sink.abilities.facts, "schemas": lambda _table: self.schema}
        with (
            closing(self._sink.open_changes(arrow_schemas([self.schema]))) as changes,
            reading(self._server, own(stream.start), self.table, **options) as reader,
        ):
            for batch in reader.read_to(end.binlog):
                changes.apply(batch)


def as_spark_has_it(row: Row, schema: TableSchema) -> Row:
    """A row of the value model with the values that a reader of the log gets."""
    return {column.name: _value(row[column.name], column.type) for column in schema.columns}


def _value(value: Any, of: ColumnType) -> Any:
    """A value as a reader gets it; see docs/changelog.md."""
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1_000_000)
    if isinstance(value, Decimal) and (of.precision or 0) > _MOST_DIGITS:
        return f"{value:f}"
    match of.kind:
        case TypeKind.BITS:
            bits = of.length or 1
            return bool(value) if bits == 1 else value.to_bytes(8, "little")[: -(-bits // 8)]
        case TypeKind.GEOMETRY:
            (srid,) = struct.unpack("<I", value[:4])
            return {"wkb": value[4:], "srid": srid or None}
        case TypeKind.VECTOR:
            return list(struct.unpack(f"<{len(value) // 4}f", value))
        case TypeKind.ENUM if value == of.no_member:
            return value if "" in of.members else ""
        case TypeKind.INTEGER if of.unsigned and of.name == "bigint":
            return Decimal(value)
        case _:
            return value
