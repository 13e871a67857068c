"""The benchmark's servers and data: two MySQL servers, TPC-H lineitem, four logs.

The logs are those that change-data-capture meets: w1 single-row inserts, w2 bulk inserts, w3 a
mix of single-row transactions (OLTP), w4 updates of a wide row. Each lies in files of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import workload
from tests.servers.throwaway import MySqlServer, Options

DATABASE = "bench"
_OPTIONS: Options = {
    "innodb-buffer-pool-size": "2G",
    "innodb-redo-log-capacity": "2G",
    "max-allowed-packet": "256M",
    "innodb-flush-log-at-trx-commit": 1,
    "sync-binlog": 1,
    "max-binlog-size": "1G",
}


@dataclass(frozen=True, slots=True)
class Log:
    """One workload's stretch of the source's log."""

    name: str
    file: str
    path: Path
    gtids_before: str
    rows: int
    """Row changes in it."""
    table: str


@dataclass(frozen=True, slots=True)
class World:
    """What every subject is measured on."""

    source: MySqlServer
    sink: MySqlServer
    rows: int
    """Rows of lineitem."""

    @property
    def pids(self) -> list[int]:
        return [self.source.pid, self.sink.pid]

    def empty_sink(self, *, local_infile: bool = True) -> None:
        """Drop what earlier subjects left, and say whether LOAD DATA LOCAL is allowed."""
        for database in (DATABASE, "airflow_cdc"):
            self.sink.execute(f"DROP DATABASE IF EXISTS {database}")
        self.sink.execute(f"SET GLOBAL local_infile = {int(local_infile)}")

    def make_log(self, name: str) -> Log:
        """Run one workload and return its stretch of the log."""
        made = workload.WORKLOADS[name]
        connection = self.source.connect(user="root", password="", database=DATABASE)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET GLOBAL sync_binlog = 0")
                cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
                for statement in made.prepare:
                    cursor.execute(statement)
                cursor.execute("FLUSH BINARY LOGS")
                cursor.execute("SELECT @@global.gtid_executed")
                gtids_before = "".join(cursor.fetchone()[0].split())
                cursor.execute("SHOW BINARY LOG STATUS")
                file = cursor.fetchone()[0]
                rows = made.run(cursor)
                cursor.execute("FLUSH BINARY LOGS")
        finally:
            connection.close()
        path = self.source.datadir / file
        return Log(name, file, path, gtids_before, rows, made.table)


@contextmanager
def world(scale: float) -> Iterator[World]:
    """Start the servers and load lineitem at `scale`."""
    with MySqlServer(_OPTIONS) as source, MySqlServer(_OPTIONS) as sink:
        rows = _load_lineitem(source, scale)
        yield World(source, sink, rows)


def _load_lineitem(source: MySqlServer, scale: float) -> int:
    with tempfile.TemporaryDirectory() as folder:
        generator = str(Path(sys.executable).with_name("tpchgen-cli"))
        subprocess.run(
            [generator, "-s", str(scale), "--tables", "lineitem", "--output-dir", folder],
            check=True,
            capture_output=True,
        )
        file = next(Path(folder).rglob("lineitem*.tbl"))
        source.execute(f"CREATE DATABASE {DATABASE}")
        connection = source.connect(user="root", password="", database=DATABASE, local_infile=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(workload.LINEITEM)
                rows = cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE lineitem "
                    "FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\\n'"
                )
            connection.commit()
            return int(rows)
        finally:
            connection.close()
