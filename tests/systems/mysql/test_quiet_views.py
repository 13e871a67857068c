"""Law 3 without a key: nothing can be replayed, so the rows are those of exactly one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.multiset import with_changes
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import WatermarkMode
from airflow_cdc_provider.systems.mysql.source import quiet_views
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.mysql.source.watermarks import Watermarks
from tests.servers.given import SqlServer
from tests.systems.mysql.splits import Hooks, reader_of, runs, schema_of, split_of


@dataclass
class Written:
    """Watermarks of a table that is written to behind each low one, and before each high one."""

    of: Watermarks
    write: Callable[[], None]
    mode: WatermarkMode
    settled: BinlogPosition | None = None

    def low(self) -> MySqlPosition:
        low = self.of.low()
        self.write()
        return low

    def high(self, low: MySqlPosition) -> MySqlPosition:
        self.write()
        return self.of.high(low)

    def release(self) -> None:
        self.of.release()


def write_behind_low(reader: SnapshotReader, write: Callable[[], None]) -> None:
    session = reader._session
    assert session is not None
    session.watermarks = Written(session.watermarks, write, session.watermarks.mode)


def counted(rows: SplitRows) -> Counter[int]:
    return Counter(v for batch in rows.batches() for v in batch.column(0).to_pylist())


class QuietViews:
    @pytest.fixture
    def server(self, mysql_server: SqlServer) -> SqlServer:
        return mysql_server

    @pytest.fixture
    def table(self, server: SqlServer, mysql_database: str) -> TableId:
        return self.made(server, mysql_database)

    def made(self, server: SqlServer, database: str) -> TableId:
        server.execute(f"CREATE TABLE {database}.t (v INT)")
        server.execute(f"INSERT INTO {database}.t VALUES (1), (1), (2)")
        return TableId(database, "t")

    def test_law_3_what_is_written_around_a_read_is_there_once(
        self, server: SqlServer, table: TableId
    ) -> None:
        schema = schema_of(server, table)
        split = split_of(schema)
        hooks = Hooks()
        with reader_of(server, schema, listener=hooks) as reader:
            reader.read(split)
            statements = iter(
                (
                    f"INSERT INTO {table} VALUES (1), (3)",
                    f"DELETE FROM {table} WHERE v = 1 LIMIT 1",
                    f"UPDATE {table} SET v = 1 WHERE v = 2",
                    f"INSERT INTO {table} VALUES (1), (4)",
                )
            )

            def write() -> None:
                for statement in statements:
                    server.execute(statement)
                    return

            write_behind_low(reader, write)
            hooks.actions["after_low"] = runs(server, f"INSERT INTO {table} VALUES (1)")
            hooks.actions["before_high"] = runs(server, f"DELETE FROM {table} WHERE v = 3")
            rows, report = reader.read(split)
            assert report.low == report.high
            hooks.actions.clear()
            for _ in statements:
                pass
            now, later = reader.read(split)
            changes = reader.changes(split, report, later.high)
            read = pa.Table.from_batches(rows.batches(), rows.schema)
            followed = with_changes(read, changes, table).column(0).to_pylist()
            assert Counter(followed) == counted(now)
            at_server = server.execute(f"SELECT v FROM {table}")
            assert counted(now) == Counter(v for (v,) in at_server)


class TestMySql(QuietViews):
    def test_a_table_that_is_written_to_at_every_moment_is_not_read(
        self, server: SqlServer, table: TableId, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(quiet_views, "_QUIET_WAIT_S", 0.3)
        schema = schema_of(server, table)
        with reader_of(server, schema) as reader:
            reader.read(split_of(schema))
            write_behind_low(reader, runs(server, f"INSERT INTO {table} VALUES (1)"))
            with pytest.raises(RetryableError, match="has no key, and the log changes it between"):
                reader.read(split_of(schema))


class TestMariaDb(QuietViews):
    @pytest.fixture
    def server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.fixture
    def table(self, server: SqlServer, mariadb_database: str) -> TableId:
        return self.made(server, mariadb_database)
