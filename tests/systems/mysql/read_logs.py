"""Reading a real log: readings, positions and rows as the reader's tests ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from airflow_cdc_provider.columns.changes import ChangeBatch, Op
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.log_files import log_end
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer
from tests.servers.proxy import CuttingProxy

SERVER_ID = 7001


def position_of(server: SqlServer) -> MySqlPosition:
    """Ask a quiet server for its whole position."""
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        capabilities = read_capabilities(connection)
        end = log_end(connection, capabilities)
    if capabilities.is_mariadb or not capabilities.has_gtids:
        return MySqlPosition(capabilities.server_uuid, end)
    executed = server.execute("SELECT @@global.gtid_executed")[0][0]
    return MySqlPosition(capabilities.server_uuid, end, GtidSet.parse(executed))


@contextmanager
def reading(
    server: SqlServer, start: MySqlPosition, *tables: TableId, **options: Any
) -> Iterator[LogReader]:
    endpoint = options.pop("endpoint", None) or Endpoint.parse(server.dsn())
    options.setdefault("server_id", SERVER_ID)
    reader = LogReader(endpoint, start=start, captured=set(tables), **options)
    with closing(reader):
        yield reader


def rows_of(batches: list[ChangeBatch], column: str = "id") -> list[tuple[str, Any]]:
    """Flatten batches to (operation, key) in log order."""
    found = []
    for number, batch in enumerate(batches):
        for changes in batch.tables:
            ops, ordinals = changes.op.to_pylist(), changes.ordinal.to_pylist()
            before = changes.before.column(column).to_pylist()
            after = changes.after.column(column).to_pylist()
            for place, op, old, new in zip(ordinals, ops, before, after, strict=True):
                key = new if op == Op.INSERT else old if op == Op.DELETE else (old, new)
                found.append(((number, place), (Op(op).name, key)))
    return [row for _, row in sorted(found, key=lambda entry: entry[0])]


def insert(server: SqlServer, table: TableId, *keys: int) -> None:
    values = ", ".join(f"({key}, 'v{key}')" for key in keys)
    server.execute(f"INSERT INTO {table.database}.{table.table} VALUES {values}")


def through(proxy: CuttingProxy, server: SqlServer) -> Endpoint:
    return replace(Endpoint.parse(server.dsn()), port=proxy.port)
