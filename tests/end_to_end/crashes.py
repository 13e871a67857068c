"""What several tests need of `test_crashes`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pymysql

from tests.servers.throwaway import ThrowawayServer

ROWS = 6000


class Writing:
    """Changes all tables from one thread; a server that goes away is waited for."""

    def __init__(self, server: ThrowawayServer, seed: int) -> None:
        self._server = server
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="crash-writer", daemon=True)
        self.transactions = 0

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        while not self._over.is_set():
            with suppress(pymysql.err.Error), self._server.connect(autocommit=False) as connection:
                while not self._over.wait(0.02):
                    with connection.cursor() as cursor:
                        for statement in self._rng.sample(STATEMENTS, 3):
                            cursor.execute(statement(self._rng))
                    connection.commit()
                    self.transactions += 1
            self._over.wait(0.2)


def some(rng: random.Random) -> int:
    return rng.randrange(ROWS * 2)


STATEMENTS: list[Callable[[random.Random], str]] = [
    lambda r: f"REPLACE INTO crash.items VALUES ({some(r)}, 'w{some(r)}', {some(r)}.5)",
    lambda r: f"UPDATE crash.items SET v = CONCAT('u', id), n = n + 1 WHERE id = {some(r)}",
    lambda r: f"DELETE FROM crash.items WHERE id = {some(r)}",
    lambda r: f"UPDATE IGNORE crash.items SET id = {some(r)} WHERE id = {some(r)}",
    lambda r: f"REPLACE INTO crash.codes VALUES ('k{some(r)}', {some(r)})",
    lambda r: f"UPDATE IGNORE crash.codes SET code = UPPER(code), n = n + 1 WHERE n = {some(r)}",
    lambda r: f"UPDATE IGNORE crash.codes SET code = 'm{some(r)}' WHERE code = 'k{some(r)}'",
    lambda r: f"DELETE FROM crash.codes WHERE code = 'K{some(r)}'",
    lambda r: f"REPLACE INTO crash.pairs VALUES ({some(r) % 7}, {some(r)}, 'x{some(r)}')",
    lambda r: f"UPDATE IGNORE crash.pairs SET a = a + 1, u = 'x{some(r)}' WHERE b = {some(r)}",
    lambda r: f"DELETE FROM crash.pairs WHERE a = {some(r) % 7} AND b = {some(r)}",
]


def fill(source: ThrowawayServer) -> None:
    source.execute("CREATE DATABASE crash CHARACTER SET utf8mb4")
    source.execute("CREATE TABLE crash.items (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(20,2))")
    source.execute("CREATE TABLE crash.codes (code VARCHAR(30) PRIMARY KEY, n INT, KEY (n))")
    source.execute(
        "CREATE TABLE crash.pairs (a INT, b BIGINT, u VARCHAR(20), PRIMARY KEY (a, b), UNIQUE (u))"
    )
    numbers = range(ROWS)
    for table, rows in (
        ("items", [f"({i}, 'v{i}', {i}.25)" for i in numbers]),
        ("codes", [f"('k{i}', {i})" for i in numbers]),
        ("pairs", [f"({i % 5}, {i}, 'x{i}')" for i in numbers]),
    ):
        source.execute(f"INSERT INTO crash.{table} VALUES {', '.join(rows)}")
