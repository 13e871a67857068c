"""A reader's memory is bounded by bytes, however wide the rows and however many change."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.servers.given import SqlServer
from tests.systems.mysql.wide_reader import ROWS

MAX_BYTES = 400_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_reader_stays_below_400_mb_while_every_wide_row_changes(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.wide (id INT PRIMARY KEY, n INT NOT NULL, "
        "t VARCHAR(9000) CHARACTER SET latin1 NOT NULL)"
    )
    for first in range(1, ROWS, 500):
        mysql_server.execute(
            f"INSERT INTO {mysql_database}.wide WITH RECURSIVE n AS (SELECT {first} i UNION ALL "
            f"SELECT i + 1 FROM n WHERE i < {first + 499}) "
            "SELECT i, 0, RPAD(CONCAT('row ', i), 9000, CONCAT(i, '-')) FROM n",
            database=mysql_database,
        )
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.systems.mysql.wide_reader",
            mysql_database,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "WIDE_DSN": mysql_server.dsn()},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < MAX_BYTES
