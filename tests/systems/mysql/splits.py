"""Splits read from real servers, with statements run on another connection at the four moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.servers.given import SqlServer

SERVER_ID = 7101
MOMENTS = ("before_low", "after_low", "before_high", "after_high")


class Hooks:
    """A `PhaseListener` that runs what was put on a moment, each time it comes."""

    def __init__(self, **actions: Callable[[], object]) -> None:
        self.actions = actions
        self.told: list[str] = []

    def _tell(self, moment: str) -> None:
        self.told.append(moment)
        action = self.actions.get(moment)
        if action is not None:
            action()

    def before_low(self, split: SnapshotSplit) -> None:
        self._tell("before_low")

    def after_low(self, split: SnapshotSplit) -> None:
        self._tell("after_low")

    def before_high(self, split: SnapshotSplit) -> None:
        self._tell("before_high")

    def after_high(self, split: SnapshotSplit) -> None:
        self._tell("after_high")


def schema_of(server: SqlServer, table: TableId) -> TableSchema:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        return read_schema(connection, table)


def split_of(
    schema: TableSchema, start: Key | None = None, end: Key | None = None, number: int = 0
) -> SnapshotSplit:
    return SnapshotSplit(
        schema.table, number, schema.primary_key, schema.key_kinds, KeyRange(start, end)
    )


@contextmanager
def reader_of(
    server: SqlServer, *schemas: TableSchema, endpoint: Endpoint | None = None, **options: Any
) -> Iterator[SnapshotReader]:
    options.setdefault("server_id", SERVER_ID)
    reader = SnapshotReader(
        endpoint or Endpoint.parse(server.dsn()),
        {schema.table: schema for schema in schemas},
        **options,
    )
    with closing(reader):
        yield reader


def tuples(rows: SplitRows) -> list[tuple[Any, ...]]:
    """Return a split's rows, sorted by their first columns."""
    found = [tuple(row.values()) for batch in rows.batches() for row in batch.to_pylist()]
    return sorted(found)


def runs(server: SqlServer, *statements: str) -> Callable[[], None]:
    """Return an action that runs statements on a connection of its own."""

    def action() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    return action


def selected(server: SqlServer, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in server.execute(sql))


def numbered(values: Sequence[int]) -> str:
    """Write rows `(1, 'v1'), ...` for an INSERT."""
    return ", ".join(f"({value}, 'v{value}')" for value in values)
