"""Eight connections that insert rows at a table's end, in a process of its own.

Each row is a transaction; one that a deadlock or a wait for a lock has undone is inserted again.
What is printed at the end: how many rows came, how many tries were undone, how long a row took.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import closing

import pymysql

from airflow_cdc_provider.core.endpoint import Endpoint
from tests.servers.given import SqlServer

WRITERS = 8
WRITER = 1
_UNDONE = {1205, 1213}
"""A wait for a lock that was too long, and a deadlock."""


class EndWriters:
    """Inserts from several threads for some seconds; their keys are odd, as on one of two nodes."""

    def __init__(self, server: SqlServer, seconds: float) -> None:
        self._server = server
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._failures: list[Exception] = []
        self.took_s: list[float] = []
        self.undone = 0

    def run(self) -> None:
        """Insert until the time is over."""
        threads = [threading.Thread(target=self._write) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _write(self) -> None:
        took: list[float] = []
        undone = 0
        try:
            with closing(self._server.connect("shop")) as connection:
                cursor = connection.cursor()
                cursor.execute("SET auto_increment_increment = 2, auto_increment_offset = 1")
                while time.monotonic() < self._until:
                    began = time.perf_counter()
                    undone += insert_once(cursor)
                    took.append(time.perf_counter() - began)
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits for this one
            self._failures.append(error)
        with self._lock:
            self.took_s += took
            self.undone += undone


def insert_once(cursor: pymysql.cursors.Cursor) -> int:
    """Insert a row; returns how many tries were undone before."""
    undone = 0
    while True:
        try:
            cursor.execute(f"INSERT INTO orders (origin, v) VALUES ({WRITER}, 'written here')")
        except pymysql.err.OperationalError as error:
            if error.args[0] not in _UNDONE:
                raise
            undone += 1
        else:
            return undone


def main() -> None:
    given = json.loads(sys.argv[1])
    at = Endpoint.parse(given["dsn"])
    server = SqlServer(host=at.host, port=at.port, user=at.user, password=at.password)
    writers = EndWriters(server, given["seconds"])
    writers.run()
    took = sorted(writers.took_s)
    found = {
        "rows": len(took),
        "p99_ms": took[len(took) * 99 // 100] * 1000,
        "longest_ms": took[-1] * 1000,
        "undone": writers.undone,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
