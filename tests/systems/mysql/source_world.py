"""The sources' world on a server of MySQL's protocol."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.ports import PhaseListener
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.behaviours.sink_world import Change, Row
from tests.behaviours.source_world import READER_ID, SourceWorld
from tests.servers.given import SqlServer


@dataclass
class MySqlSourceWorld(SourceWorld):
    """A table on one server."""

    server: SqlServer

    def __post_init__(self) -> None:
        self.make_table()

    @property
    def source(self) -> MySqlSource:
        return MySqlSource(Endpoint.parse(self.server.dsn()))

    def make_table(self) -> None:
        self.server.execute(
            f"CREATE TABLE {self.database}.orders (id INT PRIMARY KEY, name VARCHAR(200))"
        )

    def commit(self, *changes: Change) -> None:
        with closing(self.server.connect(self.database, autocommit=False)) as connection:
            with connection.cursor() as cursor:
                for op, before, after in changes:
                    match op:
                        case Op.INSERT:
                            cursor.execute("INSERT INTO orders VALUES (%s, %s)", after)
                        case Op.UPDATE:
                            given = (*(after or ()), (before or ())[0])
                            cursor.execute(
                                "UPDATE orders SET id = %s, name = %s WHERE id = %s", given
                            )
                        case _:
                            cursor.execute("DELETE FROM orders WHERE id = %s", (before or ())[:1])
            connection.commit()

    def held(self) -> list[Row]:
        return self.server.execute(f"SELECT * FROM {self.database}.orders ORDER BY id")

    def split_reader(self, listener: PhaseListener) -> SnapshotReader:
        schemas = {self.table: self.schema()}
        return SnapshotReader(
            self.source.endpoint, schemas, server_id=READER_ID + 1, listener=listener
        )

    def throw_log_away(self) -> None:
        self.server.execute("FLUSH BINARY LOGS")
        self.commit((Op.INSERT, None, (-1, "in the next file")))
        self.server.execute("FLUSH BINARY LOGS")
        last = self.server.execute("SHOW BINARY LOGS")[-1][0]
        deadline = time.monotonic() + 10  # MariaDB keeps a file that it still looks at
        while len(self.server.execute("SHOW BINARY LOGS")) > 1 and time.monotonic() < deadline:
            self.server.execute(f"PURGE BINARY LOGS TO '{last}'")
            time.sleep(0.1)
